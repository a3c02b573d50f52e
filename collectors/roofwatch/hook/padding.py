"""Real and padded lengths of the batches seen while a window is open; outside a window nothing is kept."""

from typing import Dict, Iterable, Optional

_sums: Optional[Dict[str, int]] = None  # while a window is open


def batch(lengths: Iterable[int], padded_to: Optional[int] = None) -> None:
    """Tell the open window the real lengths of a batch, padded to its longest (or to ``padded_to``). Raises nothing."""
    sums = _sums
    if sums is None:
        return
    try:
        real = [int(length) for length in lengths]
        longest = int(padded_to) if padded_to else max(real, default=0)
        sums["batches"] += 1
        sums["real_tokens"] += sum(real)
        sums["padded_tokens"] += len(real) * longest
        sums["real_squared"] += sum(length * length for length in real)
        sums["padded_squared"] += len(real) * longest * longest
    except Exception:  # a wrong argument is not worth the job
        return


def start() -> None:
    """A window has opened."""
    global _sums
    _sums = dict.fromkeys(("batches", "real_tokens", "padded_tokens", "real_squared", "padded_squared"), 0)


def stop() -> Optional[Dict[str, int]]:
    """The window has been cut: its sums, None when no batch was told."""
    global _sums
    sums, _sums = _sums, None
    return sums if sums and sums["batches"] else None
