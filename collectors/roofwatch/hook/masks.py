"""Attention masks, read without an op of ours in a window of a CPU, and without ever waiting for a device.

In the host's memory a mask's bytes are copied as they are; a large one is kept as it is, and read only if nobody wrote
to it since. On a device its rows are counted there, in the job's own stream, and the counts copied to page-locked
memory that was filled with -1 before: what is still -1 when the window is told was not ready. That needs no event and
no call of the device's runtime on the hook's thread, where one could disturb a graph capture.

A mask is of a batch (B) of sequences padded to L, and says for each key whether it is attended to:

- (B, L): integers or bools, not 0 is attended to; floats, 0/1 or additive (0 is attended to);
- (B, 1, 1, L) alike;
- (B, 1, L, L) alike, where the last query's row and the diagonal hold the same number of keys: a sliding window, or
  rows that were opened because nothing was left in them, tell no length.
"""

import ctypes
import inspect
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

# What a mask is called → whether it marks what to leave out, as torch's own layers want it.
NAMES = {"attention_mask": False, "src_key_padding_mask": True, "key_padding_mask": True}
INPUTS = ("input_ids", "inputs_embeds")

COPIED = 4 << 20  # bytes of one mask; half a millisecond of copying
HELD = 64 << 20  # bytes of the masks of one window that are kept as they are
SLOTS = 1 << 16  # counts that one window's page-locked memory holds
DEVICES = ("cuda", "npu")
_UNREADY = -1

Found = Optional[Tuple[List[int], Optional[int]]]


def _torch() -> Any:
    import torch

    return torch


def is_tensor(value: Any) -> bool:
    """Whether it is a plain tensor: a subclass may be anything (fake, distributed, nested)."""
    torch = _torch()
    return type(value) in (torch.Tensor, torch.nn.Parameter)


class Watched:
    """Where the mask is among a module's arguments."""

    def __init__(self, module: Any) -> None:
        compiler = getattr(_torch(), "compiler", None)
        self.is_compiling = getattr(compiler, "is_compiling", None) or (lambda: False)
        self.places: Dict[str, int] = {}
        try:
            names = list(inspect.signature(module.forward).parameters)
            self.places = {name: names.index(name) for name in NAMES if name in names}
        except (TypeError, ValueError):
            pass

    def mask(self, args: Any, kwargs: Any) -> Optional[Tuple[Any, bool]]:
        """The mask and whether it marks what to leave out; None where there is none that is of this call's inputs."""
        for name, inverted in NAMES.items():
            place = self.places.get(name, len(args))
            value = kwargs.get(name, args[place] if place < len(args) else None)
            if value is not None and is_tensor(value) and value.ndim in (2, 4):
                return (value, inverted) if _of_these(value, args, kwargs) else None
        return None


def _of_these(mask: Any, args: Any, kwargs: Any) -> bool:
    """Whether the inputs are as long as the mask: a step of decoding has one token, and a mask of all before it."""
    inputs = next((kwargs[name] for name in INPUTS if kwargs.get(name) is not None), args[0] if args else None)
    shape: Sequence[int] = getattr(inputs, "shape", ())
    if len(shape) not in (2, 3) or shape[0] != mask.shape[0]:
        return True  # nothing tells
    return bool(shape[1] == mask.shape[-1])


class Kept(NamedTuple):
    """Something to be read after the window: ``read`` gives counts or None, ``width`` is what was padded to."""

    read: Any
    width: Optional[int]
    inverted: bool = False

    def lengths(self) -> Found:
        """Lengths of the sequences, and what they were padded to; None where they cannot be told."""
        counts = self.read()
        if counts is None:
            return None
        if self.inverted and self.width is not None:
            counts = [self.width - count for count in counts]
        return counts, self.width


def kept_lengths(lengths: Any, padded_to: Optional[int]) -> Optional[Kept]:
    """A tensor of lengths, of one dimension."""
    if lengths.ndim != 1 or lengths.dtype.is_floating_point or lengths.dtype.is_complex:
        return None
    if lengths.device.type == "cpu":
        tensor = _snapshot(lengths)
        return None if tensor is None else Kept(lambda: _values(tensor), padded_to)
    slots = arena.copy([lengths])
    return None if slots is None else Kept(lambda: _only(slots.read()), padded_to)


def kept_mask(mask: Any, inverted: bool) -> Optional[Kept]:
    """A mask whose rows are counted later; None for what no rule of ours reads."""
    square = mask.ndim == 4 and mask.shape[2] != 1
    if mask.ndim == 4 and (mask.shape[1] != 1 or (square and mask.shape[2] != mask.shape[3])):
        return None
    width = int(mask.shape[-1])
    if mask.device.type == "cpu":
        snapshot = _snapshot(mask)
        return None if snapshot is None else Kept(lambda: _counted(snapshot), width, inverted)
    if mask.device.type not in DEVICES or _watched_ops():
        return None
    floating = mask.dtype.is_floating_point
    slots = arena.copy([test for view in _views(mask) for test in _tests(view, floating)])
    if slots is None:
        return None
    return Kept(lambda: _decided(slots.read(), floating, width), width, inverted)


def _watched_ops() -> bool:
    """Whether modes of the job listen to every op: ours are none of theirs."""
    c = _torch()._C
    return any(getattr(c, name, lambda: 0)() for name in ("_len_torch_dispatch_stack", "_len_torch_function_stack"))


def _snapshot(tensor: Any) -> Optional[Any]:
    """What gives the tensor as it is now, later; no op runs before. None where that cannot be."""
    torch = _torch()
    if tensor.layout != torch.strided or tensor.dtype.is_complex:
        return None
    shape, strides, dtype = tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype
    if not tensor.numel():
        return lambda: torch.empty(shape, dtype=dtype)
    # Its place in memory, gaps included: of a mask that was expanded only what there is.
    size = (1 + sum((n - 1) * step for n, step in zip(shape, strides))) * tensor.element_size()  # noqa: B905 - 3.8
    if size <= COPIED:
        data = bytearray(ctypes.string_at(tensor.data_ptr(), size))
        return lambda: torch.frombuffer(data, dtype=dtype).as_strided(shape, strides)
    if tensor.is_inference() or not arena.hold(size):
        return None  # without a counter of versions nobody knows who wrote to it since
    version = tensor._version
    return lambda: tensor.detach() if tensor._version == version else None


def _values(snapshot: Any) -> Optional[List[int]]:
    tensor = snapshot()
    return None if tensor is None else [int(value) for value in tensor.tolist()]


def _counted(snapshot: Any) -> Optional[List[int]]:
    mask = snapshot()
    if mask is None:
        return None
    floating = mask.dtype.is_floating_point
    tests = [test.tolist() for view in _views(mask) for test in _tests(view, floating)]
    return _decided(tests, floating, int(mask.shape[-1]))


def _views(mask: Any) -> List[Any]:
    """(B, L) each: the mask; of a square one the last query's row and the diagonal."""
    if mask.ndim == 2:
        return [mask]
    if mask.shape[2] == 1:
        return [mask[:, 0, 0]]
    return [mask[:, 0, -1], mask[:, 0].diagonal(dim1=1, dim2=2)]


def _tests(view: Any, floating: bool) -> List[Any]:
    """Counts (B) a row: of what is not 0; of floats both of zeros and of what is more."""
    torch = _torch()
    tests = [view == 0, view > 0] if floating else [view if view.dtype == torch.bool else view != 0]
    return [test.sum(-1, dtype=torch.int32) for test in tests]


def _decided(tests: Optional[List[List[int]]], floating: bool, width: int) -> Optional[List[int]]:
    """The keys attended to in each row; None where the tests do not agree on that."""
    if tests is None:
        return None
    if floating:
        zeros, ones = tests[::2], tests[1::2]
        multiplied = any(map(any, ones))  # 0/1; else additive, which holds nothing above 0: that is attended to
        if multiplied and any(a + b != width for i, row in enumerate(zeros) for a, b in zip(row, ones[i])):  # noqa: B905 - Python 3.8
            return None
        tests = ones if multiplied else zeros
    return tests[0] if all(test == tests[0] for test in tests) else None


def _only(read: Optional[List[List[int]]]) -> Optional[List[int]]:
    return None if read is None else read[0]


class Slots(NamedTuple):
    """A part of the page-locked memory: some columns of as many rows."""

    memory: Any
    begin: int
    columns: int
    rows: int

    def read(self) -> Optional[List[List[int]]]:
        """The columns; None where the device has not written all of them yet."""
        end = self.begin + self.columns * self.rows
        values = self.memory[self.begin : end].tolist()
        if _UNREADY in values:
            arena.late()
            return None
        return [values[i * self.rows : (i + 1) * self.rows] for i in range(self.columns)]


class Arena:
    """Page-locked memory that devices write counts to; taken once, before a window, and only where it is wanted."""

    def __init__(self) -> None:
        self.memory: Any = None
        self.wanted = False
        self.used = 0
        self.held = 0

    def ready(self) -> None:
        """Before a window: nothing is used, every slot is unready."""
        self.used = self.held = 0
        if not self.wanted:
            return
        torch = _torch()
        if self.memory is None:
            self.memory = torch.empty(SLOTS, dtype=torch.int32, pin_memory=True)
        self.memory.fill_(_UNREADY)

    def hold(self, size: int) -> bool:
        """Whether a tensor of so many bytes may be kept in this window."""
        self.held += size
        return self.held <= HELD

    def late(self) -> None:
        """A device has still to write: this memory is given away, and another taken before the next window."""
        self.memory = None

    def copy(self, columns: List[Any]) -> Optional[Slots]:
        """Have the device copy columns of counts, in the current stream; None where there is no room."""
        self.wanted = True
        rows = int(columns[0].shape[0])
        slots = Slots(self.memory, self.used, len(columns), rows)
        if self.memory is None or not rows or slots.begin + slots.columns * rows > SLOTS:
            return None
        self.used += slots.columns * rows
        for i, column in enumerate(columns):
            begin = slots.begin + i * rows
            self.memory[begin : begin + rows].copy_(column, non_blocking=True)
        return slots


arena = Arena()
