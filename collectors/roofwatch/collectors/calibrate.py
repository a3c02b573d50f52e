"""Measured ceilings of the device at hand: matrix products in each precision, and a copy larger than any cache.

Takes a few seconds of all the threads asked for, so never beside a job. torch is imported inside.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofwatch.model.devices import cpu_model, identify
from roofwatch.model.errors import UsageError
from roofwatch.model.record import Device, Peak, Peaks, Vendor

if TYPE_CHECKING:
    import torch

SOURCE = "measured"
_BUDGET_S = 0.35  # of each figure; the best of its repeats counts, since a ceiling is what nothing gets beyond
_ROUND_S = 0.2  # the same, where two rounds are taken
UNSTEADY = 0.15  # two rounds that differ by more were disturbed: clocks and caches account for a few per cent
_ENOUGH = 0.9  # of the cores that the threads need: with less left for them, too little is measured
_BANDWIDTH = "bandwidth"
LOWER = 0.05  # two calibrations of an idle machine differ by less
_ROWS = {"cpu": 1024, "cuda": 8192}  # of the square product: large enough to hide its start, small enough to repeat
_COPY_BYTES = {"cpu": 256 << 20, "cuda": 1 << 30}  # far larger than any cache
_MINIMUM_RATIO = 0.5  # a half-precision product below this share of fp32's is emulated: no ceiling worth the name
_HOPELESS = 0.1  # the same of a small product: the full one, hundreds of times slower on some CPUs, is not tried then


def measure(threads: int | None = None, device: str = "cpu", budget_s: float = _BUDGET_S) -> Peaks:
    """The peaks of a device by (precision, unit), and its copy bandwidth (bytes read and written a second).

    ``threads``: torch's thread count while a CPU is measured (default: as it is). ``device``: "cpu" or "cuda[:n]".

    Raises:
        UsageError: torch is not installed, or has no such device.
    """
    torch = _torch(device)
    place = torch.device(device)
    with _threads(torch, threads), torch.inference_mode():
        flops = _flops(torch, place, budget_s)
        bandwidth = _bandwidth(torch, place, budget_s)
    return Peaks({key: Peak(value, SOURCE) for key, value in flops.items()}, Peak(bandwidth, SOURCE))


@dataclass(frozen=True, slots=True)
class Measurement:
    """Peaks, and in a few words what may have made them too low."""

    peaks: Peaks
    trouble: str | None


def measure_watched(threads: int | None = None, device: str = "cpu", budget_s: float = _ROUND_S) -> Measurement:
    """As ``measure``, twice: the better of each figure, and whether other processes or chance were in the way.

    Raises:
        UsageError: torch is not installed, or has no such device.
    """
    needed = _torch(device).get_num_threads() if threads is None else threads
    watch = _Watch()
    first, second = (measure(threads, device, budget_s) for _ in range(2))
    taken = watch.taken() if device == "cpu" else None
    trouble = [_taken(taken, watch.cores, needed), _unsteady(first, second)]
    return Measurement(higher(first, second)[0], ", ".join(word for word in trouble if word) or None)


def higher(before: Peaks, now: Peaks) -> tuple[Peaks, list[str]]:
    """The higher of each figure (a ceiling is what nothing gets beyond), and which were higher before."""
    old, new = _figures(before), _figures(now)
    best = {name: max((peaks[name] for peaks in (old, new) if name in peaks), key=_value) for name in {**old, **new}}
    lower = [name for name in new if name in old and new[name].value < (1 - LOWER) * old[name].value]
    flops = {key: best[f"{key[0]}/{key[1]}"] for key in {**before.flops, **now.flops}}
    return Peaks(flops, best.get(_BANDWIDTH)), lower


def contradicted(few: Peaks, many: Peaks) -> str | None:
    """The matrix product that more threads multiply slower than fewer do, which cannot be; the worst, None if none."""
    flops = {key: many.flops[key].value / peak.value for key, peak in few.flops.items() if key in many.flops}
    products = {key: share for key, share in flops.items() if key[1] == "matrix"}
    worst = min(products, key=lambda key: products[key], default=None)
    return None if worst is None or products[worst] >= 1 - LOWER else f"{worst[0]}/{worst[1]}"


def _figures(peaks: Peaks) -> dict[str, Peak]:
    flops = {f"{precision}/{unit}": peak for (precision, unit), peak in peaks.flops.items()}
    return flops if peaks.bandwidth is None else {**flops, _BANDWIDTH: peaks.bandwidth}


def _value(peak: Peak) -> float:
    return peak.value


def _unsteady(first: Peaks, second: Peaks) -> str | None:
    """Words about the figure on which two rounds differ most, where that is more than chance."""
    one, two = _figures(first), _figures(second)
    pairs = {name: sorted((one[name].value, two[name].value)) for name in one if name in two}
    apart = {name: 1 - low / high for name, (low, high) in pairs.items()}
    worst = max(apart, key=lambda name: apart[name], default=None)
    if worst is None or apart[worst] <= UNSTEADY:
        return None
    return f"two rounds differ by {100 * apart[worst]:.0f} % in {worst}"


def _taken(taken: float | None, cores: int, threads: int) -> str | None:
    """Words about other processes that left less than the threads need; None where nobody can tell."""
    if taken is None or cores - taken >= _ENOUGH * min(threads, cores):
        return None
    return f"other processes took {taken:.1f} of the {cores} cores"


class _Watch:
    """What other processes take of the cores that this one may use, from its making on."""

    def __init__(self) -> None:
        self._allowed = {f"cpu{n}" for n in os.sched_getaffinity(0)}
        self.cores = len(self._allowed)
        self._begin = time.monotonic(), time.process_time(), self._busy_s()

    def taken(self) -> float | None:
        """Cores that others kept busy, or that the host did not give; None where the kernel does not tell."""
        begin, own, busy = self._begin
        now, wall = self._busy_s(), time.monotonic() - begin
        if busy is None or now is None or wall <= 0:
            return None
        return max(0.0, (now - busy - (time.process_time() - own)) / wall)

    def _busy_s(self) -> float | None:
        """Seconds that those cores were not idle: all of proc_stat(5) but idle, iowait and the guests' second count."""
        try:
            lines = Path("/proc/stat").read_text("ascii").splitlines()
        except OSError:
            return None
        ticks = [line.split()[1:9] for line in lines if line.split(" ", 1)[0] in self._allowed]
        busy = sum(int(value) for fields in ticks for position, value in enumerate(fields) if position not in {3, 4})
        return busy / os.sysconf("SC_CLK_TCK") if ticks else None


def device_of(threads: int | None = None, device: str = "cpu") -> Device:
    """The device that ``measure`` with the same arguments speaks of, named as windows name it.

    Raises:
        UsageError: torch is not installed, or has no such device.
    """
    torch = _torch(device)
    if torch.device(device).type == "cpu":
        return Device(Vendor.CPU, cpu_model(), units=threads or torch.get_num_threads())
    properties = torch.cuda.get_device_properties(torch.device(device))
    vendor = Vendor.AMD if torch.version.hip else Vendor.NVIDIA
    return identify(vendor, properties.name, properties.multi_processor_count, properties.total_memory)


def _torch(device: str) -> Any:
    try:
        import torch  # noqa: PLC0415 - the only place that needs it
    except ImportError as error:
        raise UsageError("Calibration needs torch, which is not installed: pip install torch.") from error
    kind = device.partition(":")[0]
    if kind not in _ROWS:
        raise UsageError(f"Cannot calibrate {device!r}: give cpu, cuda or cuda:N.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise UsageError("torch sees no CUDA or ROCm device here: run this on the node that has it.")
    return torch


@contextmanager
def _threads(torch: Any, threads: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _flops(torch: Any, place: torch.device, budget_s: float) -> dict[tuple[str, str], float]:
    """FLOP/s of square matrix products by (precision, unit).

    A CPU, and NVIDIA's cores without TF32, multiply fp32 (a CPU fp64, too) on their vector units: the product is then
    the vector ceiling as well, since no elementwise op comes as close to it. AMD's GPUs use the matrix unit for these.
    """
    peaks = {("fp32", "matrix"): (fp32 := _product(torch, place, torch.float32, budget_s))}
    for precision, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp64", torch.float64)):
        small = _ROWS[place.type] // 4
        if precision == "fp64" or _product(torch, place, dtype, budget_s / 10, small) >= _HOPELESS * fp32:
            peaks[precision, "matrix"] = _product(torch, place, dtype, budget_s)
    least = _MINIMUM_RATIO * fp32
    kept = {key: value for key, value in peaks.items() if key[0] in ("fp32", "fp64") or value >= least}
    if place.type == "cpu":
        return kept | {(precision, "vector"): kept[precision, "matrix"] for precision in ("fp32", "fp64")}
    if torch.version.hip:
        return kept
    kept["fp32", "vector"] = kept.pop(("fp32", "matrix"))
    with _tf32(torch):
        kept["tf32", "matrix"] = _product(torch, place, torch.float32, budget_s)
    return kept


def _product(torch: Any, place: torch.device, dtype: torch.dtype, budget_s: float, rows: int | None = None) -> float:
    n = rows or _ROWS[place.type]
    a, b = (torch.randn(n, n, device=place).to(dtype) for _ in range(2))
    out = torch.empty(n, n, dtype=dtype, device=place)
    return 2 * n**3 / _best(torch, place, lambda: torch.mm(a, b, out=out), budget_s)


@contextmanager
def _tf32(torch: Any) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _bandwidth(torch: Any, place: torch.device, budget_s: float) -> float:
    """Bytes a second of the better of a copy and a sum: a pass that only reads can be faster than one that writes."""
    count = _COPY_BYTES[place.type] // 4
    source = torch.ones(count, device=place)
    target = torch.empty_like(source)
    copied = 2 * 4 * count / _best(torch, place, lambda: target.copy_(source), budget_s)
    summed = 4 * count / _best(torch, place, lambda: torch.sum(source), budget_s)
    return float(max(copied, summed))


def _best(torch: Any, place: torch.device, work: Callable[[], Any], budget_s: float) -> float:
    """Seconds of the fastest of several batches, each long enough for the clock."""
    work()
    batch, end = 1, time.perf_counter() + budget_s
    best = float("inf")
    while best == float("inf") or time.perf_counter() < end:
        took = _timed(torch, place, work, batch)
        best = min(best, took / batch)
        if took < budget_s / 50:
            batch *= 2
    return best


def _timed(torch: Any, place: torch.device, work: Callable[[], Any], batch: int) -> float:
    if place.type == "cuda":
        torch.cuda.synchronize(place)
    start = time.perf_counter()
    for _ in range(batch):
        work()
    if place.type == "cuda":
        torch.cuda.synchronize(place)
    return time.perf_counter() - start
