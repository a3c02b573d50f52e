"""What is remembered of a signature changes no answer, and the short way to a piece gives the same piece."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from comparison_scene import LEFT, RIGHT, compared, signature, stat, window
from hypothesis import given, settings
from hypothesis import strategies as st
from test_adds_up import kernels, unique

from roofwatch.model import comparison_content
from roofwatch.model.answer_rows import StatSum, sums_of
from roofwatch.model.comparison_content import Content, contents_of
from roofwatch.model.comparison_pieces import MODEL_KINDS, _several, pieces_of
from roofwatch.model.comparison_sums import columns_of
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, KernelStat, Phase, Vendor, Window


def scene(*, swapped: bool = False) -> tuple[Window, Window]:
    """A product, an optimizer's addition and a copy on both sides."""
    stats = [
        stat(signature("k", Kind.MATMUL, "aten::mm", [[64, 128], [128, 256]], "bf16", flops=1 << 22, moved=9), 9, 3),
        stat(signature("a", Kind.ELEMENTWISE, "aten::add", [[64, 64]], "fp32", phase=Phase.OPTIMIZER), 70, 2),
        stat(signature("Memcpy HtoD (x)", Kind.COPY_FILL), 30, bound=Bound.COPY),
    ]  # fmt: skip
    sides = window(LEFT, stats, name="l"), window(RIGHT, [replace(s, total_ns=2 * s.total_ns) for s in stats], name="r")
    return (sides[1], sides[0]) if swapped else sides


def content_of(s: StatSum, vendor: Vendor | None, *, phases: bool) -> Content:
    """What is known of a sum's signature."""
    return contents_of([s.signature], [s.bound], vendor, phases=phases)[0]


def test_an_answer_depends_on_nothing_that_was_asked_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """One signature on two vendors, with phases told and not: in any order, and with no room at all."""
    fresh: dict[bool, Any] = {}
    for swapped in (False, True):
        comparison_content._known.clear()  # a process that was started just now
        fresh[swapped] = compared(*scene(swapped=swapped))
    kept = {swapped: scene(swapped=swapped) for swapped in (False, True)}
    for most in (comparison_content.MOST, 1):
        monkeypatch.setattr(comparison_content, "MOST", most)
        comparison_content._known.clear()
        assert [compared(*kept[swapped]) for swapped in (True, False, False, True)] == [
            fresh[swapped] for swapped in (True, False, False, True)
        ]
    assert sum(map(len, comparison_content._known.values())) == 1


def test_what_is_known_of_a_signature_is_of_its_vendor() -> None:
    """The same type is layout tax on Ascend, and a kernel like any other elsewhere."""
    one = sums_of(window(LEFT, [stat(signature("TransData", Kind.LAYOUT, "aten::mm"), 10)]))[0]
    told = [content_of(one, vendor, phases=False).key for vendor in (Vendor.ASCEND, Vendor.NVIDIA) * 2]
    assert [tax for _, _, tax, *_ in told] == [True, False, True, False]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(kernels(LEFT), kernels(RIGHT))
def test_the_piece_of_one_sum_is_that_of_several_of_which_there_is_one(ours: KernelStat, theirs: KernelStat) -> None:
    """Counted or not, of calls outside of steps, copies and collectives."""
    for s in (*sums_of(window(LEFT, [ours])), *sums_of(window(RIGHT, [theirs]))):
        for stepping in (False, True):
            content, calls = content_of(s, s.vendor, phases=True), s.step_calls if stepping else s.calls
            roof_ns = None if s.roof_total_ns is None else s.roof_total_ns * calls / s.calls
            part = s.step_ns if stepping else s.total_ns, calls, roof_ns, content
            found = pieces_of(columns_of([s]), s.vendor, stepping=stepping, phases=True)
            assert list(found) == ([_several([part])] if part[0] else [])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(kernels(RIGHT), max_size=8), st.booleans())
def test_columns_tell_what_their_pieces_do(stats: list[KernelStat], stepping: bool) -> None:
    """Time by sort, time without shapes, products, training: as of the objects, one by one."""
    sums = columns_of(sums_of(window(RIGHT, unique(stats))))
    pieces = pieces_of(sums, RIGHT.vendor, stepping=stepping, phases=True)
    told = list(pieces)
    assert pieces.total() == sum(p.ns for p in told)
    for sort in ("compute", "copy", "communication"):
        assert pieces.total(sort) == sum(p.ns for p in told if p.sort == sort)
    assert pieces.shapeless() == sum(p.ns for p in told if p.sort == "compute" and p.shapes is None)
    products = [p for p in told if p.kind in MODEL_KINDS and p.sort == "compute"]
    columns = zip(*((p.ns, p.calls, p.flops, p.precision, p.weights) for p in products), strict=True)
    assert tuple(map(tuple, pieces.products())) == (tuple(columns) or ((),) * 5)
    assert pieces.training == any(p.training for p in told)
    assert [(p.ns, p.calls, p.roof_ns, p.key) for p in told] == [
        (*of[:3], of[3].key) for of in zip(pieces.ns, pieces.calls, pieces.roofs, pieces.contents, strict=True)
    ]
