"""What both test modules of captured graphs need: a stand-in for a graph, and the log of one capture."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from roofwatch.hook.listening import Listener

STAND_IN = """
import torch
class Graph:
    # What torch.cuda.CUDAGraph is to the hook; torch has none on a CPU.
    def capture_begin(self): pass
    def capture_end(self): pass
    def replay(self): pass
torch.cuda.CUDAGraph = Graph
"""


def heard(work: Callable[[], Any]) -> dict[str, Any]:
    """The log of one capture of this work."""
    listener = Listener(torch)
    try:
        work()
    finally:
        listener.stop()
    text = listener.log.seal()
    return {"calls": [], "order": [], "cut": False} if text is None else json.loads(text)


def names(log: dict[str, Any]) -> list[str]:
    """The ops of a log in order."""
    return [log["calls"][i][0] for i in log["order"]]
