"""``trace_view.json``: real ones against other tables of the same run, small ones worked out by hand."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path

import pytest
from ascend_tables import ns, rows_of
from ascend_views import AUTOGRAD, BASE, MAIN, View

from roofwatch.collectors.ascend.trace_inputs import as_kineto
from roofwatch.collectors.base import Limits, RawGroup, RawProfile
from roofwatch.collectors.registry import read, read_path
from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Phase

ALEXNET = "ascend/pytorch_alexnet_910B_ddp2/text"
RANKS = ("level0/rank0", "level1/rank0", "level1/rank1", "level2/rank0")


def output_of(traces: Path, rank: str) -> Path:
    """The output folder of a rank."""
    return traces / ALEXNET / f"{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"


def causes(profile: RawProfile) -> dict[str, int]:
    """Idle time by cause, in ns."""
    (device,) = profile.devices
    return {cause.cause.value: cause.total_ns for cause in device.causes}


def group_of(profile: RawProfile, kernel: str) -> RawGroup:
    """The one group of a kernel."""
    (found,) = [group for group in profile.groups if group.kernel == kernel]
    return found


# -- real ones ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", RANKS)
def test_alone_it_has_the_kernels_of_the_table(traces: Path, rank: str) -> None:
    """187 kernels and 4 collectives; of each kernel by name as many as the table has, and nearly the same time."""
    folder = output_of(traces, rank)
    profile = read(folder / "trace_view.json")
    assert profile.collector == "ascend_trace_view"
    assert sum(group.calls for group in profile.groups) == 191
    table = read(folder / "kernel_details.csv")
    by_kernel = [Counter[str](), Counter[str]()]
    for found, counts in zip((profile, table), by_kernel, strict=True):
        for group in found.groups:
            counts[group.kernel] += group.calls
    assert by_kernel[0] == by_kernel[1]
    total = sum(group.total_ns for group in table.groups)
    assert abs(sum(group.total_ns for group in profile.groups) - total) < 191  # its lengths have more digits
    assert abs(profile.devices[0].busy_ns - table.devices[0].busy_ns) < 191
    assert profile.devices[0].clock_hz == 1.8e9


@pytest.mark.parametrize("rank", RANKS)
def test_with_the_table_against_the_vendors_own_step_times(traces: Path, rank: str) -> None:
    """``step_trace_time.csv`` says how long the step computed, and communicated with nothing computed beside it."""
    folder = output_of(traces, rank)
    (row,) = csv.DictReader((folder / "step_trace_time.csv").read_text().splitlines())
    (device,) = read(folder / "kernel_details.csv").devices
    exposed = float(row["Communication(Not Overlapped)"]) * 1000
    assert device.exposed_communication_ns == pytest.approx(exposed, abs=20)  # its sums were made of other digits
    assert device.busy_ns == pytest.approx(float(row["Computing"]) * 1000 + exposed, abs=200)  # ± 1 ns a row
    (alone,) = read(folder / "trace_view.json").devices
    assert alone.exposed_communication_ns == pytest.approx(exposed, abs=200)


@pytest.mark.parametrize("rank", RANKS)
def test_links_are_those_of_the_arrows(traces: Path, rank: str) -> None:
    """Each kernel's op lies around the tail of the arrow that ends at it; phases as the ops' threads and names say."""
    folder = output_of(traces, rank)
    events = json.loads((folder / "trace_view.json").read_bytes())
    tails = {e["id"]: e for e in events if e.get("cat") == "async_npu" and e["ph"] == "s"}
    heads = {ns(e["ts"]): e["id"] for e in events if e.get("cat") == "async_npu" and e["ph"] == "f"}
    ops = [e for e in events if e.get("cat") == "cpu_op" and e["ph"] == "X"]
    spans = [(e["tid"], ns(e["ts"]), ns(e["ts"]) + round(e["dur"] * 1000), e["name"]) for e in ops]
    slow: Counter[tuple[str, bool]] = Counter()
    for row in rows_of(folder / "kernel_details.csv"):
        start = ns(row["Start Time(us)"])
        head = next(heads[at] for at in (start, start + 1, start - 1) if at in heads)
        tail, at = tails[head], ns(tails[head]["ts"])
        around = {name for tid, begin, end, name in spans if tid == tail["tid"] and begin <= at <= end}
        assert around, row
        backward = any("evaluate_function" in name for name in around)
        slow[row["Name"].split("_")[0] if row["Name"].startswith("hcom") else "", backward] += 1
    profile = read_path(folder).profile
    found: Counter[tuple[str, bool]] = Counter()
    for group in profile.groups:
        assert (group.linked, group.backlog) == (True, False)
        assert group.op is not None
        found["hcom" if group.kernel.startswith("hcom") else "", group.phase is Phase.BACKWARD] += group.calls
    assert found == slow
    assert profile.has_host_events
    assert profile.step_ns == tuple(round(e["dur"] * 1000) for e in ops if e["name"].startswith("ProfilerStep#"))


def test_ops_of_the_alexnet_set(traces: Path) -> None:
    """Which op each sort of kernel is from, as its source says: 15 kernels of five convolutions, with relayouts."""
    profile = read_path(traces / ALEXNET / "level1/rank0_ascend_pt").profile
    ops: dict[str, set[str | None]] = {}
    for group in profile.groups:
        ops.setdefault(group.kernel, set()).add(group.op)
    assert ops["Conv2D"] == {"aten::_convolution"}
    assert ops["Conv2DBackpropFilter"] == ops["Conv2DBackpropInput"] == {"aten::convolution_backward"}
    assert ops["Relu"] == {"aten::relu_"}
    assert ops["MatMulV2"] == {"aten::addmm", "aten::mm"}
    assert ops["ForeachAddList"] == {"aten::_foreach_add_", "aten::_foreach_add"}
    assert ops["hcom_allReduce_"] == {"c10d::allreduce_"}
    optimizer = [group for group in profile.groups if group.phase is Phase.OPTIMIZER]
    assert Counter(group.kernel for group in optimizer for _ in range(group.calls)) == {
        "ForeachAddList": 3, "ForeachMulScalar": 1
    }  # fmt: skip


def test_messages_of_collectives(traces: Path) -> None:
    """All-reduce of 4097000, 16781312, 37752832 and 2469696 floats, in the group that communication.json names."""
    profile = read_path(traces / ALEXNET / "level1/rank0_ascend_pt").profile
    assert [one.bytes for one in profile.collectives] == [4 * n for n in (4097000, 16781312, 37752832, 2469696)]
    assert {one.group for one in profile.collectives} == {"17522688603477080586"}
    assert {one.name for one in profile.collectives} == {"all_reduce"}


@pytest.mark.parametrize("rank", RANKS)
def test_causes_add_up_and_waits_are_those_on_the_main_thread(traces: Path, rank: str) -> None:
    """Causes add up to idle. The loader's next is all in the first gap, so that it counts whole."""
    folder = output_of(traces, rank)
    profile = read_path(folder).profile
    (device,) = profile.devices
    assert sum(causes(profile).values()) == device.span_ns - device.busy_ns
    events = json.loads((folder / "trace_view.json").read_bytes())
    (loader,) = [e for e in events if e.get("ph") == "X" and e["name"].startswith("enumerate(DataLoader)")]
    assert causes(profile)["input"] == round(loader["dur"] * 1000)


# -- small ones --------------------------------------------------------------------------------------------------------


def queued() -> View:
    """Two kernels through the queue: op 85-96 puts in at 90-92, launched 93-95, runs 100-200; the next 880 later.

    The device is idle from 200 to 1000. The op of the second begins at 970 and puts it in at 980; the launching
    thread's call is 982-986. So of the gap 780 lie before the launch, 6 inside it, and 14 after it.
    """
    view = View().op("aten::mm", (84, 97)).op("aclnnMm", (85, 96))
    view.launch("aclnnMm_MatMulV3_MatMulV3", op=85, runs=(100, 200), enqueued=(90, 92), launched=(93, 95))
    view.op("aten::add", (969, 990), **{"Input Dims": "16,8;\r\n;\r\n", "Input type": "float;\r\nScalar;\r\nScalar"})
    view.op("aclnnAdd", (970, 988))
    return view.launch("aclnnAdd_AddAiCore_Add", op=970, runs=(1000, 1100), enqueued=(980, 981), launched=(982, 986))


def test_launches_through_the_queue() -> None:
    """See ``queued``. Before the first kernel 84-90 lie before its launch, 90-100 after that has begun."""
    profile = queued().read()
    (device,) = profile.devices
    assert (device.span_ns, device.busy_ns) == (1_016_000, 200_000)
    assert causes(profile) == {"launch_bound": 786_000, "launch_gap": 30_000}
    assert [cause.example for cause in device.causes] == [
        "in aten::add, before Add; at 0.116 ms, a gap of 0.800 ms",
        "0.020 ms after Node@launch, before Add; at 0.116 ms, a gap of 0.800 ms",
    ]


def test_a_launch_that_takes_long_on_the_other_thread() -> None:
    """Put in at 1110, called from 1112 to 1300, runs at 1310: 10 before it, 190 inside it, 10 after it."""
    view = queued().op("aclnnMul", (1105, 1120))
    view.launch("aclnnMul_MulAiCore_Mul", op=1105, runs=(1310, 1400), enqueued=(1110, 1112), launched=(1112, 1300))
    assert causes(view.read()) == {"launch_bound": 786_000 + 10_000 + 190_000, "launch_gap": 40_000}


def test_without_a_queue_the_op_launches_itself() -> None:
    """Task queue off: CANN's call is on the op's own thread, 90-96; the kernel runs at 100."""
    view = View().op("aclnnMm", (85, 97))
    view.launch("aclnnMm_MatMulV3_MatMulV3", op=85, runs=(100, 200), launched=(90, 96), thread=MAIN)
    profile = view.read()
    assert causes(profile) == {"launch_bound": 5_000, "launch_gap": 10_000}
    assert group_of(profile, "MatMulV3").op == "aclnnMm"


def test_level0_knows_only_the_op() -> None:
    """Without CANN's calls and the queue a launch begins where its op does."""
    profile = View().op("aclnnMm", (85, 97)).launch("aclnnMm_MatMulV3_MatMulV3", op=85, runs=(100, 200)).read()
    assert causes(profile) == {"launch_gap": 15_000}


def test_waits_of_the_host() -> None:
    """A loader's next 200-500, a synchronize 500-700, then 280 to the launch with 20 to go: 10 of them in the op.

    What the loader and the synchronize leave over is sync: a wait has just ended, the device had run dry.
    """
    view = queued()
    view.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", (200, 500))
    view.call("AscendCL@aclrtSynchronizeStreamWithTimeout", (500, 900))
    assert causes(view.read()) == {
        "input": 300_000, "sync": 400_000 + 80_000, "launch_gap": 30_000, "launch_bound": 6_000
    }  # fmt: skip


def test_phases() -> None:
    """A thread of autograd's is backward; what the optimizer's step encloses is the optimizer's."""
    view = View().op("aten::mm", (0, 90)).op("aclnnMm", (5, 80)).launch("aclnnMm_a_A", op=5, runs=(100, 110))
    view.op("autograd::engine::evaluate_function: MmBackward0", (120, 180), AUTOGRAD).op(
        "aclnnMm", (125, 170), AUTOGRAD
    )
    view.launch("aclnnMm_b_B", op=125, runs=(190, 200), tid=AUTOGRAD)
    view.op("Optimizer.step#SGD.step", (210, 300)).op("aten::_foreach_add_", (220, 290))
    view.launch("aclnnForeachAdd_c_C", op=220, runs=(310, 320))
    view.op("ProfilerStep#7", (-10, 215))
    profile = view.read()
    assert {group.kernel: group.phase for group in profile.groups} == {
        "A": Phase.FORWARD, "B": Phase.BACKWARD, "C": Phase.OPTIMIZER
    }  # fmt: skip
    assert {group.kernel: group.step_calls for group in profile.groups} == {"A": 1, "B": 1, "C": 0}
    assert (profile.steps, profile.step_ns) == (1, (225_000,))


def test_ops_of_small_views() -> None:
    """The op that recorded inputs stands for the launch; without any the innermost."""
    profile = queued().read()
    assert (group_of(profile, "Add").op, group_of(profile, "MatMulV3").op) == ("aten::add", "aclnnMm")
    assert group_of(profile, "Add").phase is Phase.FORWARD
    assert group_of(profile, "Add").linked
    assert profile.pid == MAIN


def test_backlog() -> None:
    """A kernel to which no arrow leads, beside others that have one, was launched before the window."""
    profile = queued().task("aclnnOld_OldAiCore_Old", (84, 99)).read()
    assert {group.kernel: (group.backlog, group.linked) for group in profile.groups} == {
        "Old": (True, False), "MatMulV3": (False, True), "Add": (False, True)
    }  # fmt: skip


def test_what_is_a_kernel() -> None:
    """Kernels by their sort; events, waits, copies and the parts of collectives are no records."""
    view = queued()
    for i, sort in enumerate(
        ("EVENT_WAIT_SQE", "SDMA", "Notify Wait", "PCIE_DMA_SQE", "PLACE_HOLDER_SQE", "Write Value")
    ):
        view.task(f"not_{i}", (300 + i, 301 + i), sort)
    view.task("aclnnDropoutGenMask_DSAGenBitMask_DSAGenBitMask", (400, 410), "DSA_SQE")
    view.task("NonZero", (420, 430), "AI_CPU").task("aclnnSum_ReduceSumAiCore_ReduceSum", (440, 450), "MIX_AIV")
    cores = {group.kernel: group.core for group in view.read().groups}
    assert cores == {
        "MatMulV3": None, "Add": None, "DSAGenBitMask": "DSA_SQE", "NonZero": "AI_CPU", "ReduceSum": "MIX_AIV"
    }  # fmt: skip


def test_collectives() -> None:
    """By name under HCCL; a task of it (Notify_Record) is a part. Over a kernel only the rest of it is exposed."""
    view = queued().collective("hcom_allReduce__586_0_1", (150, 260), data_type="BFP16", count=1024)
    view.collective("Notify_Record", (150, 151))
    profile = view.read()
    assert (profile.devices[0].busy_ns, profile.devices[0].exposed_communication_ns) == (260_000, 60_000)
    (entry,) = profile.collectives
    assert (entry.name, entry.duration_ns, entry.start_unix_ns) == ("all_reduce", 110_000, 66_000)


@pytest.mark.parametrize("names", [{"HCCL": "Communication"}, {}])
def test_processes_may_be_named_late(names: dict[str, str]) -> None:
    """The names of processes may stand at the end of the file, the older ones and the newer ones."""
    view = queued().collective("hcom_broadcast__1_0_1", (150, 260))
    view.events = view.events[4:] + view.events[:4]
    text = view.text().decode()
    for old, new in names.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    profile = read(io.BytesIO(text.encode()))
    assert sum(group.calls for group in profile.groups) == 3


def test_a_view_that_begins_like_another_trace(tmp_path: Path) -> None:
    """Where only the end of a large file shows whose it is, it is read again; from a pipe that cannot be."""
    view = queued()
    padding = [{"ph": "X", "cat": "cpu_op", "name": f"aten::op{i}", "pid": 100, "tid": 100, "ts": BASE + i / 1000,
                "dur": 0.001, "args": {}} for i in range(2000)]  # fmt: skip
    view.events = [*padding, *view.events]
    assert view.text().find(b"Ascend Hardware") > 1 << 16
    path = tmp_path / "any.json"
    path.write_bytes(view.text())
    assert read(path).collector == "ascend_trace_view"


@pytest.mark.parametrize("keep", [0.8, 0.97, 0.999])
def test_a_view_that_is_cut_off(traces: Path, keep: float) -> None:
    """What stands before the cut is read, and said; arrows are at the end, so links are lost first."""
    text = (output_of(traces, "level1/rank0") / "trace_view.json").read_bytes()
    profile = read(io.BytesIO(text[: int(len(text) * keep)]))
    assert profile.problem is not None
    assert "cut off" in profile.problem or "not closed" in profile.problem or "inside an event" in profile.problem
    assert 0 < sum(group.calls for group in profile.groups) <= 191


def test_damage_in_the_middle(traces: Path) -> None:
    """One event that cannot be read costs itself alone: all other links are still there."""
    text = (output_of(traces, "level1/rank0") / "trace_view.json").read_bytes()
    at = text.index(b'"Overlap Analysis"')
    profile = read(io.BytesIO(text[:at] + b"\x00\x01" + text[at + 2 :]))
    assert profile.problem is not None
    assert sum(group.calls for group in profile.groups) == 191
    assert all(group.linked for group in profile.groups)


def test_limit_of_events() -> None:
    """Events beyond the limit are counted."""
    view = queued()
    profile = view.read(Limits(max_events=len(view.events) - 1))
    assert profile.dropped["over_event_limit"] == 1
    assert profile.problem is not None


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ([], "no events|no kernel"),
        (
            [{"ph": "X", "name": "a", "ts": "1", "dur": 1, "pid": 1, "tid": 1, "args": {"connection_id": 1}}],
            "no kernel",
        ),
        ([1, 2, "connection_id"], "no kernel"),
    ],
)
def test_views_without_records(events: list[object], sentence: str) -> None:
    """One sentence."""
    with pytest.raises(RoofwatchError, match=sentence):
        read(io.BytesIO(json.dumps(events).encode()))


@pytest.mark.parametrize("field", ["ts", "dur", "args", "tid", "pid", "name", "id", "cat"])
@pytest.mark.parametrize("value", [None, "x", -1, 1e300, [], {"a": []}, "1" * 30, True])
def test_fields_of_any_type(field: str, value: object) -> None:
    """A field of another type than it should be costs at most its own event."""
    for at in range(4, len(queued().events)):
        view = queued()
        if field in view.events[at]:
            view.events[at][field] = value
            profile = view.read()
            assert 1 <= sum(group.calls for group in profile.groups) <= 2


@pytest.mark.parametrize(
    ("shapes", "dtypes", "expected"),
    [
        ("32,3;\r\n64;\r\n", "float;\r\nhalf;\r\nScalar", (b"[[32,3],[64],[]]", b'["float","half","Scalar"]')),
        ("", "", (b"[[]]", b'[""]')),
        ("a,b", "float", (b"", b'["float"]')),
        ([[1, 2]], ["float"], (b"[[1, 2]]", b'["float"]')),
    ],
)
def test_inputs(shapes: object, dtypes: object, expected: tuple[bytes, bytes]) -> None:
    """A line for each input becomes Kineto's lists; lists stay; what is damaged is not told."""
    text = b"\0".join([json.dumps(shapes).encode(), json.dumps(dtypes).encode(), b"", b""])
    assert as_kineto(text) == b"\0".join([*expected, b"", b""])
