"""Why a rank is late: chip, kernels, input, copies, host or network, by its time a step less that of its peers. Pure.

Peers are the ranks that are not late. All is a mean over the same steps, so that the differences add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roofwatch.model.answer import ratio
from roofwatch.model.ranks_laid import OWN, Moment, RankWindow
from roofwatch.model.record import Cause

CHIP, KERNELS, INPUT, COPIES, HOST, NETWORK, SEVERAL = (
    "chip", "kernels", "input", "copies", "host", "network", "several",
)  # fmt: skip
COMPUTE = "compute"
# Where each part of a rank's own time counts. Of the idle causes but input and copies the host's work is behind.
CLASS_OF = {
    "compute": COMPUTE,
    "exposed_copy": COPIES,
    str(Cause.COPY): COPIES,
    str(Cause.INPUT): INPUT,
}
CLASSES = (COMPUTE, INPUT, COPIES, HOST, NETWORK)

LEADS = 0.5  # of what a rank is slower in: less explains nothing alone
# Clocks of chips under the same load differ by a step or two of 15 MHz in 1,500.
CLOCK_LEAST = 0.02
# A chip that is slower slows all kernels; one that is capped, those bound by compute most. So three quarters of the
# kernels' time must be slower by at least half of what the whole is slower by.
COMMON_QUANTILE, COMMON_LEAST = 0.25, 0.5
COMMON_KERNELS = 3  # different ones: of fewer nothing is common
KERNEL_LEAST, KERNELS_MOST = 0.1, 5  # of the excess, for a kernel to be named; and so many at most


@dataclass(frozen=True, slots=True)
class State:
    """How a rank's device ran: means over its windows, None where not read; ``throttle`` names what held it down."""

    device: str | None
    clock_hz: float | None = None
    throttle: Sequence[str] = ()
    throttled_share: float | None = None  # of the windows in which it was read


def state_of(windows: Sequence[RankWindow]) -> State:
    """Of a rank's windows."""
    clocks = [w.clock_hz for w in windows if w.clock_hz]
    read = [w.throttle for w in windows if w.throttle is not None]
    names = dict.fromkeys(name for text in read for name in text.split(",") if name)
    return State(
        device=next((w.device for w in reversed(windows) if w.device), None),
        clock_hz=sum(clocks) / len(clocks) if clocks else None,
        throttle=tuple(names),
        throttled_share=sum(map(bool, read)) / len(read) if read else None,
    )


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One signature on one side: calls and nanoseconds a step (or second), of one rank."""

    calls: float
    ns: float


def excess(moments: Iterable[Moment], rank: int, peers: set[int], *, by_step: bool) -> dict[str, float]:
    """Nanoseconds a step by which a rank takes longer than its peers' mean, by part of OWN; ``network`` where known.

    Means over the moments in which there was a peer beside it.
    """
    sums = dict.fromkeys(OWN, 0.0)
    moved, seen, told = 0.0, 0, 0
    for moment in moments:
        own = moment.members.get(rank)
        others = [moment.members[peer] for peer in moment.members if peer in peers]
        if own is None or not others:
            continue
        seen += 1
        for part in OWN:
            usual = sum(w.parts[part] / w.units(by_step=by_step) for w in others) / len(others)
            sums[part] += own.parts[part] / own.units(by_step=by_step) - usual
        beside = [peer for peer in moment.members if peer in peers and peer in moment.moving]
        if rank in moment.moving and beside:
            each = {r: moment.moving[r] / moment.members[r].units(by_step=by_step) for r in (rank, *beside)}
            moved += each[rank] - sum(each[r] for r in beside) / len(beside)
            told += 1
    found = {part: total / seen for part, total in sums.items()} if seen else sums
    return found | ({NETWORK: moved / told} if told else {})


def by_class(parts: Mapping[str, float]) -> dict[str, float]:
    """The same by what is behind: CLASSES; ``network`` only where it is known."""
    found = {name: 0.0 for name in CLASSES if name != NETWORK or NETWORK in parts}
    for part, ns in parts.items():
        found[NETWORK if part == NETWORK else CLASS_OF.get(part, HOST)] += ns
    return found


def leading(classes: Mapping[str, float]) -> tuple[str, float | None]:
    """The class that explains most of what is slower, and its share of it; SEVERAL where none explains half."""
    slower = {name: ns for name, ns in classes.items() if ns > 0}
    if not slower:
        return SEVERAL, None
    first = max(slower, key=lambda name: slower[name])
    share = slower[first] / sum(slower.values())
    return (first if share >= LEADS else SEVERAL), share


def chip_or_kernels(
    own: State,
    peers: Sequence[State],
    ours: Mapping[int, KernelTime],
    theirs: Mapping[int, KernelTime],
    compute_ns: float,
) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    """What is behind longer compute, CHIP or KERNELS; the chip's figures; the kernels that take longer, worst first.

    ``ours`` and ``theirs`` are by signature, a step of this rank and of a peer; compute is ``compute_ns`` longer.
    """
    chip = _clocks(own, peers) | _common(ours, theirs)
    # Kernels that run side by side add up to more than the time they take, and noise between them to something.
    whole = sum(t.ns for t in ours.values()) - sum(t.ns for t in theirs.values())
    slower = _slower(ours, theirs, max(whole, compute_ns))
    behind = chip["other_device"] or chip["clock_explains"] or chip["throttle_explains"] or chip["common_explains"]
    return (CHIP if behind else KERNELS), chip, slower


def _clocks(own: State, peers: Sequence[State]) -> dict[str, Any]:
    clocks = [peer.clock_hz for peer in peers if peer.clock_hz]
    usual = sum(clocks) / len(clocks) if clocks else None
    slower = usual / own.clock_hz - 1 if usual and own.clock_hz else None
    models = {peer.device for peer in peers}
    throttled = [p.throttled_share for p in peers if p.throttled_share is not None]
    often = (own.throttled_share or 0.0) >= LEADS and bool(throttled) and max(throttled) < LEADS
    return {
        "clock_hz": own.clock_hz,
        "peers_clock_hz": usual,
        "clock_explains": slower is not None and slower >= CLOCK_LEAST,
        "throttle": ",".join(own.throttle) if own.throttled_share is not None else None,
        "throttled_share": own.throttled_share,
        "throttle_explains": often,
        "other_device": own.device is not None and None not in models and own.device not in models,
    }


def _common(ours: Mapping[int, KernelTime], theirs: Mapping[int, KernelTime]) -> dict[str, Any]:
    """Whether all kernels that both sides run are slower alike, by how much, and how many that is of."""
    both = [s for s in ours.keys() & theirs.keys() if ours[s].calls and theirs[s].calls and theirs[s].ns > 0]
    slower = sorted(
        (ours[s].ns / ours[s].calls / (theirs[s].ns / theirs[s].calls), theirs[s].ns) for s in both
    )  # fmt: skip
    whole = sum(ns for _, ns in slower)
    found: dict[str, Any] = {"common_factor": None, "common_kernels": len(both), "common_explains": False}
    if len(both) < COMMON_KERNELS or not whole:
        return found
    passed = 0.0
    for factor, ns in slower:
        passed += ns
        if passed >= COMMON_QUANTILE * whole:
            found["common_factor"] = factor
            break
    least = 1 + COMMON_LEAST * (sum(t.ns for t in ours.values()) / sum(t.ns for t in theirs.values()) - 1)
    found["common_explains"] = found["common_factor"] > 1 and found["common_factor"] >= least
    return found


def _slower(
    ours: Mapping[int, KernelTime], theirs: Mapping[int, KernelTime], whole: float
) -> list[dict[str, Any]]:  # fmt: skip
    """Signatures with a part of the excess worth a word; ``factor`` is of one call, null where peers run none."""
    nothing = KernelTime(0.0, 0.0)
    over = {s: t.ns - theirs.get(s, nothing).ns for s, t in ours.items()}
    worst = sorted((s for s, ns in over.items() if ns > 0 and ns >= KERNEL_LEAST * whole), key=lambda s: -over[s])
    rows = []
    for signature in worst[:KERNELS_MOST]:
        own, usual = ours[signature], theirs.get(signature, nothing)
        mean, theirs_mean = ratio(own.ns, own.calls), ratio(usual.ns, usual.calls)
        rows.append(
            {
                "signature": signature,
                "excess_ns": round(over[signature]),
                "share": ratio(over[signature], whole) if whole > 0 else None,
                "calls": own.calls,
                "peers_calls": usual.calls,
                "mean_ns": mean,
                "peers_mean_ns": theirs_mean,
                "factor": ratio(mean or 0.0, theirs_mean or 0.0),
            }
        )
    return rows
