"""AlexNet trained on an Ascend 910B against the same network recorded here, on this machine's CPU, by torch.

The Ascend set holds one step of 32 images in fp32, its first convolution 64×3×11×11. Times of a CPU say nothing; that
every convolution, product and pooling finds its partner does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

SET = "pytorch_alexnet_910B_ddp2/text/level1/rank0_ascend_pt"
# FLOPs of the five convolutions: 2 · 32 · C_out · C_in · kernel · out, and of the three layers: 2 · 32 · in · out.
CONVOLUTIONS = [
    2 * 32 * a * b * k * k * n * n
    for a, b, k, n in ((64, 3, 11, 55), (192, 64, 5, 27), (384, 192, 3, 13), (256, 384, 3, 13), (256, 256, 3, 13))
]


def record(path: Path) -> None:
    """One forward and backward pass, profiled as a step."""
    from torch import nn  # noqa: PLC0415
    from torch.profiler import ProfilerActivity, profile, record_function  # noqa: PLC0415

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(inplace=True), nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.AdaptiveAvgPool2d((6, 6)), nn.Flatten(), nn.Dropout(), nn.Linear(9216, 4096), nn.ReLU(inplace=True),
        nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 1000),
    )  # fmt: skip
    images, labels = torch.randn(32, 3, 224, 224), torch.randint(0, 1000, (32,))
    with (
        profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled,
        record_function("ProfilerStep#1"),
    ):
        nn.functional.cross_entropy(net(images), labels).backward()
    profiled.export_chrome_trace(str(path))


@pytest.fixture(scope="module")
def answer(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The CPU on the left, the 910B on the right."""
    from roofwatch.cli.files import Origin, window_of  # noqa: PLC0415
    from roofwatch.model.comparison import compare  # noqa: PLC0415
    from roofwatch.model.comparison_sides import basis, side_of  # noqa: PLC0415

    folder = traces / "ascend" / SET
    if not folder.is_dir():
        pytest.skip(f"no AlexNet set at {folder}")
    mine = tmp_path_factory.mktemp("alexnet") / "cpu.json"
    record(mine)
    left, right = (side_of(window_of(path, Origin())[0], path.name) for path in (mine, folder))
    found: dict[str, Any] = json.loads(json.dumps(compare(left, right, basis(left.counts, right.counts, None))))
    return found


def test_every_convolution_finds_its_own(answer: dict[str, Any]) -> None:
    """Five rows by FLOPs: plain shapes on the left, tiles of 8 channels on the right."""
    rows = [r for r in answer["rows"] if r["op"] == "convolution" and r["match"] == "size"]
    assert len(rows) == 5
    found = {2 * s[0][0] * s[1][0] * s[1][1] * s[1][2] * s[1][3] * _out(s) ** 2 for s in (r["shapes"] for r in rows)}
    assert found == set(CONVOLUTIONS)
    [first] = [r for r in rows if r["shapes"][1] == [64, 3, 11, 11]]
    assert first["shapes"][0] == [32, 3, 224, 224]
    assert first["right_parts"][0]["shapes"][0] == [32, 1, 224, 224, 8]


def _out(shapes: list[list[int]]) -> int:
    """The side of what a convolution of AlexNet gives: its own strides and padding keep all but the first's."""
    return 55 if shapes[1][1] == 3 else shapes[0][2]


def test_gradients_of_convolutions_are_groups(answer: dict[str, Any]) -> None:
    """One op here, two or three kernels there; the first layer's input needs none."""
    rows = [r for r in answer["rows"] if r["group"] == "convolution backward"]
    assert len(rows) == 5
    kinds = [{p["op"] for p in r["right_parts"]} for r in rows]
    assert sum({"Conv2DBackpropFilter", "Conv2DBackpropInput"} <= ops for ops in kinds) == 4
    [first] = [ops for ops in kinds if "Conv2DBackpropInput" not in ops]
    assert "Conv2DBackpropFilter" in first


def test_products_are_the_same_however_stored(answer: dict[str, Any]) -> None:
    """Three layers forward, six gradients; the weights lie transposed on the Ascend."""
    rows = [r for r in answer["rows"] if r["kind"] == "matmul" and r["match"] is not None]
    assert [r["match"] for r in rows] == ["same"] * 9
    assert all(r["left_ns"] and r["right_ns"] for r in rows)


def test_pooling_activations_and_loss_have_partners(answer: dict[str, Any]) -> None:
    """Forward and backward, whatever the layout: alone are autograd's nodes and wrappers, which no NPU has."""
    matched = {r["op"] for r in answer["rows"] if r["match"] in {"same", "size"}}
    assert {"log_softmax", "max_pool2d", "max_pool2d_backward", "relu", "relu_backward"} <= matched
    kinds = {"pooling", "activation", "softmax", "conv", "matmul"}
    alone = [r for r in answer["rows"] if r["kind"] in kinds and r["match"] is None]
    assert not any(r["right_ns"] for r in alone)
    assert all(r["op"].endswith("Backward0") or r["op"] == "aten::linear" for r in alone), [r["op"] for r in alone]


def test_the_layout_tax_is_a_row_of_its_own(answer: dict[str, Any]) -> None:
    """TransData, Transpose and Cast that other kernels needed: as the reader counts them, 1,545,346 ns."""
    [tax] = [r for r in answer["rows"] if r["layout_tax"]]
    assert (tax["left_ns"], tax["match"], tax["group"]) == (0, None, "layout tax")
    assert tax["right_ns"] == answer["summary"]["right"]["layout_ns"]
    assert {p["op"] for p in tax["right_parts"]} <= {"TransData", "Transpose", "Cast"}


def test_peaks_of_this_cpu_are_not_guessed(answer: dict[str, Any]) -> None:
    """No expected ratio and no gap anywhere, and that is counted."""
    assert all(r["expected_ratio"] is None and r["software_gap"] is None for r in answer["rows"])
    kernels = answer["summary"]["kernels"]
    assert (kernels["expected_ratio"], kernels["left_share"]) == (None, 0.0)
    assert kernels["unknown_rows"] > 30


def test_both_times_add_up(answer: dict[str, Any]) -> None:
    """The Ascend step is 155,985,800 ns, as step_trace_time.csv and the reader have it."""
    assert answer["summary"]["right"]["time_ns"] == 155_985_800
    for name in ("left", "right"):
        side = answer["summary"][name]
        assert sum(r[f"{name}_ns"] for r in answer["rows"]) - side["overlap_ns"] + side["idle_ns"] == side["time_ns"]
    assert {w["warning"] for w in answer["warnings"]} >= {"precision"}
