"""Kernel records one by one, as ``roofwatch export`` writes them: a row a window, device, signature and evidence.

A store gives them page by page: of a page each window, device and signature once, and rows that point at them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

WINDOW_KEYS = (
    "window", "start_unix_ns", "duration_ns", "steps", "first_step", "represents_ns", "trigger", "collector", "node",
    "process", "pid", "job", "rank", "local_rank", "world_size", "model", "labels",
)  # fmt: skip
DEVICE_KEYS = ("vendor", "device", "index", "uuid")
SIGNATURE_KEYS = (
    "kernel", "kind", "op", "phase", "module", "shapes", "dtypes", "arguments", "formula", "precision", "unit", "flops",
    "bytes", "flops_max",
)  # fmt: skip
FIGURE_KEYS = (
    "calls", "total_ns", "est_ns", "min_ns", "max_ns", "step_calls", "step_ns", "bound", "evidence", "formula_bound",
    "roof_ns", "ridge", "histogram_low", "histogram_counts",
)  # fmt: skip
KEYS = (*WINDOW_KEYS, *DEVICE_KEYS, *SIGNATURE_KEYS, *FIGURE_KEYS)
TEXTS = ("shapes", "dtypes", "arguments")  # JSON text
POINTERS = 3  # a row of a page begins with the places of its window, device and signature
PAGE_ROWS = 20_000  # of a page, as long as one window has no more
PAGE_WINDOWS = 400


def values(page: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The rows of a page, values in the order of ``KEYS``."""
    windows, devices, signatures = (_tuples(page[name]) for name in ("windows", "devices", "signatures"))
    for window, device, signature, *figures in page["rows"]:
        yield (*windows[window], *devices[device], *signatures[signature], *figures)


def _tuples(found: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    return [tuple(one) for one in found]
