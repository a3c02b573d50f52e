"""Real and padded lengths of the batches seen while a window is open; outside a window nothing is kept."""

from typing import Any, Dict, Iterable, List, Optional

from .log import failure

MOST_MASKS = 256  # a window with more batches than this is not worth the memory

_open = False
_sums: Dict[str, int] = {}
_masks: List[Any] = []


def batch(lengths: Iterable[int], padded_to: Optional[int] = None) -> None:
    """Tell the open window the real lengths of a batch, padded to its longest (or to ``padded_to``). Raises nothing."""
    if _open:
        try:
            _add([int(length) for length in lengths], padded_to)
        except Exception as error:
            failure("batch", error)


def _add(real: List[int], padded_to: Optional[int]) -> None:
    longest = int(padded_to) if padded_to else max(real, default=0)
    for key, value in (
        ("batches", 1),
        ("real_tokens", sum(real)),
        ("padded_tokens", len(real) * longest),
        ("real_squared", sum(length * length for length in real)),
        ("padded_squared", len(real) * longest * longest),
    ):
        _sums[key] = _sums.get(key, 0) + value


def follow(module: Any) -> None:
    """Read the lengths off the attention mask that ``module`` is called with, while a window is open.

    Only masks of shape (batch, length) in the host's memory: one on a device would have to be waited for. The mask is
    kept, and summed after the window, so that no op of ours is in it. Raises nothing.
    """
    try:
        module.register_forward_pre_hook(_keep_mask, with_kwargs=True)
    except Exception as error:
        failure("model_module", error)


def _keep_mask(_module: Any, _args: Any, kwargs: Any) -> None:
    mask = kwargs.get("attention_mask") if _open else None
    if len(_masks) < MOST_MASKS and getattr(mask, "ndim", 0) == 2 and mask.device.type == "cpu":  # type: ignore[union-attr]
        _masks.append(mask)


def start() -> None:
    """A window has opened."""
    global _open
    _sums.clear()
    _masks.clear()
    _open = True


def end() -> None:
    """The window has been cut."""
    global _open
    _open = False


def sums() -> Optional[Dict[str, int]]:
    """The keys of ``model.Padding`` for the window that was cut last, None when no batch was told."""
    try:
        for mask in _masks:
            _add(mask.detach().bool().sum(1).tolist(), int(mask.shape[1]))
    except Exception as error:
        failure("mask", error)
    _masks.clear()
    return dict(_sums) or None
