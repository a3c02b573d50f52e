"""FLOPs of live ops on the CPU, profiled for real, equal torch's own FlopCounterMode, forward and backward."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiled_ops import profiled

from roofwatch.collectors.carriers import cpu_formula, operands
from roofwatch.model.formulas.table import FORMULAS, work_of
from roofwatch.model.shapes import call_of

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
pytestmark = pytest.mark.usefixtures("few_threads")


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
