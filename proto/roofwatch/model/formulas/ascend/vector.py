"""Kernels that go over their tensors once, on the vector cores: FLOPs an element, all inputs and outputs once.

FLOPs an element are those of the same op elsewhere (``formulas.norm``, ``elementwise``, ``optimizer``): the operations
in its formula text. Integer and logical work has none.
"""

from __future__ import annotations

import re

from roofwatch.model.formulas.ascend.operands import Count, KernelCall, moved
from roofwatch.model.formulas.base import Work
from roofwatch.model.formulas.elementwise import ARITHMETIC


def streaming(flops: int) -> Count:
    """``flops`` for each element of the largest tensor; 0 where nothing is a float."""

    def count(call: KernelCall) -> Work | None:
        size = moved(call)
        floating = any(o.floating for o in (*call.inputs, *call.outputs))
        return None if size is None else Work(flops * call.largest if floating else 0, size)

    return count


# Name of the type, lower case, without version → FLOPs an element. ``$`` ends a name; without it more may follow.
_NORMS = (
    (r"(inplace)?addrmsnorm|rmsnormdynamicquant", 5),  # the sum 1, norm 4
    (r"rmsnormgrad", 9),  # dx 7, dγ 2
    (r"rmsnorm", 4),
    (r"addlayernormgrad|layernormgrad", 13),  # dx 10, dγ 2, dβ 1
    (r"layernormxbackprop", 10),
    (r"layernormbetagammabackprop", 5),
    (r"(inplace)?addlayernorm|deepnorm", 9),
    (r"layernorm", 8),
    (r"(group|batch|instance)norm\w*grad", 13),
    (r"(group|batch|instance)norm", 8),
    (r"bntrainingreducegrad|bntrainingupdategrad|bninfergrad", 5),
    (r"bn(training|infer)", 4),
    (r"in(training|infer)", 4),
)
_SOFTMAX = (
    (r"\w*softmax\w*grad", 4),
    (r"(scaled)?maskedsoftmax", 6),
    (r"(log)?softmax", 5),
)
_ACTIVATIONS = (
    (r"(fast)?gelugrad|gelugrad", 9),
    (r"(fast)?gelu", 5),
    (r"(silu|swish)grad", 7),
    (r"silu|swish", 4),
    (r"sigmoidgrad|tanhgrad", 3),
    (r"sigmoid", 3),
    (r"(hardswish|mish|softplus)", 4),
    (r"(leaky|p)?relu|tanh|(s|c)?elu|hard|threshold", 1),
)
_ROPE = ((r"rotary|rope|applyrotary|interleaverope", 3),)  # x·cos ± y·sin
_REDUCTIONS = (
    (r"lpnorm|l2loss|squaresum|l2normalize", 2),
    (r"reduce(std|var)|reducevar|std", 4),
    (r"logsumexp|reducelogsumexp", 3),
    (r"reduceany|reduceall|isallzero", 0),
    (r"reduce|argmax|argmin|cum", 1),
)
_LOSSES = (
    (r"softmaxcrossentropy|sparsesoftmaxcrossentropy|crossentropyloss", 8),
    (r"(mse|l1|smoothl1|huber)loss", 3),
    (r"(bce|binarycrossentropy|sigmoidcrossentropy|kldiv)", 7),
)
_POOLS = ((r"adaptive(avg|max)pool|(max|avg)pool|pool", 1),)  # of each input element at least one comparison or sum
_MOVES = (
    (r"cast", 0),
    (r"transdata|transpose|confusiontranspose", 0),
    (r"tensormove|viewcopy|memcpy|identity", 0),
    (r"concat|pack|stack|tile|broadcast|tri[lu]|(mirror|constant)?pad|reverse|roll|expand|flip|repeat|diag", 0),
    (r"split|unpack|unstack", 0),
    (r"nonzero|sort|topk|unique|searchsorted|bucketize", 0),
    (r"dropoutdomask", 1),
    (r"dropoutgenmask|dropoutv", 2),
    (r"(ascend|dynamic|group)?(anti|de)?quant", 2),
    (r"moetoken|moeinitrouting|moefinalizerouting|moegating|moecompute|moererouting", 0),
    (r"resize|upsample", 0),
    (r"select|masked(fill|scale)|where", 0),
)
_COMPARES = r"equal|greater|less|logical|bitwise|not|invert|is(nan|inf|finite|close)|sign(bit)?$|leftshift|rightshift"
_MORE = {
    "adds": 1, "muls": 1, "divs": 1, "subs": 1, "pows": 1, "realdiv": 1, "axpy": 2, "axpyv": 2, "addn": 1, "addcmul": 3,
    "addcdiv": 3, "lerp": 3, "squareddifference": 2, "clipbyvalue": 2, "maximum": 1, "minimum": 1, "mulnonan": 1,
    "divnonan": 1, "floormod": 3, "floordiv": 2, "xlogy": 2, "xdivy": 2, "rint": 1, "inv": 1, "axpys": 2,
    "accumulatenv": 1, "cosh": 1,
}  # fmt: skip


def _rules(*tables: tuple[tuple[str, int], ...]) -> tuple[tuple[re.Pattern[str], Count], ...]:
    return tuple((re.compile(pattern, re.IGNORECASE), streaming(flops)) for table in tables for pattern, flops in table)


RULES = _rules(_NORMS, _LOSSES, _SOFTMAX, _ACTIVATIONS, _ROPE, _REDUCTIONS, _POOLS, _MOVES)
_COMPARE = re.compile(_COMPARES, re.IGNORECASE)
_VERSION = re.compile(r"(v\d{1,2}|d|ext2)$")
_ARITHMETIC = {name: flops for name, (_, flops) in ARITHMETIC.items() if not name.startswith("_")} | _MORE


def elementwise(name: str) -> Count | None:
    """The count of an elementwise type by its name in lower case, or None."""
    plain = _VERSION.sub("", name) if name not in _ARITHMETIC else name
    if plain in _ARITHMETIC:
        return streaming(_ARITHMETIC[plain])
    backward = plain.removesuffix("grad")
    if backward != plain and backward in _ARITHMETIC:
        return streaming(2 * _ARITHMETIC[backward])
    return streaming(0) if _COMPARE.match(plain) else None
