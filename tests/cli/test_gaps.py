"""Examples of idle stretches in few columns: place and length stay, the kernel gives way in its middle."""

from __future__ import annotations

import pytest

from roofwatch.cli.render import gaps, text

KERNEL = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4>(cutlass_80::Params)"
PLACE = "at 1.377 ms, a gap of 0.248 ms"


def test_only_the_kernel_is_shortened() -> None:
    """80 columns less "in aten::linear, before " (24) and "; at 1.377 ms, a gap of 0.248 ms" (32) are 24."""
    shown = gaps.told(f"in aten::linear, before {KERNEL}; {PLACE}", 80)
    assert shown == [f"in aten::linear, before Kernel2<cutl…_tn_align4>; {PLACE}"]


def test_what_leaves_the_kernel_no_room_has_a_line_of_its_own() -> None:
    """Nothing of a long first part is lost, the kernel stands in the second line with its place."""
    what = "the device had run dry after cudaStreamSynchronize, and the host took 0.445 ms"
    assert gaps.told(f"{what}, before nvjet_tst_128x256; {PLACE}", 80) == [
        f"{what},",
        f"before nvjet_tst_128x256; {PLACE}",
    ]


def test_what_has_no_kernel_is_cut_inside() -> None:
    """Both ends stay; what fits stays whole, control characters do not."""
    assert gaps.told("in enumerate(DataLoader)#__next__", 80) == ["in enumerate(DataLoader)#__next__"]
    assert gaps.told("between aten::add and aten::mul", 16) == ["between…en::mul"]
    assert gaps.told("in \x1b[2J, before a; at 1 ms", 80) == ["in ?[2J, before a; at 1 ms"]


@pytest.mark.parametrize("room", [20, 40, 75, 120])
@pytest.mark.parametrize(
    "example",
    [f"in {'x' * 300}, before {'k' * 300}; {PLACE}", "核" * 200, f"in a, before {'核' * 99}; {PLACE}"],
)
def test_no_line_is_wider_than_the_room(example: str, room: int) -> None:
    """Whatever the names are."""
    assert all(text.width(line) <= room for line in gaps.told(example, room))
