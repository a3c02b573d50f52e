"""What ``roofwatch run`` puts into a job's environment."""

import json
import os
from typing import Dict, Mapping, Optional


def environment(
    environ: Mapping[str, str],
    model: Optional[str] = None,
    labels: Optional[Mapping[str, str]] = None,
    socket: Optional[str] = None,
) -> Dict[str, str]:
    """A copy of ``environ`` in which every Python attaches when it imports torch; its children inherit it.

    The folder put first on PYTHONPATH holds one ``sitecustomize.py``, which takes that folder off the path again.
    """
    result = dict(environ)
    ours = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inject")
    theirs = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry != ours]
    # ":" is two empty entries, and each names the working folder; unset and empty name nothing.
    result["PYTHONPATH"] = os.pathsep.join([ours, *theirs]) if environ.get("PYTHONPATH") else ours
    if model is not None:
        result["ROOFWATCH_MODEL"] = model
    if labels:
        result["ROOFWATCH_LABELS"] = json.dumps(dict(labels), sort_keys=True)
    if socket is not None:
        result["ROOFWATCH_SOCKET"] = socket
    return result
