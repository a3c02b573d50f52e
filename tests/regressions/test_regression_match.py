"""Which kernels of two sides are the same work."""

from __future__ import annotations

from dataclasses import replace

from regression_scene import kernel

from roofwatch.model.record import Phase, Signature
from roofwatch.model.regression_match import Piece, pieces

A, B, C = kernel(0), kernel(1), kernel(2)


def matched(before: list[Signature], after: list[Signature]) -> list[Piece]:
    """The pieces of two sides."""
    known = {s.id: s for s in (*before, *after)}
    return pieces(known, {s.id for s in before}, {s.id for s in after})


def piece(before: list[Signature], after: list[Signature]) -> Piece:
    """One piece of signatures."""
    return Piece(tuple(sorted(s.id for s in before)), tuple(sorted(s.id for s in after)))


def test_a_signature_is_itself() -> None:
    """What is on both sides is matched by its id, what is on one alone stands alone."""
    found = matched([A, B], [A, C])
    assert set(found) == {piece([A], [A]), piece([B], []), piece([], [C])}
    assert not any(p.changed for p in found)


def test_a_renamed_kernel_of_the_same_work_is_one_piece() -> None:
    """The same op, shapes and dtypes: one piece, not one that vanished and one that is new."""
    renamed = replace(A, kernel="cutlass_0")
    assert set(matched([A, B], [renamed, B])) == {piece([A], [renamed]), piece([B], [B])}
    assert piece([A], [renamed]).changed


def test_other_shapes_are_other_work() -> None:
    """The same kernel name with shapes that are known and differ is not matched; nor is another phase or op."""
    larger = replace(A, shapes="[[8,64],[64,64]]")
    assert set(matched([A], [larger])) == {piece([A], []), piece([], [larger])}
    backward = replace(A, kernel="x", phase=Phase.BACKWARD)
    assert set(matched([A], [backward])) == {piece([A], []), piece([], [backward])}


def test_a_kernel_more_for_the_same_work_is_compared_with_all_of_it() -> None:
    """Before gemm, after gemm and a reduction of the same op: one piece of one for two."""
    reduction = replace(A, kernel="splitk_reduce")
    assert matched([A], [A, reduction]) == [piece([A], [A, reduction])]


def test_only_what_changed_of_an_ops_kernels_is_a_piece() -> None:
    """An op of three kernels of which one gets another name: the two others are themselves."""
    sort, scan, new = (replace(A, kernel=name) for name in ("sort", "scan", "scan_v2"))
    assert set(matched([A, sort, scan], [A, sort, new])) == {
        piece([A], [A]), piece([sort], [sort]), piece([scan], [new]),
    }  # fmt: skip


def test_windows_without_shapes_are_matched_by_name() -> None:
    """Two shapes before, none told after: all of that name are one piece; a name that is only there stays alone."""
    other = replace(A, shapes="[[9,64],[64,64]]")
    bare = replace(A, shapes=None)
    assert matched([A, other], [bare]) == [piece([A, other], [bare])]
    half = matched([A, B], [A, bare, B])  # some windows after have shapes, some do not
    assert set(half) == {piece([A], [A, bare]), piece([B], [B])}
    assert set(matched([A], [replace(B, shapes=None)])) == {piece([A], []), piece([], [replace(B, shapes=None)])}


def test_modules_that_one_side_does_not_tell() -> None:
    """The same kernel in two modules before, in none after."""
    here, there = replace(A, module="layers.*.attn"), replace(A, module="layers.*.mlp")
    assert matched([here, there], [A]) == [piece([here, there], [A])]
    assert len(matched([here], [there])) == 2  # both told, and not the same
