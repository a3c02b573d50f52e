"""Bytes of live ops on the CPU, profiled for real, equal those of torch's own tensors, each counted once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from profiled_ops import profiled

from roofwatch.collectors.carriers import cpu_formula, operands
from roofwatch.model.formulas.table import work_of

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402 - after the check for torch

pytestmark = pytest.mark.usefixtures("few_threads")


def counted_bytes(work: Callable[[], object]) -> int:
    """Bytes of everything in a piece of work that is not a view or a wrapper, tensors of one element aside."""
    calls = profiled(lambda: (work(), None)[1])
    inner = operands(calls)
    works = [work_of(f, call) for call in calls if (f := cpu_formula(call, inner)) is not None]
    return sum(w.bytes for w in works if w is not None and w.bytes > 64)


SHAPE, ONE = (64, 32), 64 * 32 * 4
ONCE: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], object], int]] = {
    # how torch calls an op from another, or from itself, must not count it twice: bytes by hand, ONE is one tensor's
    "abs": (lambda x, _: x.abs(), 2 * ONE),
    "logical_and": (torch.logical_and, 2 * ONE + ONE // 4),
    "logical_not": (lambda x, _: torch.logical_not(x), ONE + ONE // 4),
    "nan_to_num": (lambda x, _: torch.nan_to_num(x), 2 * ONE),
    "hardtanh": (lambda x, _: functional.hardtanh(x), 2 * ONE),
    "relu6": (lambda x, _: functional.relu6(x), 2 * ONE),
    "celu": (lambda x, _: functional.celu(x), 2 * ONE),
    "prelu": (lambda x, y: functional.prelu(x, y[0]), 2 * ONE + 128),
    "isnan": (lambda x, _: torch.isnan(x), 2 * ONE + ONE // 4),  # x ≠ x: that both operands are one, no trace tells
    "rsub": (torch.rsub, 3 * ONE),
    "power of a number": (lambda x, _: torch.pow(2, x), 2 * ONE),
    "maximum of two": (torch.max, 3 * ONE),
    "where with a number": (
        lambda x, y: torch.where(x.bool(), y, 0.0),
        2 * (ONE + ONE // 4) + ONE,
    ),  # and the cast to bool
    "matrix times vector": (lambda x, y: x @ y[0], ONE + 128 + 256),
    "variance": (lambda x, _: x.var(1), ONE + 256),
    "zero_ of many": (lambda x, _: x.new_empty(512, 128).zero_(), 512 * 128 * 4),
}


@pytest.mark.parametrize("name", ONCE)
def test_an_ops_work_is_counted_once(name):
    """However many records torch makes of it: the calls that only forward to another have none of their own."""
    work, expected = ONCE[name]
    x, y = torch.randn(SHAPE), torch.randn(SHAPE)
    assert counted_bytes(lambda: work(x, y)) == expected


def test_a_sort_is_counted_once_whatever_it_is_called_by():
    """Argsort, sort, stable sort: three records, one sort: x read, values and int64 indices written."""
    x = torch.randn(SHAPE)
    for work in (x.argsort, x.sort, lambda: x.sort(dim=1, stable=True)):
        calls = profiled(lambda work=work: (work(), None)[1])
        inner = operands(calls)
        sorts = [w for c in calls if (f := cpu_formula(c, inner)) and f.name == "sort" and (w := work_of(f, c))]
        assert [w.bytes for w in sorts] == [ONE + ONE + 2 * ONE]


DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64,
)  # fmt: skip


def _filled(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.full(shape, 2, dtype=torch.float32).to(dtype)


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _traced(operations: list[Callable[[], torch.Tensor]], names: set[str]) -> list[int | None]:
    """Bytes of the records with these names, forwarding calls aside; each operation must make exactly one."""
    calls = profiled(lambda: [operation() for operation in operations] and None)
    inner = operands(calls)
    found = [(f, c) for c in calls if c.op in names and (f := cpu_formula(c, inner)) and f.name != "wrapper"]
    assert len(found) == len(operations)
    return [w.bytes if (w := work_of(f, c)) is not None else None for f, c in found]


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", ["add", "mul", "maximum", "div", "pow", "eq"])
def test_results_have_the_dtype_that_torch_gives_them(name):
    """Bytes of all pairs of dtypes, full and 0-dim second operand, equal those of torch's own tensors, or are unknown.

    Unknown are only complex results of ops that have no count of operations for them. Left out are 0-dim doubles, which
    a trace does not tell from Python's floats.
    """
    function, operations, expected, complex_ = getattr(torch, name), [], [], []
    for one in DTYPES:
        for other in DTYPES:
            for shape in ((5,), ()):
                x, y = _filled((4, 5), one), _filled(shape, other)
                if not shape and other is torch.float64:
                    continue
                try:
                    out = function(x, y)
                except RuntimeError:
                    continue  # an op that these dtypes do not have
                operations.append(lambda x=x, y=y: function(x, y))
                expected.append(_size(x) + (_size(y) if shape else 0) + _size(out))
                complex_.append(x.is_complex() or y.is_complex())
    counted = _traced(operations, {f"aten::{name}"})
    assert len(counted) > 150
    for ours, torchs, unknown in zip(counted, expected, complex_, strict=True):
        assert ours == torchs or (ours is None and unknown)


@pytest.mark.parametrize("name", ["sum", "prod", "amax", "var", "any", "argmax", "cumsum", "cumprod"])
def test_results_of_reductions_have_the_size_that_torch_gives_them(name):
    """Bytes of a reduction along a dimension, for all dtypes it takes, equal those of torch's own tensors."""
    operations, expected = [], []
    for dtype in DTYPES[:-1]:
        x = _filled((4, 5), dtype)
        try:
            out = getattr(torch, name)(x, dim=1)
        except RuntimeError:
            continue
        operations.append(lambda x=x: getattr(torch, name)(x, dim=1))
        expected.append(_size(x) + _size(out))
    assert len(operations) >= 4
    assert _traced(operations, {f"aten::{name}"}) == expected
