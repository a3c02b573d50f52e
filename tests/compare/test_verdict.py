"""What a comparison must not say: no verdict on software where the sides do other work, or little is known of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from comparison_scene import LEFT, LEFT_TOO, compared, row, signature, stat, window

from roofwatch.cli.render import comparison
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Cause, Device, KernelStat, Phase

HEAD = comparison.Head([], "old", "new")


def product(rows: int, inner: int, wide: int, ns: int, device: Device = LEFT, phase: Phase = Phase.NONE) -> KernelStat:
    """A product of rows × inner by inner × wide; its roof is by FLOPs."""
    what = signature(
        "gemm", Kind.MATMUL, "aten::mm", [[rows, inner], [inner, wide]], "bf16", flops=2 * rows * inner * wide,
        moved=2 * (rows * inner + inner * wide + rows * wide), unit="matrix", phase=phase,
    )  # fmt: skip
    return stat(what, ns, bound=Bound.COMPUTE, device=device)


def unknown(name: str, ns: int, device: Device = LEFT) -> KernelStat:
    """A kernel of which nothing is known but its name."""
    return stat(signature(name, Kind.OTHER), ns, device=device)


def said(answer: dict[str, Any]) -> str:
    """What a user reads, in one line; in 80 columns."""
    shown = comparison.report({**answer, "coverage": {}}, HEAD, 80)
    assert max(map(len, shown.splitlines())) <= 80
    return " ".join(shown.split())


def test_little_that_is_known_makes_no_verdict() -> None:
    """Of 10 µs a side one product of 1 µs is known on both: 10 % of the time tells nothing of the whole."""
    left = window(LEFT, [product(128, 128, 128, 1_000), unknown("a", 9_000)])
    right = window(LEFT, [product(128, 128, 128, 2_000), unknown("b", 8_000)], name="r")
    answer = compared(left, right)
    kernels = answer["summary"]["kernels"]
    assert (kernels["withheld"], kernels["software_gap"]) == (["share"], None)
    assert (kernels["left_share"], kernels["right_share"]) == (0.1, 0.2)
    shown = said(answer)
    assert "cannot be said: work that both sides do, with both roofs known, is only 10 % of kernel time." in shown
    assert "software is behind" not in shown
    assert "The right takes 9.00 µs longer in some places (and makes up 9.00 µs elsewhere)" in shown


def test_half_of_the_time_is_enough() -> None:
    """5 of 10 µs are known on both sides: a verdict on that half."""
    left = window(LEFT, [product(128, 128, 128, 5_000), unknown("a", 5_000)])
    right = window(LEFT, [product(128, 128, 128, 10_000), unknown("a", 5_000)], name="r")
    answer = compared(left, right)
    assert answer["summary"]["kernels"]["software_gap"] == pytest.approx(2.0)
    assert "the right's software is behind by 2.00 × (of the 50 % of kernel time where both roofs" in said(answer)


def test_twice_the_batch_is_no_slow_software() -> None:
    """Twice the rows in twice the time: other work, so no expected ratio and no gap, until it is normalised."""
    left = window(LEFT, [product(2048, 1024, 4096, 20_000)])
    right = window(LEFT, [product(4096, 1024, 4096, 40_000)], name="r")
    answer = compared(left, right)
    found = row(answer, kind="matmul")
    assert (found["match"], found["ratio"], found["expected_ratio"], found["software_gap"]) == ("size", 2.0, None, None)
    assert answer["summary"]["kernels"]["withheld"] == ["work", "unknown"]
    assert "cannot be said: the right does 2.00 × the left's FLOPs a step; of no work" in said(answer)
    scaled = compared(left, right, normalise=True)["summary"]["kernels"]
    assert (scaled["withheld"], scaled["software_gap"]) == ([], pytest.approx(1.0))


def test_another_model_is_called_one() -> None:
    """No two sizes of the products are the same: weights of 1024 × 4096 and of 512 × 2048; FLOPs 1 ÷ 32."""
    left = window(LEFT, [product(2048, 1024, 4096, 20_000)])
    right = window(LEFT, [product(256, 512, 2048, 1_000)], name="r")
    answer = compared(left, right)
    told = {w["warning"]: w for w in answer["warnings"]}
    assert told["strangers"]["share"] == 1.0
    assert answer["summary"]["kernels"]["withheld"] == ["strangers", "work", "unknown"]
    assert "no weight of 100 % of the products' time is on the other side: another model" in said(answer)
    assert "the right does 1/32.0 × the left's FLOPs" in said(answer)
    same = compared(left, window(LEFT, [product(256, 1024, 4096, 3_000)], name="r"))
    assert "strangers" not in {w["warning"] for w in same["warnings"]}  # the same weight, another batch


def test_a_side_that_trains_alone_makes_no_verdict() -> None:
    """The forward product is the same work on both, and all of the left's; the right has a backward pass as well."""
    left = window(LEFT, [product(2048, 1024, 4096, 20_000, phase=Phase.FORWARD)])
    backward = product(1024, 2048, 4096, 20_000, phase=Phase.BACKWARD)
    right = window(LEFT_TOO, [product(2048, 1024, 4096, 60_000, LEFT_TOO, Phase.FORWARD), backward], name="r")
    answer = compared(left, right)
    assert row(answer, match="same")["software_gap"] == pytest.approx(1.5)  # 3 × as long, of which the hardware 2 ×
    assert answer["summary"]["kernels"]["withheld"] == ["training"]
    assert "cannot be said: only the right side trains" in said(answer)


def test_idle_time_can_be_what_would_close_it() -> None:
    """The kernels are as long, 90 of 91 µs are idle: the one place named is no row."""
    kernels = [product(2048, 1024, 4096, 20_000), unknown("a", 1_000)]
    slower = [kernels[0], unknown("a", 2_000)]
    left, right = window(LEFT, kernels), window(LEFT, slower, name="r", idle={Cause.HOST: 90_000})
    answer = compared(left, right, limit=1)
    closing = answer["summary"]["closing"]
    assert [(c["part"], c["row"], c["excess_ns"]) for c in closing] == [("idle_host", None, 90_000), (None, 2, 1_000)]
    assert answer["summary"]["lost_ns"] == 91_000
    assert (
        "The right loses 91.0 µs beyond what the hardware explains, most in: idle time (host) 90.0 µs, row 2 (a; "
        "--limit 0 shows it) 1.00 µs." in said(answer)
    )


def test_what_slows_the_host_or_is_left_out_is_told() -> None:
    """Python stacks on both sides; 2 of the right's 22 µs ran before its step, 5 µs it waited at its start."""
    left = window(LEFT, [product(2048, 1024, 4096, 20_000)])
    outside = stat(signature("gemm", Kind.OTHER), 2_000, outside_ns=2_000, outside_calls=1)
    right = window(
        LEFT, [product(2048, 1024, 4096, 20_000), outside], name="r", idle={Cause.HOST: 5_000},
        startup={Cause.HOST: 5_000},
    )  # fmt: skip
    stacked = [replace(it, ledger=replace(it.ledger, python_events=7)) for it in (left, right)]
    told = {w["warning"]: w for w in compared(stacked[0], stacked[1])["warnings"]}
    assert set(told) == {"outside", "startup", "stacks", "few"}
    assert (told["outside"]["side"], told["outside"]["share"], told["outside"]["each_ns"]) == ("right", 2 / 22, 2_000)
    assert (told["startup"]["side"], told["startup"]["each_ns"]) == ("right", 5_000)
    assert told["stacks"]["where"] == "on both sides"
    assert compared(stacked[0], right)["warnings"][2]["where"] == "on the left"
