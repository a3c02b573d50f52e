"""The verdict of measured pipes, rule by rule; figures of the examples are of real kernels."""

from __future__ import annotations

import pytest

from roofwatch.collectors import pipes
from roofwatch.collectors.base import Pipes
from roofwatch.collectors.pipes import judge_by_pipes, summed
from roofwatch.model.record import Bound

COMPUTE, MEMORY, LATENCY = Bound.COMPUTE, Bound.MEMORY, Bound.LATENCY
NAMES = {
    "mac": "mac_ns", "sc": "cube_scalar_ns", "mte1": "mte1_ns", "in": "cube_mte2_ns", "fix": "fixpipe_ns",
    "vec": "vec_ns", "vsc": "vector_scalar_ns", "vin": "vector_mte2_ns", "out": "mte3_ns", "cu": "occupied_ns",
}  # fmt: skip


def measured(**ratios):
    """Pipes of 1000 ns from ratios; those that are not named are 0, as a table with all of them has it."""
    return Pipes(1000, **{name: 1000.0 * ratios.get(short, 0.0) for short, name in NAMES.items()})


@pytest.mark.parametrize(
    ("sort", "ratios", "filled", "bound"),
    [
        # Products: the multiplying pipe at its limit, or nearer to it than moves to theirs.
        ("MatMulV3", {"mac": 0.841, "in": 0.854, "fix": 0.587, "sc": 0.396, "cu": 0.973}, 1.0, COMPUTE),
        ("MatMulV3", {"mac": 0.783, "in": 0.864, "fix": 0.565, "sc": 0.374, "cu": 0.968}, 1.0, COMPUTE),
        ("MatMulV3", {"mac": 0.653, "in": 0.964, "fix": 0.644, "sc": 0.3, "cu": 0.994}, 1.0, MEMORY),
        ("MatMulV2", {"mac": 0.123, "in": 0.986, "sc": 0.209, "cu": 0.983}, 1.0, MEMORY),
        # neither does anything half of the time
        ("MatMulV3", {"mac": 0.269, "in": 0.445, "fix": 0.208, "out": 0.356, "cu": 0.999}, 1.0, LATENCY),
        # 16 of 24 cores: no pipe of the device is at its limit
        ("Conv2D", {"mac": 0.85, "in": 0.824, "fix": 0.07, "sc": 0.399, "cu": 0.649}, 0.67, LATENCY),
        # Attention: results leave the cube three quarters of the time.
        (
            "FlashAttentionScore",
            {"mac": 0.35, "in": 0.72, "fix": 0.8, "vec": 0.52, "sc": 0.91, "cu": 0.94},
            1.0,
            MEMORY,
        ),
        ("FlashAttentionScore", {"mac": 0.35, "in": 0.5, "fix": 0.4, "vec": 0.8, "cu": 0.94}, 1.0, COMPUTE),
        # Vector kernels.
        ("Mul", {"vec": 0.061, "vin": 0.896, "out": 0.779, "vsc": 0.045}, 1.0, MEMORY),
        ("TensorMove", {"vin": 0.558, "out": 0.438, "vsc": 0.001}, 1.0, MEMORY),  # in and out in turn
        ("SwiGlu", {"vec": 0.816, "vin": 0.35, "out": 0.164, "vsc": 0.299}, 1.0, COMPUTE),
        ("RmsNormGrad", {"vec": 0.593, "vin": 0.103, "out": 0.059, "vsc": 0.216}, 1.0, COMPUTE),
        ("TransData", {"vec": 0.257, "vin": 0.046, "out": 0.117, "vsc": 0.585}, 0.9, LATENCY),  # issues instructions
        ("MaxPoolGradWithArgmaxV1", {"vec": 0.294, "vin": 0.441, "out": 0.056, "vsc": 0.854}, 5.3, LATENCY),
        ("Add", {"vec": 0.1, "vin": 0.9, "out": 0.3}, 1 / 40, LATENCY),  # one core of 40
        ("Add", {"vec": 0.1, "vin": 0.9, "out": 0.3}, None, MEMORY),  # of unknown many
        ("Add", {"vec": 0.1, "vin": 0.9, "out": 0.3}, 0.95, MEMORY),  # nearly all: the last wave
    ],
)
def test_rules(sort, ratios, filled, bound):
    """Which side is at its limit, or nearer to it; latency where cores are missing or wait."""
    assert judge_by_pipes(measured(**ratios), sort, filled) is bound


def test_occupation_is_not_use():
    """Cores that are taken all the time and do nothing: 87 % of cube utilisation with a mac of 0.7 %."""
    assert judge_by_pipes(measured(mac=0.007, sc=0.9, cu=0.874), "GroupedMatmul", 1.0) is LATENCY


def test_never_latency_near_the_roof():
    """From 0.3 of a known roof on the busier side it is, as for other devices; below, or without a roof, the rules."""
    conv = measured(mac=0.85, **{"in": 0.824}, cu=0.649)
    assert judge_by_pipes(conv, "Conv2D", 0.67, 0.52) is COMPUTE
    assert judge_by_pipes(conv, "Conv2D", 0.67, 0.29) is LATENCY
    moving = measured(vin=0.85, out=0.2)
    assert judge_by_pipes(moving, "TransData", 32 / 48, 0.82) is MEMORY


def test_without_metrics_there_is_no_verdict():
    """No time, or a metric set that has no pipe (memory bandwidths, cache)."""
    assert judge_by_pipes(Pipes(0), "MatMulV3", 1.0) is None
    assert judge_by_pipes(Pipes(1000, occupied_ns=990.0, cube_scalar_ns=10.0), "MatMulV3", 1.0) is None


def test_a_core_of_the_first_generation():
    """A fused core has no vector columns of its own: mte2 and vec of the one core."""
    fused = Pipes(1000, mac_ns=0.0, cube_mte2_ns=900.0, vec_ns=100.0, mte3_ns=300.0)
    assert judge_by_pipes(fused, "Add", 1.0) is MEMORY
    assert judge_by_pipes(Pipes(1000, mac_ns=900.0, cube_mte2_ns=300.0), "Conv2D", 1.0) is COMPUTE


@pytest.mark.parametrize(("share", "bound"), [(0.80, COMPUTE), (0.79, LATENCY)])
def test_the_limit_of_the_multiplying_pipe(share, bound):
    """At 0.8 of the time with issuing above it; a hair below, issuing decides."""
    assert judge_by_pipes(measured(mac=share, sc=0.95, cu=0.99), "MatMulV3", 1.0) is bound
    assert pipes.CUBE.mac == 0.8


def test_sums_over_groups():
    """Times add up; a pipe that one group lacks is known of none."""
    one, two = Pipes(10, mac_ns=5.0, vec_ns=1.0), Pipes(30, mac_ns=6.0)
    assert summed([one, two]) == Pipes(40, mac_ns=11.0)
    assert summed([]) is None
