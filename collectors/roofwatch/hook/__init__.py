"""Runs inside the job: takes profiler windows when the agent asks. Standard library and torch only, Python 3.8+."""

import sys
from typing import Any, Iterable, Mapping, Optional

__all__ = ["attach", "batch"]

_BY_RUN = "_roofwatch_hook"  # the name under which ``roofwatch run`` loads this package into a job


def attach(model: Optional[str] = None, labels: Optional[Mapping[str, str]] = None, model_module: Any = None) -> None:
    """Let the agent on this node take profiler windows of this process.

    ``model`` and ``labels`` name it in answers; the attention mask of ``model_module`` says what is padding.
    Without an agent nothing happens; whatever goes wrong inside, nothing is raised.
    """
    other = sys.modules.get(_BY_RUN)
    if other is not None and other.__name__ != __name__:
        other.attach(model, labels, model_module)
        return
    from . import job, padding

    job.attach(model, labels, explicit=True)
    if model_module is not None:
        padding.follow(model_module)


def batch(lengths: Iterable[int], padded_to: Optional[int] = None) -> None:
    """Tell an open window the real lengths of a batch, padded to its longest or to ``padded_to``; else do nothing."""
    other = sys.modules.get(_BY_RUN)
    if other is not None and other.__name__ != __name__:
        other.batch(lengths, padded_to)
        return
    from . import padding

    padding.batch(lengths, padded_to)


def _attach_by_run() -> None:
    from . import job

    job.attach(explicit=False)
