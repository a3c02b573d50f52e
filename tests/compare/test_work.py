"""Whether both sides do the same work: units, warnings, and what normalising takes out."""

from __future__ import annotations

from typing import Any

import pytest
from comparison_scene import LEFT, LEFT_TOO, compared, row, signature, stat, window

from roofwatch.model.comparison_sides import Counts, basis
from roofwatch.model.errors import IncompleteError
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Device, Padding, Phase, Window

HIDDEN, WIDE = 1024, 4096


def layer(device: Device, batch: int, sequence: int, slow: int, **more: Any) -> Window:
    """A layer's norm, product, attention and activation on batch × sequence tokens: ``slow`` ns a token each."""
    tokens, qkv = batch * sequence, [batch, sequence, 16, 64]
    x = [batch, sequence, HIDDEN]
    calls = more.pop("calls", 1)
    precision = more.pop("precision", "bf16")
    phase = more.pop("phase", Phase.FORWARD)
    took = slow * tokens * calls
    kernels = [
        signature("norm", Kind.NORM, "aten::native_layer_norm", [x, [HIDDEN]], "bf16", flops=5 * tokens * HIDDEN,
                  moved=4 * tokens * HIDDEN, phase=phase),
        signature("gemm", Kind.MATMUL, "aten::mm", [[tokens, HIDDEN], [HIDDEN, WIDE]], precision,
                  flops=2 * tokens * HIDDEN * WIDE, moved=2 * tokens * (HIDDEN + WIDE), unit="matrix",
                  precision=precision, phase=phase),
        signature("flash", Kind.ATTENTION, "aten::_flash_attention_forward", [qkv] * 3, precision,
                  flops=4 * tokens * sequence * HIDDEN, moved=8 * tokens * HIDDEN, unit="matrix", precision=precision,
                  phase=phase),
        signature("gelu", Kind.ACTIVATION, "aten::gelu", [[batch, sequence, WIDE]], "bf16", flops=8 * tokens * WIDE,
                  moved=4 * tokens * WIDE, phase=phase),
    ]  # fmt: skip
    return window(device, [stat(what, took, calls, device=device) for what in kernels], **more)


def warned(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The warnings by name, without that there are few steps."""
    return {w["warning"]: w for w in answer["warnings"] if w["warning"] != "few"}


def padded(batches: int, tokens: int) -> Padding:
    """Batches with so many real tokens in all."""
    return Padding(batches, tokens, 2 * tokens, 1, 1)


def test_the_same_work_needs_no_warning() -> None:
    """Ten steps of the same layer."""
    answer = compared(layer(LEFT, 8, 512, 10, steps=10), layer(LEFT_TOO, 8, 512, 20, steps=10))
    assert answer["warnings"] == []
    assert {r["match"] for r in answer["rows"]} == {"same"}


def test_another_batch_is_told() -> None:
    """16 against 8 sequences: the batch, and that the right does half of the FLOPs."""
    found = warned(compared(layer(LEFT, 16, 512, 10), layer(LEFT_TOO, 8, 512, 20)))
    assert (found["batch"]["left"], found["batch"]["right"], found["batch"]["scaled"]) == (16, 8, False)
    assert found["work"]["factor"] == pytest.approx(0.5)
    assert set(found) == {"batch", "work"}


def test_another_sequence_is_told() -> None:
    """512 against 256 tokens a sequence; attention does a quarter of the FLOPs, the product half."""
    found = warned(compared(layer(LEFT, 8, 512, 10), layer(LEFT_TOO, 8, 256, 20)))
    assert (found["sequence"]["left"], found["sequence"]["right"]) == (512, 256)
    assert "batch" not in found
    mm, attention = 2 * 4096 * HIDDEN * WIDE, 4 * 4096 * 512 * HIDDEN
    assert found["work"]["factor"] == pytest.approx((mm / 2 + attention / 4) / (mm + attention))


def test_a_transposed_batch_is_no_sequence() -> None:
    """(sequence, batch, width) beside (batch, sequence, width): one difference, told once."""

    def both(device: Device, batch: int) -> Window:
        kernels = [
            stat(signature("gelu", Kind.ACTIVATION, "aten::gelu", [[batch, 64, 128]], "fp32", flops=batch * 8192,
                           moved=batch * 65_536), 1_000, device=device),
            stat(signature("relu", Kind.ACTIVATION, "aten::relu", [[64, batch, 128]], "fp32", flops=batch * 8192,
                           moved=batch * 65_536), 900, device=device),
        ]  # fmt: skip
        return window(device, kernels, steps=9)

    found = warned(compared(both(LEFT, 8), both(LEFT_TOO, 16)))
    assert (found["batch"]["left"], found["batch"]["right"]) == (8, 16)
    assert "sequence" not in found


def test_wrappers_without_work_do_not_hide_it() -> None:
    """On a CPU aten::linear is a record without FLOPs of its own: those of the product are known all the same."""
    wrapper = signature("aten::linear", Kind.MATMUL, "aten::linear", [[4096, HIDDEN]], "bf16", flops=0, moved=0)

    def wrapped(device: Device, batch: int) -> Window:
        plain = layer(device, batch, 512, 10)
        return window(device, [*plain.kernels, stat(wrapper, 10**6, device=device)])

    assert warned(compared(wrapped(LEFT, 16), wrapped(LEFT_TOO, 8)))["work"]["factor"] == pytest.approx(0.5)


def test_another_precision_is_told() -> None:
    """Most products in fp16 on one side; reduced fp32 is one thing, whatever the vendor calls it."""
    found = warned(compared(layer(LEFT, 8, 512, 10), layer(LEFT_TOO, 8, 512, 20, precision="fp16")))
    assert (found["precision"]["left"], found["precision"]["right"]) == ("bf16", "fp16")
    twins = compared(layer(LEFT, 8, 512, 10, precision="tf32"), layer(LEFT_TOO, 8, 512, 20, precision="hf32"))
    assert "precision" not in warned(twins)


def test_accumulated_gradients_are_told() -> None:
    """The same shapes, four times as often a step."""
    found = warned(compared(layer(LEFT, 8, 512, 10, steps=4, calls=4), layer(LEFT_TOO, 8, 512, 20, steps=1, calls=4)))
    assert found["calls"]["factor"] == pytest.approx(4.0)
    assert found["work"]["factor"] == pytest.approx(4.0)


def test_models_ranks_and_training_are_told() -> None:
    """Names of models, sizes of jobs, and that only one side has a backward pass."""
    left = layer(LEFT, 8, 512, 10, model="llama-7b", world_size=8, phase=Phase.BACKWARD)
    right = layer(LEFT_TOO, 8, 512, 20, model="llama-13b", world_size=16)
    found = warned(compared(left, right))
    assert (found["model"]["left"], found["model"]["right"]) == ("llama-7b", "llama-13b")
    assert (found["ranks"]["left"], found["ranks"]["right"]) == ("8", "16")
    assert found["training"]["side"] == "left"


def test_windows_without_steps_are_compared_as_a_whole_and_told() -> None:
    """One side tells steps, the other none; and of windows of other lengths that they are."""
    left, right = layer(LEFT, 8, 512, 10, steps=5), layer(LEFT_TOO, 8, 512, 20, steps=None)
    answer = compared(left, right)
    assert answer["summary"]["per"] == "window"
    assert warned(answer)["steps"]["side"] == "left"
    assert warned(answer)["windows"]["right_ns"] == 2 * warned(answer)["windows"]["left_ns"]


def test_few_steps_are_told_once() -> None:
    """Three are a mean, two are not."""
    few = compared(layer(LEFT, 8, 512, 10, steps=2), layer(LEFT_TOO, 8, 512, 20, steps=3))["warnings"]
    assert [(w["where"], w["units"]) for w in few if w["warning"] == "few"] == [("on the left", 2)]


def test_normalised_the_right_does_the_lefts_work() -> None:
    """Half the batch at the same speed a token: twice the steps, the same time; matched by scaled work."""
    plain = compared(layer(LEFT, 16, 512, 10), layer(LEFT_TOO, 8, 512, 10))
    answer = compared(layer(LEFT, 16, 512, 10), layer(LEFT_TOO, 8, 512, 10), normalise=True)
    assert plain["summary"]["ratio"] == pytest.approx(0.5, rel=1e-3)
    summary = answer["summary"]
    assert summary["normalised"] == pytest.approx(2.0)
    assert summary["ratio"] == pytest.approx(1.0, rel=1e-3)
    assert summary["right"]["time_ns"] == 2 * plain["summary"]["right"]["time_ns"]
    assert {(r["match"], r["ratio"]) for r in answer["rows"]} == {("size", 1.0)}
    assert warned(answer)["batch"]["scaled"] is True
    assert row(answer, kind="matmul")["expected_ratio"] == pytest.approx(2.0)


def test_what_cannot_be_normalised() -> None:
    """Without FLOPs nobody knows how much work it is."""
    blind = window(LEFT_TOO, [stat(signature("gemm", Kind.MATMUL, "aten::mm"), 100)])
    with pytest.raises(IncompleteError, match="right side's products the FLOPs are not known"):
        compared(layer(LEFT, 8, 512, 10), blind, normalise=True)


def test_the_unit_is_the_first_that_both_tell() -> None:
    """Steps, else calls, else windows; tokens only when asked for."""
    steps, calls = Counts(2, 2, steps=5), Counts(2, 2, calls=7, tokens=900, silent=0)
    both = Counts(2, 2, steps=5, calls=7, tokens=900)
    assert basis(both, both, None) == "step"
    assert basis(both, calls, None) == "call"
    assert basis(steps, calls, None) == "window"
    assert basis(both, calls, "token") == "token"
    with pytest.raises(IncompleteError, match="the left side reported no lengths: compare by step or window"):
        basis(steps, both, "token")


def test_by_the_token() -> None:
    """8 batches with 3,000 real tokens in 1.2 ms are 400,000 ns a 1,000 tokens; real tokens a call are told apart."""
    left = window(LEFT, [stat(signature("k", Kind.OTHER), 1_200_000)], steps=4, padding=padded(8, 3_000))
    right = window(LEFT_TOO, [stat(signature("k", Kind.OTHER), 1_200_000)], steps=4, padding=padded(8, 6_000))
    summary = compared(left, right, "token")["summary"]
    assert (summary["per"], summary["scale"]) == ("token", 1000)
    assert (summary["left"]["time_ns"], summary["right"]["time_ns"]) == (400_000, 200_000)
    by_step = compared(left, right)
    assert (warned(by_step)["tokens"]["left"], warned(by_step)["tokens"]["right"]) == (375, 750)


def test_a_step_on_two_devices_is_a_step_on_each() -> None:
    """Counts are of windows; a unit of a window on two devices is there on both."""
    assert Counts(windows=3, pairs=6, steps=30).units("step") == 60
    assert Counts().units("window") == 0


def test_backlog_belongs_to_no_step() -> None:
    """What was launched before the window is told apart; by the window it counts."""
    what = signature("gemm", Kind.MATMUL, "aten::mm", [[64, 64], [64, 64]], "bf16")
    left = window(LEFT, [stat(what, 10_000, 5, outside_ns=4_000, outside_calls=2, bound=Bound.COMPUTE)], steps=3)
    summary = compared(left, left)["summary"]
    assert (summary["left"]["time_ns"], summary["left"]["outside_ns"]) == (2_000, 1_333)
    assert compared(left, left, "window")["summary"]["left"]["time_ns"] == 10_000
