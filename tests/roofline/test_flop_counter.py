"""FLOPs of live ops on the CPU, profiled for real, equal torch's own FlopCounterMode, forward and backward."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofwatch.collectors.carriers import cpu_formula, operands
from roofwatch.model.formulas.table import work_of
from roofwatch.model.shapes import Call, call_of

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402 - after the check for torch
from torch.utils.flop_counter import (  # noqa: E402
    FlopCounterMode,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

SMALL = st.integers(1, 7)
EXAMPLES = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PRODUCTS = {"matmul", "addmm", "linear", "convolution", "convolution_backward", "attention", "attention_backward"}


@pytest.fixture(scope="module", autouse=True)
def _few_threads():
    """Two threads: the machine is shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def profiled(work: Callable[[], None]) -> list[Call]:
    """The ops that a piece of work calls, as a real trace records them."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True, acc_events=True) as profile:
        work()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    calls = []
    for event in events:
        if event.get("cat") == "cpu_op":
            args = event["args"]
            keys = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
            call = call_of(event["name"], *(json.dumps(args[k]) if k in args else None for k in keys))
            calls.append(call or Call(event["name"]))
    return calls


def our_flops(work: Callable[[], None]) -> int:
    """FLOPs of the matrix products in a piece of work, by our formulas from its trace."""
    calls = profiled(work)
    inner = operands(calls)
    total = 0
    for call in calls:
        formula = cpu_formula(call, inner)
        if formula is not None and formula.name in PRODUCTS:
            counted = work_of(formula, call)
            assert counted is not None, call
            total += counted.flops
    return total


def check(work: Callable[[], None]) -> None:
    """Our count and torch's of the same work are equal."""
    with FlopCounterMode(display=False) as counter:
        work()
    assert our_flops(work) == counter.get_total_flops()


def trained(function: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> Callable[[], None]:
    """Forward and backward of a function of fresh tensors that all want gradients."""

    def work() -> None:
        inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
        function(*inputs).sum().backward()

    return work


@EXAMPLES
@given(SMALL, SMALL, SMALL)
def test_mm_and_linear(m, k, n):
    """Products of two matrices, and linear layers with a bias."""
    check(trained(torch.mm, (m, k), (k, n)))
    check(trained(functional.linear, (2, m, k), (n, k), (n,)))


@EXAMPLES
@given(SMALL, SMALL, SMALL, SMALL)
def test_bmm_matmul_einsum(b, m, k, n):
    """Batched products, broadcast ones, and einsum's."""
    check(trained(torch.bmm, (b, m, k), (b, k, n)))
    check(trained(torch.matmul, (b, m, k), (k, n)))
    check(trained(lambda x, y: torch.einsum("bij,bjk->bik", x, y), (b, m, k), (b, k, n)))


@EXAMPLES
@given(SMALL, SMALL, SMALL, SMALL)
def test_addmm_and_baddbmm(b, m, k, n):
    """Products added to a matrix, a row, a batch: the addition is not counted by either."""
    check(trained(torch.addmm, (m, n), (m, k), (k, n)))
    check(trained(torch.addmm, (n,), (m, k), (k, n)))
    check(trained(torch.baddbmm, (b, m, n), (b, m, k), (b, k, n)))


@EXAMPLES
@given(
    st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2),
    st.integers(1, 2), st.integers(1, 3), st.booleans(), st.booleans(),
)  # fmt: skip
def test_convolution(  # noqa: PLR0917 - hypothesis names them
    batch, channels, filters, kernel, stride, padding, dilation, rank, transposed, onednn
):
    """Convolutions of 1, 2 and 3 dimensions, plain and transposed, with a bias: forward and all gradients."""
    x = (batch, channels) + (5 + kernel,) * rank
    names = ("conv_transpose", "conv") if transposed else ("conv", "conv_transpose")
    weight = (channels, filters) if transposed else (filters, channels)
    apply = getattr(functional, f"{names[0]}{rank}d")
    padding = min(padding, dilation * (kernel - 1))

    def convolve(x, w, b):
        return apply(x, w, b, stride=stride, padding=padding, dilation=dilation)

    torch.backends.mkldnn.enabled = onednn
    try:
        check(trained(convolve, x, weight + (kernel,) * rank, (filters,)))
    finally:
        torch.backends.mkldnn.enabled = True


@EXAMPLES
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_grouped_convolution_forward(groups, per_group, filters, kernel, transposed):
    """Grouped convolutions, forward only.

    Backward torch counts the grouped weight gradient `groups` times too high.
    """
    channels = groups * per_group
    shape = (channels, filters) if transposed else (groups * filters, per_group)
    apply = functional.conv_transpose2d if transposed else functional.conv2d

    def work() -> None:
        with torch.no_grad():
            apply(torch.randn(2, channels, 6, 6), torch.randn(*shape, kernel, kernel), groups=groups)

    check(work)


@EXAMPLES
@given(st.integers(1, 2), st.integers(1, 3), SMALL, SMALL, st.integers(1, 5))
def test_attention(batch, heads, queries, keys, width):
    """Attention over unequal lengths without a mask, forward and backward.

    On the CPU the mode does not see the fused op, so its own figures for the fused ops of accelerators stand in.
    """
    shape = (batch, heads, queries, width)
    other = (batch, heads, keys, width)
    expected = sdpa_flop_count(shape, other, other) + sdpa_backward_flop_count(shape, shape, other, other)
    assert our_flops(trained(functional.scaled_dot_product_attention, shape, other, other)) == expected


def test_the_work_compared_is_not_nothing():
    """A product of (4,5) and (5,6) counts 240 FLOPs on both sides, backward 480 more."""
    work = trained(torch.mm, (4, 5), (5, 6))
    check(work)
    assert our_flops(work) == 240 + 480


def test_a_transformer_layer_and_its_optimizer():
    """A whole encoder layer in training, dropout and optimizer included: only its products count, and all of them."""
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    optimizer = torch.optim.AdamW(layer.parameters(), fused=False, foreach=True)

    def work() -> None:
        layer(torch.randn(2, 9, 32)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    check(work)


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
