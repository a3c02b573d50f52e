"""The verdict of an Ascend core's pipes: what they were busy with, as shares of what the whole device could. Pure.

A pipe's ratio is its share of the time of the cores that ran. Where clearly fewer ran than there are, the device did
less: a ratio then counts by the share of cores that were taken (cube utilisation where it is told, which is that and
not use; else blocks over cores). Pipes overlap, so their shares may add up to more than one.

- *compute*: the cube's multiplying pipe (mac), the vector pipe (vec);
- *memory*: moves between memory and core (mte2 in, mte3 and fixpipe out). mte2 counts what comes from the L2 as well,
  so a product may be bound by moves though its bytes need little of the memory's bandwidth: then the shapes' verdict
  differs, and both are kept;
- scalar (issuing) and mte1 (within a core) are neither;
- *latency*: no pipe is at its limit, and fewer cores ran than there are, or issuing takes longest, or nothing is busy
  half of the time; but never from 0.3 of the roof on, where one is known, as for every other device.

Other metric sets tell one side alone: ArithmeticUtilization what computed, Memory and MemoryAccess what came from and
went to the device's memory. Then that side is measured, and the other one is what sizes and dtypes say.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from roofwatch.collectors.base import Pipes
from roofwatch.model.record import Bound
from roofwatch.model.roofline import LATENCY_FRACTION


@dataclass(frozen=True, slots=True)
class Limits:
    """From which share on a pipe is the limit of a kernel's type."""

    mac: float
    vec: float
    moves: float
    out: float  # of the cube's results


# The vendor's own analysis calls these the limits. A product's moves run beside its multiplications all the time and
# are hidden by them, so only nearly all of the time (0.95) makes them the limit.
CUBE = Limits(mac=0.8, vec=0.8, moves=0.95, out=0.8)
# Fused attention passes through cube and vector cores in turn: none of its pipes can be busy as long.
ATTENTION = Limits(mac=0.8, vec=0.75, moves=0.8, out=0.75)
VECTOR = Limits(mac=0.8, vec=0.7, moves=0.7, out=0.7)
# In and out taken together: a copy does the one and then the other, so each is busy about half of the time.
VECTOR_MOVES = 0.9
# Below a limit the busier side still decides, as long as it is busy half of the time: else the cores wait, for each
# other, for instructions or for a launch, and neither is the limit.
HALF = 0.5
# With a fifth of the cores left empty more blocks help more than a faster pipe, unless one is at its limit even so.
# Above it the rest is a kernel's start and its last wave, which every kernel has.
FILLED = 0.8
_TRACE = 0.01  # of the time; a mac that ran for less was not what the kernel is for
# Of the memory's bandwidth: what does nothing but stream got 0.74 to 0.91 of it on real boards.
STREAMING = 0.7
_PARTS = tuple(one.name for one in fields(Pipes) if one.name != "measured_ns")
_ATTENTION = ("flashattention", "fusedinferattention", "promptflashattention", "increflashattention", "unpadflash")


def judge_by_pipes(pipes: Pipes, sort: str, filled: float | None, roof_fraction: float | None = None) -> Bound | None:
    """Compute, memory or latency; None where the metrics tell of no pipe that does or moves something.

    ``sort`` is the kernel's type, ``filled`` the share of the cores that its blocks fill, None where unknown.
    """
    if pipes.measured_ns <= 0:
        return None
    told = (pipes.mac_ns, pipes.vec_ns, pipes.cube_mte2_ns, pipes.vector_mte2_ns, pipes.mte3_ns, pipes.fixpipe_ns)
    if all(part is None for part in told[2:]):
        return None
    mac, vec, cube_in, vector_in, out, results = (_share(pipes, part) for part in told)
    taken = _taken(pipes, filled, on_cube=mac > _TRACE)
    limits = _limits(sort, on_cube=mac > _TRACE)
    compute = [(mac, limits.mac), (vec, limits.vec)]
    moves = [(cube_in, limits.moves), (vector_in, limits.moves), (out, limits.moves), (results, limits.out)]
    if limits is VECTOR:
        moves.append((cube_in + vector_in + out, VECTOR_MOVES))
    issuing = max(_share(pipes, pipes.cube_scalar_ns), _share(pipes, pipes.vector_scalar_ns))
    found = _bound(compute, moves, issuing, taken)
    if roof_fraction is not None and roof_fraction >= LATENCY_FRACTION:
        return found[0]
    return found[1]


class Needed(NamedTuple):
    """Shares of the time that a kernel would need at the device's ceilings, by its sizes and dtypes."""

    compute: float
    memory: float


def judge_by_one_side(
    pipes: Pipes, sort: str, filled: float | None, bandwidth: float | None, needed: Needed | None, *, short: bool
) -> Bound | None:
    """The verdict where metrics tell of one side alone; None where that does not decide.

    A measured side at its limit decides. Else the larger side does, if it takes 0.3 of the time; below that ``short``
    (or fewer blocks than cores) makes it latency, as by sizes alone. ``bandwidth`` is the memory's, in bytes/s.
    """
    if pipes.measured_ns <= 0:
        return None
    if pipes.moved_bytes is not None:
        if bandwidth is None:
            return None
        memory = pipes.moved_bytes / bandwidth / (pipes.measured_ns / 1e9)
        at_limit = Bound.MEMORY if memory >= STREAMING else None
        sides = None if needed is None else Needed(needed.compute, memory)
    elif pipes.mac_ns is not None or pipes.vec_ns is not None:
        compute, at_limit = _computed(pipes, sort, filled)
        # The types that the metrics tell apart are not all that there are: what sizes need was done in any case.
        sides = None if needed is None else Needed(max(compute, min(needed.compute, 1.0)), needed.memory)
    else:
        return None
    return at_limit or (None if sides is None else _larger(sides, short=short or (filled is not None and filled < 1.0)))


def _computed(pipes: Pipes, sort: str, filled: float | None) -> tuple[float, Bound | None]:
    """The share of the device's time that its computing pipes were busy, and the verdict if one is at its limit."""
    mac, vec = _share(pipes, pipes.mac_ns), _share(pipes, pipes.vec_ns)
    taken, limits = _taken(pipes, filled, on_cube=mac > _TRACE), _limits(sort, on_cube=mac > _TRACE)
    at_limit = max(mac / limits.mac, vec / limits.vec) * taken >= 1.0
    return max(mac, vec) * taken, Bound.COMPUTE if at_limit else None


def _larger(sides: Needed, *, short: bool) -> Bound | None:
    if max(sides) < LATENCY_FRACTION:
        return Bound.LATENCY if short else None
    return Bound.COMPUTE if sides.compute >= sides.memory else Bound.MEMORY


def with_occupied(pipes: Pipes, cores: int | None) -> Pipes:
    """The pipes with the time that cores were taken: of all cores together, if that is told, over their number."""
    if pipes.occupied_ns is not None or pipes.core_ns is None or not cores:
        return pipes
    return replace(pipes, occupied_ns=pipes.core_ns / cores)


Side = list[tuple[float, float]]  # (share of the time, its limit) of each pipe


def _bound(compute: Side, moves: Side, issuing: float, taken: float) -> tuple[Bound, Bound]:
    """The side that is nearer to its limit, and the verdict where the roof does not rule out latency."""
    use, move = (max(share * taken / limit for share, limit in side) for side in (compute, moves))
    larger = Bound.COMPUTE if use >= move else Bound.MEMORY
    if max(use, move) >= 1.0:
        return larger, larger
    busiest = max(share for share, _ in (compute if larger is Bound.COMPUTE else moves))
    waits = taken < 1.0 or busiest < HALF or issuing > busiest
    return larger, Bound.LATENCY if waits else larger


def _share(pipes: Pipes, part: float | None) -> float:
    return (part or 0.0) / pipes.measured_ns


def _limits(sort: str, *, on_cube: bool) -> Limits:
    if sort.lower().startswith(_ATTENTION):
        return ATTENTION
    return CUBE if on_cube else VECTOR


def _taken(pipes: Pipes, filled: float | None, *, on_cube: bool) -> float:
    """The share of the device's cores that ran; 1 where nearly all did, or nothing tells it."""
    share = pipes.occupied_ns / pipes.measured_ns if on_cube and pipes.occupied_ns else filled
    return 1.0 if share is None or share >= FILLED else share


def summed(parts: list[Pipes]) -> Pipes | None:
    """The pipes of several groups together; a pipe that one of them lacks is known of none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    sums = {name: _sum([getattr(part, name) for part in parts]) for name in _PARTS}
    return Pipes(sum(part.measured_ns for part in parts), **sums)


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
