"""What a store takes of a damaged or hostile agent: it may match nothing, but an answer there is."""

from __future__ import annotations

from typing import Any

import pytest
from comparison_scene import LEFT, LEFT_TOO, compared, signature, stat, window

from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Signature
from roofwatch.store.checks import check_signature

HUGE = int("9" * 4000)  # of two of them the product has more digits than Python writes


def answer(what: Signature, bound: Bound = Bound.MEMORY) -> dict[str, Any]:
    """The same on both sides, as a store would take it."""
    check_signature(what)
    sides = (window(device, [stat(what, 10, bound=bound)], name=device.model) for device in (LEFT, LEFT_TOO))
    return compared(*sides)


@pytest.mark.parametrize("told", [{"dtype": ["bf16"]}, {"group_size": {"a": [1]}}, {"dtype": None, "group_size": 1.5}])
def test_a_collective_that_tells_lists(told: dict[str, Any]) -> None:
    """It is equal to itself."""
    what = signature("nccl", Kind.COMM, "c10d::allreduce_", arguments={"collective": "all_reduce", **told})
    assert [r["match"] for r in answer(what, Bound.COMMUNICATION)["rows"]] == ["same"]


@pytest.mark.parametrize(
    "shapes", [[[HUGE, HUGE, 2], [2, 2]], [[10**18] * 3000 + [2], [2, 2]], [[HUGE, 0], [0, HUGE]], [[-HUGE, HUGE]]]
)
def test_tensors_of_more_elements_than_there_are(shapes: list[list[int]]) -> None:
    """Shapes are given as they were told, and nothing is computed from them."""
    for op, kind in (("aten::mm", Kind.MATMUL), ("aten::add", Kind.ELEMENTWISE), ("aten::convolution", Kind.CONV)):
        rows = answer(signature("k", kind, op, shapes, "bf16", flops=8, moved=8, unit="matrix"))["rows"]
        assert [(r["match"], r["shapes"]) for r in rows] == [("same", shapes)]
