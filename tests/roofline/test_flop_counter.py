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
from roofwatch.model.formulas.table import FORMULAS, work_of
from roofwatch.model.shapes import Call, call_of

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402 - after the check for torch
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import (  # noqa: E402
    FlopCounterMode,
    flop_registry,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

SMALL = st.integers(1, 7)
EXAMPLES = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PRODUCTS = {
    "matmul", "addmm", "linear", "convolution", "convolution_backward", "attention", "attention_backward", "scaled_mm",
    "grouped_mm",
}  # fmt: skip


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
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2),
    st.booleans(),
)  # fmt: skip
def test_grouped_convolution(groups, per_group, filters, kernel, rank, stride, transposed):
    """Grouped convolutions of 1, 2 and 3 dimensions, forward, and backward less what torch counts too often.

    The gradient of the weight is a convolution as large as the forward one; torch counts it `groups` times.
    """
    channels = groups * per_group
    x = (2, channels, *(3 + kernel,) * rank)
    weight = ((channels, filters) if transposed else (groups * filters, per_group)) + (kernel,) * rank
    apply = getattr(functional, f"conv_transpose{rank}d" if transposed else f"conv{rank}d")

    def forward() -> None:
        with torch.no_grad():
            apply(torch.randn(x), torch.randn(weight), stride=stride, groups=groups)

    work = trained(lambda a, b: apply(a, b, stride=stride, groups=groups), x, weight)
    check(forward)
    once = our_flops(forward)
    with FlopCounterMode(display=False) as counter:
        work()
    assert our_flops(work) == 3 * once == counter.get_total_flops() - (groups - 1) * once


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


@EXAMPLES
@given(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), SMALL, SMALL, st.integers(1, 5))
def test_attention_with_fewer_heads_of_keys(batch, heads, share, queries, keys, width):
    """Grouped-query and multi-query attention: FLOPs by the query's heads, forward (torch's own figure)."""
    q, kv = (batch, heads * share, queries, width), (batch, heads, keys, width)

    def work() -> None:
        with torch.no_grad():
            k = torch.randn(kv)
            functional.scaled_dot_product_attention(torch.randn(q), k, k, enable_gqa=True)

    assert our_flops(work) == sdpa_flop_count(q, kv, kv)


@EXAMPLES
@given(st.integers(1, 2), st.integers(1, 3), SMALL, SMALL, st.integers(1, 5), st.booleans())
def test_attention_by_its_products(batch, heads, queries, keys, width, causal):
    """Attention as two products and a softmax, forward and backward: the mode sees the products, and we do."""
    shapes = ((batch, heads, queries, width), (batch, heads, keys, width), (batch, heads, keys, width))

    def attend(q, k, v):
        with sdpa_kernel(SDPBackend.MATH):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    check(trained(attend, *shapes))


@EXAMPLES
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4), st.booleans())
def test_packed_attention_lies_in_its_range(lengths, alike):
    """Torch reads the cumulative lengths and counts exactly; a trace lacks them: the range must hold torch's count."""
    pairs = [(q, q) if alike else (q, k) for q, k in lengths]
    queries, keys = (torch.tensor([0, *column]).cumsum(0).int() for column in zip(*pairs, strict=True))
    longest = [max(column) for column in zip(*pairs, strict=True)]
    q, k = torch.empty(int(queries[-1]), 2, 8), torch.empty(int(keys[-1]), 2, 8)
    exact = flop_registry[torch.ops.aten._flash_attention_forward](
        q, k, k, queries, keys, *longest, 0.0, False, False, out_val=None
    )
    dims = [list(q.shape), *[list(k.shape)] * 2, *[[len(pairs) + 1]] * 2, *[[]] * 5]
    types = ["float"] * 3 + ["int"] * 2 + ["Scalar"] * 5
    concrete = [""] * 5 + [*map(str, longest), "0.", "False", "False"]
    call = call_of("aten::_flash_attention_forward", *map(json.dumps, (dims, types)), None, json.dumps(concrete))
    assert call is not None
    found = work_of(FORMULAS[call.op], call)
    assert found is not None
    assert found.flops <= exact <= (found.flops if found.flops_max is None else found.flops_max)


SIXTEENS = st.integers(1, 3).map(lambda n: 16 * n)


@EXAMPLES
@given(SIXTEENS, SIXTEENS, SIXTEENS)
def test_scaled_mm(m, k, n):
    """Products in fp8 with a scale each: the processor's own, or of floats made of them where it has none."""
    one = torch.tensor(1.0)

    def work() -> None:
        a, b = torch.randn(m, k).to(torch.float8_e4m3fn), torch.randn(n, k).to(torch.float8_e4m3fn)
        torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)

    check(work)


@EXAMPLES
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), SMALL, SMALL)
def test_grouped_products_are_their_groups_products(sizes, k, n):
    """A grouped product does as much as its groups' products, which the CPU runs one by one, whatever the groups."""
    rows, k, n = sum(sizes), 8 * k, 8 * n
    a, b = torch.randn(rows, k).bfloat16(), torch.randn(len(sizes), k, n).bfloat16()
    offsets = torch.tensor(sizes).cumsum(0).int()
    calls = profiled(lambda: (torch._grouped_mm(a, b, offs=offsets), None)[1])
    whole = [w for c in calls if c.op == "aten::_grouped_mm" and (w := work_of(FORMULAS[c.op], c))]
    groups = [w for c in calls if c.op == "aten::mm" and (w := work_of(FORMULAS[c.op], c))]
    assert [w.flops for w in whole] == [sum(w.flops for w in groups)] == [2 * rows * k * n]
    assert our_flops(lambda: (torch._grouped_mm(a, b, offs=offsets), None)[1]) == 2 * rows * k * n  # counted once


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
