"""Numbers and names for people."""

from __future__ import annotations

import pytest

from roofwatch.cli.render import text


@pytest.mark.parametrize(
    ("ns", "shown"),
    [
        (None, "–"), (0, "0 s"), (1, "1 ns"), (999, "999 ns"), (999.4, "999 ns"), (999.6, "1.00 µs"),
        (1_000, "1.00 µs"), (9_994, "9.99 µs"), (9_996, "10.0 µs"), (99_960, "100 µs"), (999_499, "999 µs"),
        (999_600, "1.00 ms"), (12_400_000_000, "12.4 s"), (59_900_000_000, "59.9 s"), (60_000_000_000, "1.00 min"),
        (7_200_000_000_000, "2.00 h"), (86_400_000_000_000 * 400, "400 d"),
    ],
)  # fmt: skip
def test_duration(ns: float | None, shown: str) -> None:
    """Three significant digits in the largest unit that keeps one before the point, also where rounding carries."""
    assert text.duration(ns) == shown


@pytest.mark.parametrize(
    ("part", "column", "sentence"),
    [
        (None, "–", "–"), (0.0, "0 %", "0 %"), (0.0000001, "<0.1 %", "<0.01 %"), (0.0012, "0.1 %", "0.12 %"),
        (0.031, "3.1 %", "3.1 %"), (0.0996, "10 %", "10.0 %"), (0.978, "98 %", "97.8 %"), (0.99999, "100 %", "99.9 %"),
        (1.0, "100 %", "100 %"), (1.12, "112 %", "112.0 %"), (-0.0012, "-0.1 %", "-0.12 %"),
    ],
)  # fmt: skip
def test_percent(part: float | None, column: str, sentence: str) -> None:
    """Short in a column; in a sentence a share below one is never told as 100 %."""
    assert text.percent(part) == column
    assert text.percent_fine(part) == sentence


def test_sizes_rates_and_counts() -> None:
    """80 GiB is 80 × 2^30 bytes; 2.039e12 B/s and 312e12 FLOP/s are decimal; counts have their thousands apart."""
    assert text.size(85_899_345_920) == "80.0 GiB"
    assert text.size(1023) == "1023 B"
    assert text.size(None) == "–"
    assert text.rate(2.039e12, "B/s") == "2.04 TB/s"
    assert text.rate(312e12, "FLOP/s") == "312 TFLOP/s"
    assert text.rate(2e15, "FLOP/s") == "2.00 PFLOP/s"
    assert text.rate(2e19, "FLOP/s") == "20,000 PFLOP/s"
    assert text.count(1_234_567) == "1,234,567"
    assert text.plain(153.02) == "153"
    assert text.plain(0.1667) == "0.17"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("aten::add_", "aten::add_"),
        ("c10d::allreduce_", "c10d::allreduce_"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm>(Params)", "Kernel2<cutlass_80_tensorop_s1688gemm>"),
        ("void at::native::(anonymous namespace)::softmax<float, (int)4>(float*, int)", "softmax<float, (int)4>"),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x16", "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD"),
        ("void f(void (*)(int))", "f"),
        ("(weird)", "(weird)"),
        ("", ""),
    ],
)
def test_kernel_names(name: str, short: str) -> None:
    """Return type, namespaces and parameters go; template arguments and operators stay."""
    assert text.kernel(name) == short


def test_cutting_counts_cells() -> None:
    """A double-width character takes two columns, a combining one none, and the mark of the cut takes one."""
    assert text.width("核e\u0301") == 3
    assert text.cut("核核核", 5) == "核核…"
    assert text.cut("核核核", 6) == "核核核"
    assert text.cut("abc def", 5) == "abc…"


def test_parts_are_joined_without_breaking_one() -> None:
    """The first two fit 7 columns, cc starts a line, a part that alone is too long is cut."""
    assert text.joined(["aa", "bb", "cc", "d" * 9], 7) == ["aa · bb", "cc", "d" * 6 + "…"]


@pytest.mark.parametrize(
    ("inputs", "shown"),
    [
        (None, "–"), ([], "–"), ([[], []], "–"), ([[512], []], "512"),
        ([[512], [64, 512], [512, 512], []], "64×512·512×512"),
        ([[[8, 1], [8, 2]], []], "8×1·8×2"), ([[2, 2]] * 5, "2×2·2×2·2×2·2×2·…"), (["x", None, 1.5, [2, 2]], "2×2"),
    ],
)  # fmt: skip
def test_shapes(inputs: list[object] | None, shown: str) -> None:
    """Vectors and scalars go where there is more; lists of tensors are laid out, four operands at most."""
    assert text.shapes(inputs) == shown


def test_a_negative_cost_is_about_nothing() -> None:
    """Noise is no gain; what is unknown stays so, and a positive figure is told as ever."""
    assert [text.lost_share(share) for share in (None, -0.0041, 0.0, 0.0012)] == ["–", "≈ 0 %", "0 %", "0.12 %"]
    assert [text.lost_time(ns) for ns in (None, -56_700_000, 0, 21_300_000)] == ["–", "≈ 0", "0 s", "21.3 ms"]
