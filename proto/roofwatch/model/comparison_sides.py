"""One side of a comparison: its kernels and timeline, by the step, call, token or window. Pure functions.

The time of one step is exact: span less start-up and less what was launched outside of steps = the kernels' sum −
overlap + idle. All are integers here, sums over so many units; what is shown is rounded so that it still adds up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from operator import attrgetter

from roofwatch.model.answer_rows import sums_of
from roofwatch.model.comparison_pieces import COMMUNICATION, COPY, Pieces, pieces_of
from roofwatch.model.comparison_products import Products, Quotient, flops_of
from roofwatch.model.comparison_sums import KernelSums, columns_of
from roofwatch.model.errors import IncompleteError
from roofwatch.model.record import Cause, Peaks, Phase, Vendor, Window
from roofwatch.model.timeline import TimelineSum, sum_of

STEP, CALL, TOKEN, WINDOW = "step", "call", "token", "window"
PER = (STEP, CALL, TOKEN, WINDOW)
SCALE = {TOKEN: 1000}  # a token takes microseconds: nanoseconds of 1,000 tokens keep three more digits


@dataclass(frozen=True, slots=True)
class Counts:
    """What there is to divide by, summed over windows; ``pairs`` counts each window once for each of its devices.

    ``calls`` are batches whose lengths the job reported, ``tokens`` the real tokens in them. ``stepless`` windows tell
    no steps, ``silent`` ones no lengths (None: not known any more, where only sums are kept). ``python_events`` are
    Python functions that were recorded.
    """

    windows: int = 0
    pairs: int = 0
    steps: int = 0
    calls: int = 0
    tokens: int = 0
    stepless: int | None = 0
    silent: int | None = 0
    python_events: int = 0

    def units(self, per: str) -> Fraction:
        """How many there are of a unit, on all devices: a step of two devices is a step on each."""
        if not self.windows:
            return Fraction(0)
        count = {STEP: self.steps, CALL: self.calls, TOKEN: self.tokens, WINDOW: self.windows}[per]
        return Fraction(count * self.pairs, self.windows)

    def without(self, per: str) -> int | None:
        """How many windows do not tell that unit."""
        return {STEP: self.stepless, WINDOW: 0}.get(per, self.silent)


@dataclass(frozen=True, slots=True)
class Side:
    """What one side is: all of it on one device model.

    Of steps, ``time`` is that of the windows that tell them, and ``stepless_ns`` the device time of the others, which
    is in ``sums``.
    """

    counts: Counts
    device: str
    vendor: Vendor
    peaks: Peaks
    sums: KernelSums
    time: TimelineSum
    stepless_ns: int = 0
    models: frozenset[str] = frozenset()
    worlds: frozenset[int] = frozenset()


def basis(left: Counts, right: Counts, asked: str | None) -> str:
    """The unit to compare by: what was asked for, else the first that both sides tell; windows always do.

    Raises:
        IncompleteError: what was asked for one of the sides does not tell.
    """
    told = [per for per in PER if left.units(per) and right.units(per)]
    if asked is None:
        return next(per for per in (STEP, CALL, WINDOW) if per in told)
    words = {STEP: "has no steps", CALL: "reported no batches", TOKEN: "reported no lengths", WINDOW: "has no windows"}
    for name, counts in (("left", left), ("right", right)):
        if not counts.units(asked):
            raise IncompleteError(f"the {name} side {words[asked]}: compare by {' or '.join(told)} (--per {told[0]}).")
    return asked


def counts_of(window: Window) -> Counts:
    """The counts of a window that is in no store."""
    padding = window.padding
    return Counts(
        windows=1,
        pairs=len(window.devices),
        steps=window.steps or 0,
        calls=0 if padding is None else padding.batches,
        tokens=0 if padding is None else padding.real_tokens,
        stepless=0 if window.steps else 1,
        silent=0 if padding is not None else 1,
        python_events=window.ledger.python_events or 0,
    )


def side_of(window: Window, name: str) -> Side:
    """A window that is in no store as a side.

    Raises:
        IncompleteError: it holds no device, or devices of several models.
    """
    models = list(dict.fromkeys(d.device.model for d in window.devices))
    if len(models) != 1:
        found = f"ran on several device models ({', '.join(models)})" if models else "holds no kernel and no op"
        raise IncompleteError(f"{name} {found}: there is nothing to compare.")
    process, device = window.process, window.devices[0].device
    return Side(
        counts=counts_of(window),
        device=device.model,
        vendor=device.vendor,
        peaks=device.peaks,
        sums=columns_of(sums_of(window)),
        time=sum_of(window),
        models=frozenset({process.model} if process.model else ()),
        worlds=frozenset({process.world_size} if process.world_size else ()),
    )


@dataclass(frozen=True, slots=True)
class Taken:
    """A side by its unit: integers summed over ``units`` (a fraction where the side was scaled to the other's work).

    ``overlap_ns`` is device time beside other device time; of it ``hidden`` is communication's and copies'.
    """

    side: Side
    per: str
    units: Fraction
    pieces: Pieces
    products: Products
    flops: Quotient | None  # of all units; None where too little is known of it
    idle: dict[str, int] = field(default_factory=dict)
    overlap_ns: int = 0
    hidden_ns: tuple[int, int] = (0, 0)  # communication, copies
    outside_ns: int = 0
    startup_ns: int = 0

    @property
    def time_ns(self) -> int:
        """Time of all units."""
        return self.pieces.total() - self.overlap_ns + sum(self.idle.values())


def tells_phases(side: Side) -> bool:
    """Whether it is known of any kernel which part of a step launched it."""
    return not {Phase.NONE}.issuperset(map(attrgetter("phase"), side.sums.signatures))


def taken(side: Side, per: str, *, phases: bool) -> Taken:
    """The side by a unit. Of steps, only what was launched inside them counts; the rest is told apart."""
    pieces = pieces_of(side.sums, side.vendor, stepping=per == STEP, phases=phases)
    products = pieces.products()
    device_ns = sum(side.sums.total_ns) - side.stepless_ns
    span, busy = round(side.time.sampled.span_ns), round(side.time.sampled.busy_ns)
    steady = side.time.steady()
    idle = {str(cause): c.total_ns for cause, c in sorted(steady.causes.items()) if c.total_ns}
    startup = side.time.startup_ns
    untold = span - busy - startup - sum(idle.values())  # causes add up to idle, where they are told
    if untold:
        idle[str(Cause.UNKNOWN)] = idle.get(str(Cause.UNKNOWN), 0) + untold
    overlap = device_ns - busy
    return Taken(
        side,
        per,
        side.counts.units(per) / SCALE.get(per, 1),
        pieces,
        products,
        flops_of(*products[:3]),
        idle,
        overlap,
        _hidden(side, pieces, overlap),
        device_ns - pieces.total(),
        startup,
    )


def _hidden(side: Side, pieces: Pieces, overlap: int) -> tuple[int, int]:
    """Communication's and copies' time beside other work: what of them the timeline does not call exposed."""
    exposed = side.time.sampled.parts()
    found: list[int] = []
    for sort, name in ((COMMUNICATION, "exposed_communication"), (COPY, "exposed_copy")):
        hidden = max(0, pieces.total(sort) - round(exposed[name]))
        found.append(max(0, min(hidden, overlap - sum(found))))
    return found[0], found[1]


def a_unit(values: Iterable[int], units: Fraction) -> list[int]:
    """Each value ÷ units in whole numbers that add up to the rounded sum ÷ units.

    Each is the difference of two rounded running sums: less than 1 from its own quotient, 0 for 0, and never of the
    other sign.
    """
    found, running, before = [], 0, 0
    twice, over, half = 2 * units.denominator, 2 * units.numerator, units.numerator
    for value in values:
        running += value
        rounded = (running * twice + half) // over
        found.append(rounded - before)
        before = rounded
    return found
