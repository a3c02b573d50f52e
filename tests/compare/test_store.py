"""The same from a store: sums over windows, what a filter means, and what it says where there is nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from comparison_scene import LEFT, LEFT_TOO, RIGHT, compared, row, signature, stat, window

from roofwatch.cli.files import Origin, window_of
from roofwatch.model.errors import UsageError
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Cause, Device, Padding, Window
from roofwatch.proto import codec
from roofwatch.store import database
from roofwatch.store.config import Keep
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries
from roofwatch.store.retention import prune_all
from roofwatch.store.unpack import Unpacker

FLOPS = 2 * 512 * 512 * 512


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    """Writes windows into a fresh database and answers from it."""
    opened = database.open(f"sqlite:///{tmp_path / 'store.db'}")
    writer, unpacker, sequence = Writer(opened), Unpacker(), iter(range(1, 10_000))

    def ask(windows: list[Window], left: Filter, right: Filter | None, **options: Any) -> dict[str, Any]:
        if windows:
            envelope = codec.seal(codec.segment(windows), "agent", "boot", next(sequence))
            outcome = writer.submit(unpacker.unpack(envelope)).result(60)
            assert outcome.reason == "", outcome.reason
        limit = options.pop("limit", 0)
        return Queries(opened).run("compare", left, limit, right, options)

    yield ask
    writer.close()
    opened.close()


def made(device: Device, number: int, ns: int, **more: Any) -> Window:
    """A window of a product, a norm and a copy; ``ns`` each."""
    product = signature("gemm", Kind.MATMUL, "aten::mm", [[512, 512], [512, 512]], "bf16", flops=FLOPS,
                        moved=3 * 2 * 512 * 512, unit="matrix")  # fmt: skip
    norm = signature("norm", Kind.NORM, "aten::native_layer_norm", [[512, 512]], "bf16", flops=5 * 512 * 512,
                     moved=4 * 512 * 512)  # fmt: skip
    copy = signature("Memcpy HtoD (Pinned -> Device)", Kind.COPY_FILL)
    kernels = [
        stat(product, ns, 4, device=device, outside_ns=ns // 8, outside_calls=1),
        stat(norm, ns, 2, device=device),
        stat(copy, ns, bound=Bound.COPY, device=device),
    ]
    more = {"idle": {Cause.LAUNCH_BOUND: ns // 2, Cause.HOST: ns // 4}, "exposed": (0, ns // 2), "steps": 2} | more
    return window(device, kernels, name=f"{device.model} {number}", busy_ns=3 * ns - ns // 4, **more)


def test_sums_over_windows(store: Any) -> None:
    """Three windows of 2 steps, by hand: of what a kernel took rows are 7/8 + 1 + 1, overlap is 1/4, idle 3/4."""
    left = [made(LEFT, i, 8_000 * i, model="m") for i in (1, 2, 3)]
    right = [made(LEFT_TOO, i, 16_000 * i, model="m") for i in (1, 2, 3)]
    answer = store([*left, *right], Filter(device="Left"), Filter(device="Other"))
    told = answer["summary"]["left"]
    took = 8_000 * 6
    assert (told["windows"], told["steps"], told["units"]) == (3, 6, 6.0)
    assert told["rows_ns"] == (took * 7 // 8 + 2 * took) // 6
    assert told["overlap_ns"] == took // 4 // 6
    assert told["causes"] == {"launch_bound": took // 2 // 6, "host": took // 4 // 6}
    assert told["outside_ns"] == took // 8 // 6
    assert answer["summary"]["ratio"] == 2.0
    assert row(answer, kind="matmul")["left_ns"] == took * 7 // 8 // 6
    assert row(answer, kind="matmul")["expected_ratio"] == pytest.approx(2.0)
    assert (answer["coverage"]["windows"], answer["coverage_other"]["windows"]) == (3, 3)
    assert answer["empty"] == []
    assert answer["problem"] is None


def test_a_store_and_a_file_say_the_same(store: Any, traces: Path) -> None:
    """The real pair, imported: every figure as from the files."""
    paths = [traces / "kineto" / name for name in ("h100_Qwen_Qwen1.5-0.5B-Chat.json.gz", "mi300_Qwen1.5-0.5B.json.gz")]
    pair = [window_of(path, Origin(model="qwen"))[0] for path in paths]
    answer = store(pair, Filter(vendor="nvidia"), Filter(vendor="amd"))
    direct = json.loads(json.dumps(compared(*pair)))
    assert alike(answer["rows"], direct["rows"])
    assert alike(answer["summary"], direct["summary"])
    assert answer["warnings"] == direct["warnings"]


def alike(a: Any, b: Any) -> bool:
    """The same but for the last digits of a fraction: the models' name, which no file tells, aside."""
    if isinstance(b, dict):
        assert a.keys() == b.keys()
        return all(key == "models" or alike(a[key], b[key]) for key in b)
    if isinstance(b, list):
        return len(a) == len(b) and all(alike(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == pytest.approx(b, rel=1e-9)) if isinstance(b, float) else bool(a == b)


def test_windows_without_steps_are_left_out_of_steps(store: Any) -> None:
    """One of three windows was cut short and tells no steps: its time counts in no step, and that is said."""
    whole = [made(LEFT, i, 8_000) for i in (1, 2)]
    other = [made(LEFT_TOO, 1, 8_000)]
    alone = store([*whole, *other], Filter(device="Left"), Filter(device="Other"))
    cut = made(LEFT, 3, 80_000, steps=None)
    cut = replace(cut, kernels=tuple(replace(k, step_calls=0, step_ns=0) for k in cut.kernels))
    answer = store([cut], Filter(device="Left"), Filter(device="Other"))
    assert answer["summary"]["left"]["time_ns"] == alone["summary"]["left"]["time_ns"]
    assert answer["summary"]["left"]["causes"] == alone["summary"]["left"]["causes"]
    assert (answer["summary"]["left"]["windows"], answer["summary"]["left"]["windows_without"]) == (3, 1)
    assert [(w["side"], w["count"]) for w in answer["warnings"] if w["warning"] == "left_out"] == [("left", 1)]


def test_sums_do_not_tell_which_windows_had_no_steps(store: Any, tmp_path: Path) -> None:
    """The same three windows once only the sum of their day is kept: how many had no steps is unknown, which is said.

    Of the window without steps the kernels are left out of the steps as before, its idle time is not: 6,000 ns of each
    of two windows are 3,000 a step, and with the 60,000 of the third 18,000.
    """
    cut = made(LEFT, 3, 80_000, steps=None)
    cut = replace(cut, kernels=tuple(replace(k, step_calls=0, step_ns=0) for k in cut.kernels))
    windows = [made(LEFT, 1, 8_000), made(LEFT, 2, 8_000), cut, made(LEFT_TOO, 1, 8_000)]
    sides = Filter(device="Left"), Filter(device="Other")
    before = store(windows, *sides)["summary"]["left"]
    opened = database.open(f"sqlite:///{tmp_path / 'store.db'}")
    prune_all(opened, windows[0].start_unix_ns + 40 * 86_400 * 10**9, Keep())
    opened.close()
    answer = store([], *sides)
    left = answer["summary"]["left"]
    assert (before["windows_without"], left["windows_without"]) == (1, None)
    assert before["rows_ns"] == left["rows_ns"]
    assert (before["idle_ns"], left["idle_ns"]) == (3_000, 18_000)
    told = [(w["warning"], w["side"]) for w in answer["warnings"] if w["warning"] in {"left_out", "sums"}]
    assert told == [("sums", "left"), ("sums", "right")]
    assert "sums" not in {w["warning"] for w in store([], *sides, per="window")["warnings"]}


def test_the_sides_by_every_selector(store: Any) -> None:
    """Node, process, job, label and time choose a side as they do elsewhere."""
    left = made(LEFT, 1, 8_000, model="m", job="slurm:1", labels={"image": "v1"})
    right = made(LEFT, 2, 16_000, model="m", job="slurm:2", labels={"image": "v2"})
    right = replace(right, process=replace(right.process, pid=101), start_unix_ns=left.start_unix_ns + 10**12)
    first = store([left, right], Filter(labels={"image": "v1"}), Filter(labels={"image": "v2"}))
    middle = left.start_unix_ns + 1
    for a, b in (
        (Filter(job="slurm:1"), Filter(job="slurm:2")), (Filter(process="100"), Filter(process="101")),
        (Filter(until_unix_ns=middle), Filter(since_unix_ns=middle)),
    ):  # fmt: skip
        assert store([], a, b)["rows"] == first["rows"]
    assert first["summary"]["ratio"] == 2.0


def test_a_side_without_windows(store: Any) -> None:
    """It is named, and there is no answer."""
    answer = store([made(LEFT, 1, 8_000)], Filter(vendor="nvidia"), Filter(vendor="ascend"))
    assert (answer["empty"], answer["summary"], answer["rows"]) == (["right"], None, [])
    assert store([], Filter(node="nowhere"), Filter(vendor="ascend"))["empty"] == ["left", "right"]


def test_times_of_two_device_models_are_never_merged(store: Any) -> None:
    """The sentence names both, so that one can be chosen."""
    windows = [made(LEFT, 1, 8_000), made(LEFT_TOO, 1, 8_000), made(RIGHT, 1, 8_000)]
    with pytest.raises(UsageError, match=r"left side ran on several device models.*Left GPU, Other GPU"):
        store(windows, Filter(vendor="nvidia"), Filter(vendor="ascend"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"per": "epoch"}, "there is no unit 'epoch'"), ({"normalise": "yes"}, "normalise is true or false")],
)
def test_options_that_mean_nothing(store: Any, options: dict[str, Any], sentence: str) -> None:
    """One sentence."""
    with pytest.raises(UsageError, match=sentence):
        store([made(LEFT, 1, 8_000)], Filter(), Filter(), **options)


def test_one_side_is_no_comparison(store: Any) -> None:
    """A second filter is part of the question."""
    with pytest.raises(UsageError, match="two sides"):
        store([made(LEFT, 1, 8_000)], Filter(), None)


def test_a_unit_that_a_side_does_not_tell(store: Any) -> None:
    """The sentence comes as part of the answer, with what both sides tell."""
    report = Padding(4, 4_000, 8_000, 1, 1)
    windows = [made(LEFT, 1, 8_000, padding=report), made(RIGHT, 1, 8_000)]
    answer = store(windows, Filter(vendor="nvidia"), Filter(vendor="ascend"), per="token")
    assert answer["problem"] == "the right side reported no lengths: compare by step or window (--per step)."
    assert answer["summary"] is None
    both = store([], Filter(vendor="nvidia"), Filter(vendor="nvidia"), per="token")
    assert both["summary"]["left"]["units"] == 4.0


def test_a_limit_leaves_the_sums_as_they_are(store: Any) -> None:
    """One row shown, the others told as a sum."""
    answer = store(
        [made(LEFT, 1, 8_000), made(RIGHT, 1, 8_000)], Filter(vendor="nvidia"), Filter(vendor="ascend"), limit=1
    )
    assert len(answer["rows"]) == 1
    further = answer["summary"]["further"]
    assert answer["rows"][0]["left_ns"] + further["left_ns"] == answer["summary"]["left"]["rows_ns"]
