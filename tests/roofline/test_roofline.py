"""The roofline's rules, on figures worked out by hand."""

from __future__ import annotations

import pytest

from roofwatch.model.record import Bound, Evidence, Peak, Peaks
from roofwatch.model.roofline import attainable, exceeded, judge, ridge_of, roof_time_ns

GEMM = (137_438_953_472, 100_663_296)  # 4096³ in fp16: FLOPs, bytes


def peaks(pi: float, beta: float, key: tuple[str, str] = ("fp16", "matrix")) -> Peaks:
    """A device of one peak and a bandwidth."""
    return Peaks({key: Peak(pi, "datasheet")}, Peak(beta, "datasheet"))


ARTICLE = peaks(312e12, 2.0e12)


def test_ridge_of_the_article():
    """312e12 / 2.0e12 = 156 FLOP per byte; a precision nobody gave has none."""
    assert ridge_of(ARTICLE, "fp16", "matrix") == 156.0
    assert ridge_of(ARTICLE, "fp64", "matrix") is None
    assert ridge_of(Peaks(), "fp16", "matrix") is None


def test_attainable():
    """At I = 100 the memory roof 2.0e14 holds, at I = 1365 the compute roof 3.12e14."""
    assert attainable(100.0, 312e12, 2.0e12) == 2.0e14
    assert attainable(1365.0, 312e12, 2.0e12) == 312e12


def test_gemm_of_the_article_is_compute_bound():
    """137.4e9 / 312e12 = 440,509 ns against 100.7e6 / 2e12 = 50,332 ns: compute.

    Measured in 600 µs a roof fraction of 0.734.
    """
    verdict = judge(*GEMM, 600_000.0, ARTICLE, precision="fp16", unit="matrix")
    assert verdict.bound is Bound.COMPUTE
    assert verdict.evidence is Evidence.SHAPES
    assert verdict.roof_ns == pytest.approx(440_509.5, rel=1e-6)
    assert verdict.ridge == 156.0


def test_layer_norm_is_memory_bound():
    """8 FLOPs over 8 B an element in fp32: intensity 1, far below 19.5e12 / 2e12 = 9.75: memory."""
    n = 1 << 24
    verdict = judge(8 * n, 8 * n, 100_000.0, peaks(19.5e12, 2e12, ("fp32", "vector")), precision="fp32", unit="vector")
    assert verdict.bound is Bound.MEMORY
    assert verdict.roof_ns == pytest.approx(8 * n / 2e12 * 1e9)


@pytest.mark.parametrize(
    ("mean_ns", "blocks", "bound"),
    [
        (9_999.0, None, Bound.LATENCY),  # short, and 1,000 ns at the roof is a tenth of it
        (10_000.0, None, Bound.MEMORY),  # not short
        (10_000.0, 107, Bound.LATENCY),  # fewer blocks than the 108 units
        (10_000.0, 108, Bound.MEMORY),
        (3_000.0, 1, Bound.MEMORY),  # a third of the roof: the ceiling explains the time
    ],
)
def test_latency(mean_ns, blocks, bound):
    """2,000,000 B at 2 TB/s take 1,000 ns at the roof: latency below 0.3 of it, if short or too narrow."""
    verdict = judge(0, 2_000_000, mean_ns, ARTICLE, precision=None, unit=None, blocks=blocks, units=108)
    assert verdict.bound is bound


def test_no_work_is_the_hosts():
    """A view has no FLOPs and no bytes: its time is host overhead, whatever the peaks."""
    assert judge(0, 0, 5_000.0, Peaks(), precision=None, unit=None).bound is Bound.HOST


def test_unknown_peaks_give_no_verdict():
    """Without a bandwidth, or with FLOPs in a precision of unknown peak, nothing is claimed."""
    assert judge(*GEMM, 600_000.0, Peaks(), precision="fp16", unit="matrix").bound is Bound.UNKNOWN
    assert judge(*GEMM, 600_000.0, ARTICLE, precision="fp8", unit="matrix").bound is Bound.UNKNOWN
    assert roof_time_ns(0, 100, ARTICLE, None, None) == (0.0, pytest.approx(0.05))


def test_exceeded_begins_beyond_five_percent():
    """1.05 is still clock and timestamp noise; 1.06 is a wrong model; unknown is not exceeded."""
    assert [exceeded(f) for f in (1.05, 1.06, None)] == [False, True, False]
