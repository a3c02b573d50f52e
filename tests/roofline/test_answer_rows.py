"""Rows of an answer: what could be won, a range of FLOPs, a collective's bandwidths; and what MFU is made of."""

from __future__ import annotations

import pytest

from roofwatch.collectors.base import Category, RawGroup
from roofwatch.collectors.classify import classify
from roofwatch.collectors.normalize import Normalized
from roofwatch.model.answer_rows import ROW_KEYS, StatSum, rows
from roofwatch.model.diagnosis import standing
from roofwatch.model.diagnosis_report import parts_of
from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Device, Evidence, Peak, Peaks, Phase, Signature, Vendor

H100 = Device(Vendor.NVIDIA, "H100", peaks=Peaks({("bf16", "matrix"): Peak(1e15, "test")}, Peak(2e12, "test")))


def row(signature: Signature, calls: int, total: int, roof_ns: float | None, ridge: float | None) -> dict[str, object]:
    """The one row of one sum."""
    parts = [
        StatSum(
            signature, "H100", calls, total, 2.0 * total, 1, total, Bound.MEMORY, Evidence.SHAPES,
            None if roof_ns is None else roof_ns * calls, ridge,
        )
    ]  # fmt: skip
    (found,) = rows(parts)
    assert tuple(found) == ROW_KEYS
    return found


def raw(kernel: str, calls: int, total: int, category: Category = Category.KERNEL) -> RawGroup:
    """A group of one kernel."""
    return RawGroup(
        0, kernel, category, None, None, None, None, None, Phase.NONE, None, backlog=False, linked=True, calls=calls,
        total_ns=total, min_ns=1, max_ns=total, histogram=Histogram(),
    )  # fmt: skip


def test_a_row_of_windows_before_and_after_its_device_was_measured() -> None:
    """3000 ns (6000 estimated) without a roof and 1000 (2000) at 40 % of it: bound by memory, 2000 x 0.6 winnable."""
    g = Signature("k", Kind.NORM)
    before = StatSum(g, "CPU", 3, 3000, 6000.0, 1000, 1000, Bound.UNKNOWN, Evidence.NONE, None, None)
    after = StatSum(g, "CPU", 1, 1000, 2000.0, 1000, 1000, Bound.MEMORY, Evidence.SHAPES, 400.0, 5.0)
    for parts in ([before, after], [after, before]):
        (found,) = rows(parts)
        assert (found["bound"], found["evidence"], found["ridge"]) == ("memory", "shapes", 5.0)
        assert (found["roof_fraction"], found["roofed_share"], found["winnable_ns"]) == (0.4, 0.25, 1200)
        assert found["est_ns"] == 8000
        judged = standing((g.id, "CPU"), parts_of(parts), cpu=True)
        assert (judged.bound, judged.fraction) == (Bound.MEMORY, 0.4)
        assert (judged.winnable_ns, judged.unknown_ns) == (1200.0, 6000.0)
    assert rows([before])[0]["roofed_share"] == 0.0


def test_winnable_is_the_time_above_the_roof() -> None:
    """10 calls in 1000 ns with a roof of 40 ns: 40 % of the roof; of the estimated 2000 ns 60 % = 1200 are winnable."""
    found = row(Signature("k", Kind.NORM, flops=10, bytes=80), 10, 1000, 40.0, 500.0)
    assert found["roof_fraction"] == pytest.approx(0.4)
    assert found["winnable_ns"] == 1200
    assert row(Signature("k", Kind.NORM), 10, 1000, None, None)["winnable_ns"] is None
    assert row(Signature("k", Kind.NORM, flops=10, bytes=80), 10, 1000, 110.0, 5.0)["winnable_ns"] == 0


def test_range_of_flops() -> None:
    """Ridge 500 FLOP/B. 200 … 4000 FLOPs on 2 bytes: intensity 100 … 2000, so memory … compute.

    At the lower end the roof time is the memory time; at the upper 2000 / 500 = 4 times as long: a roof fraction of 0.1
    becomes 0.4.
    """
    found = row(Signature("k", Kind.ATTENTION, flops=200, bytes=2, flops_max=4000), 1, 1000, 100.0, 500.0)
    assert found["bound_range"] == ["memory", "compute"]
    assert found["roof_fraction_max"] == pytest.approx(0.4)
    exact = row(Signature("k", Kind.ATTENTION, flops=200, bytes=2), 1, 1000, 100.0, 500.0)
    assert (exact["flops_max"], exact["roof_fraction_max"], exact["bound_range"]) == (None, None, None)


def test_range_whose_ends_are_both_compute() -> None:
    """Intensity 1000 … 3000 over a ridge of 500: 2 … 6 memory times; a fraction of 0.2 becomes 0.6."""
    found = row(Signature("k", Kind.ATTENTION, flops=2000, bytes=2, flops_max=6000), 1, 1000, 200.0, 500.0)
    assert found["bound_range"] == ["compute", "compute"]
    assert found["roof_fraction_max"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("arguments", "algbw", "busbw"),
    [
        # 1 GiB in 10 ms: 1073741824 / 0.01 = 107.3741824 GB/s; an all-reduce of 8 sends 2·7/8 of it
        ('{"collective":"all_reduce","group_size":8}', 107.3741824e9, 187.9048192e9),
        ('{"collective":"all_gather","group_size":4}', 107.3741824e9, 80.5306368e9),
        # a root of 4 gets, or gives, all parts but its own: 3/4
        ('{"collective":"gather","group_size":4}', 107.3741824e9, 80.5306368e9),
        ('{"collective":"scatter","group_size":4}', 107.3741824e9, 80.5306368e9),
        ('{"collective":"all_to_all","group_size":4}', 107.3741824e9, 80.5306368e9),
        ('{"collective":"reduce_scatter","group_size":4}', 107.3741824e9, 80.5306368e9),
        ('{"collective":"broadcast","group_size":4}', 107.3741824e9, 107.3741824e9),
        ('{"collective":"reduce","group_size":4}', 107.3741824e9, 107.3741824e9),
        ('{"collective":"send","group_size":4}', 107.3741824e9, 107.3741824e9),
        ('{"collective":"recv","group_size":4}', 107.3741824e9, 107.3741824e9),
        ('{"collective":"something_new","group_size":4}', 107.3741824e9, None),
        ('{"collective":"all_reduce"}', 107.3741824e9, None),
        (None, None, None),
    ],
)
def test_bandwidths_of_a_collective(arguments: str | None, algbw: float | None, busbw: float | None) -> None:
    """Bytes/s of the message and over the links; without group size only the first, without arguments neither."""
    signature = Signature("ncclKernel", Kind.COMM, arguments=arguments, bytes=1 << 30)
    found = row(signature, 2, 20_000_000, None, None)
    assert found["algbw"] == (None if algbw is None else pytest.approx(algbw))
    assert found["busbw"] == (None if busbw is None else pytest.approx(busbw))


def test_model_sums_are_of_products_only() -> None:
    """2 calls of 1e9 FLOPs at 1e15 FLOP/s: 2 µs at peak, of 10. Neither a norm nor a product of unknown FLOPs counts.

    The unknown product's 5 µs are model time without known FLOPs: MFU is then a lower bound (known share 10 / 15).
    """
    gemm = Signature("gemm", Kind.MATMUL, flops=10**9, bytes=10**6, formula="matmul", precision="bf16", unit="matrix")
    norm = Signature("norm", Kind.NORM, flops=10**9, bytes=10**6, formula="norm", precision="bf16", unit="matrix")
    items = [
        Normalized(raw("gemm", 2, 10_000), gemm),
        Normalized(raw("norm", 1, 3_000), norm),
        Normalized(raw("other", 1, 5_000), Signature("other", Kind.MATMUL)),
    ]
    _, ledger = classify(items, [H100])
    assert (ledger.model_ns, ledger.model_known_ns) == (15_000, 10_000)
    assert (ledger.model_flops, ledger.model_peak_ns) == (2 * 10**9, 2_000)


def test_range_across_the_ridge_has_no_one_bound() -> None:
    """Ridge 1e15 / 2e12 = 500. 1e9 … 1e12 FLOPs on 1e8 bytes: intensity 10 … 10,000; the time is not classified.

    With an upper end of 4e10 (intensity 400) both ends are memory bound: that is the verdict.
    """
    wide = Signature("a", Kind.ATTENTION, flops=10**9, bytes=10**8, formula="varlen", precision="bf16", unit="matrix",
                     flops_max=10**12)  # fmt: skip
    narrow = Signature("b", Kind.ATTENTION, flops=10**9, bytes=10**8, formula="varlen", precision="bf16", unit="matrix",
                       flops_max=4 * 10**10)  # fmt: skip
    stats, ledger = classify([Normalized(raw("a", 1, 90_000), wide), Normalized(raw("b", 1, 80_000), narrow)], [H100])
    assert [(s.bound, s.roof_ns) for s in stats] == [(Bound.UNKNOWN, 50_000.0), (Bound.MEMORY, 50_000.0)]
    assert (ledger.classifiable_ns, ledger.classified_ns) == (170_000, 80_000)
