"""A window whose report follows by hand.

H100 with 989 TFLOP/s in bf16 and 3.35 TB/s. Of 1 ms span it is busy 350 µs: two GEMMs of 100 µs each that need 50 µs, a
norm of 100 µs without a known roof, and a copy of 50 µs that is exposed. Idle: 400 µs launch bound, 250 µs sync.

    compute 300 µs = 30 % (matmul 20 %, norm 10 %), exposed copy 5 %, launch bound 40 %, sync 25 %
    GEMM: 2 × 50 ÷ 200 = 50 % of its roof, 100 µs winnable, 4,194,304 FLOP ÷ 100 µs = 41.9 GFLOP/s reached,
          4,194,304 ÷ 540,672 = 7.76 FLOP per byte
    winnable, as a share of the span: 100 µs of 300 µs kernels that share 300 µs compute = 10 %; 10 % of unknown roof
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from playwright.sync_api import Page
from store_builders import COPY, GEMM, H100, NORM, stat, window_of

from roofwatch.model import report
from roofwatch.model.answer import CoverageSum
from roofwatch.model.answer import answer as whole_answer
from roofwatch.model.record import Bound, Cause, DeviceWindow, Evidence, IdleCause, Window

US = 1000
RIDGE = 989e12 / 3.35e12
LONG = "in aten::item, before nvjet_tst_128x256; at 1.000 ms, a gap of 0.100 ms"
KERNELS = [
    stat(GEMM, [100 * US] * 2, roof_ns=50.0 * US, ridge=RIDGE),
    stat(NORM, [100 * US], bound=Bound.UNKNOWN, evidence=Evidence.NONE),
    stat(COPY, [50 * US], bound=Bound.COPY, evidence=Evidence.DEFINITION),
]
CAUSES = (
    IdleCause(Cause.LAUNCH_BOUND, 400 * US, 8, 100 * US, LONG),
    IdleCause(Cause.SYNC, 250 * US, 5, 60 * US, None),
)


def window(name: str = "scene", start_unix_ns: int = 2_000_000_000_000_000_000, **more: object) -> Window:
    """The window, taken at some time."""
    made = window_of(name, KERNELS, causes=CAUSES, start_unix_ns=start_unix_ns)
    device = DeviceWindow(H100, span_ns=1000 * US, busy_ns=350 * US, causes=CAUSES, exposed_copy_ns=50 * US)
    return replace(made, devices=(device,), **more)  # type: ignore[arg-type]


def busy(name: str, start_unix_ns: int, **more: object) -> Window:
    """A window whose device never waited: ten GEMMs of 100 µs."""
    made = window_of(name, [stat(GEMM, [100 * US] * 10, roof_ns=50.0 * US, ridge=RIDGE)], start_unix_ns=start_unix_ns)
    return replace(made, **more)  # type: ignore[arg-type]


def answer_of(window: Window, limit: int = 50) -> dict[str, Any]:
    """The answer of one window."""
    coverage = CoverageSum()
    coverage.add(window)
    told = report.of_window(window, limit)
    rows = told.pop("rows")
    return whole_answer({"name": "report"}, coverage, rows, cost=None, **told)


@dataclass
class Reader:
    """A page in a browser, with all that it said and asked for."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked_for: list[str] = field(default_factory=list)


MakePage = Callable[..., Path]  # answer → file
Read = Callable[..., Reader]  # file → reader
