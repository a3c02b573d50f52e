"""Collectives: message, group, dtype and bandwidths by hand, and on real traces against a slow computation."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collectors.base import RawGroup, RawProfile, WindowContext
from roofwatch.collectors.kineto import collectives
from roofwatch.collectors.pipeline import window_of
from roofwatch.collectors.registry import read
from roofwatch.model.answer_rows import rows, sums_of
from roofwatch.model.record import Collective, Node, Process, Trigger
from roofwatch.proto import codec

Read = Callable[..., RawProfile]
BASE = 1_700_000_000_000_000_000
KERNEL = "ncclDevKernel_Generic(ncclDevComm*)"
RANKS = "[0, 1, 2, 3, 4, 5, 6, 7]"


def told(name: str, put_in: Any, got_out: Any, **more: Any) -> dict[str, Any]:
    """Arguments of ``record_param_comms`` in a group of eight, floats."""
    return {
        "Collective name": name, "In msg nelems": put_in, "Out msg nelems": got_out, "Group size": 8, "dtype": "Float",
        "In split size": "[]", "Out split size": "[]", "Process Group Name": "0",
        "Process Group Description": "default_pg", "Process Group Ranks": RANKS,
    } | more  # fmt: skip


def call(trace: Any, ts: float, args: dict[str, Any], us: float = 10, kernel: str = KERNEL, **own: Any) -> None:
    """One call: the record, the launch inside it, the kernel, which has ``own`` arguments."""
    correlation = len(trace.events) + 1
    trace.op("record_param_comms", ts, 8, **args)
    trace.call("cudaLaunchKernelExC", ts + 2, 2, correlation)
    trace.kernel(kernel, ts + 20, us, correlation, **own)


def only(profile: RawProfile) -> tuple[RawGroup, Collective]:
    """The one collective of a trace, as a group and as an entry."""
    (group,) = (g for g in profile.groups if g.category == "kernel")
    (entry,) = profile.collectives
    return group, entry


def row(profile: RawProfile) -> dict[str, Any]:
    """The answer's row of the one kernel."""
    context = WindowContext("0" * 32, Process(Node("n"), 1), Trigger.IMPORTED)
    (found,) = rows(sums_of(window_of(profile, context)))
    return found


@pytest.mark.parametrize(
    ("args", "us", "size", "algbw", "busbw"),
    [
        # 1 GiB in 10 ms = 107.4 GB/s; ring: × 2·7/8
        (told("allreduce", 1 << 28, 1 << 28), 10_000, 1 << 30, 107.3741824e9, 187.9048192e9),
        # Eight ranks put in 25,136 bf16 each: 402,176 bytes in 20 µs = 20.1 GB/s; × 7/8
        (told("_allgather_base", 25136, 201088, dtype="BFloat16"), 20, 402_176, 20.1088e9, 17.5952e9),
        # 8 MiB of fp32 in, 1 MiB out, 100 µs; × 7/8
        (told("_reduce_scatter_base", 1 << 21, 1 << 18), 100, 1 << 23, 83.88608e9, 73.40032e9),
        # 800 int64 each way, 1 µs; × 7/8
        (told("all_to_all", 800, 800, dtype="Long"), 1, 6400, 6.4e9, 5.6e9),
        (told("broadcast", 1000, 1000, dtype="Half"), 1, 2000, 2e9, 2e9),
        (told("send", 1000, 1000, dtype="Byte"), 1, 1000, 1e9, 1e9),
        (told("allreduce_coalesced", 500, 500, dtype="Double"), 4, 4000, 1e9, 1.75e9),
    ],
)
def test_bandwidths(
    trace: Any, read_trace: Read, args: dict[str, Any], us: float, size: int, algbw: float, busbw: float
) -> None:
    """Message ÷ time, and × what a rank must send at least for each byte of the message (worked out beside each)."""
    call(trace, 0, args, us)
    found = row(read_trace(trace))
    assert found["bytes"] == size
    assert found["algbw"] == pytest.approx(algbw)
    assert found["busbw"] == pytest.approx(busbw)
    assert (found["kind"], found["bound"], found["evidence"]) == ("comm", "communication", "definition")


def test_an_entry_has_what_the_record_tells(trace: Any, read_trace: Read) -> None:
    """Group by name and ranks, the number, the message; the start counts from the profile's, 100 µs before."""
    trace.op("aten::mm", 0, 5)
    call(trace, 80, told("allreduce", 10, 10, Seq=41), 7)
    profile = read_trace(trace)
    group, entry = only(profile)
    assert entry == Collective(0, "all_reduce", "0 (0-7)", 100_000, 7000, 8, 41, 40)
    assert json.loads(group.arguments or "") == {
        "collective": "all_reduce", "group": "default_pg", "group_size": 8, "dtype": "fp32",
    }  # fmt: skip
    context = WindowContext("0" * 32, Process(Node("n"), 1), Trigger.IMPORTED)
    assert window_of(profile, context).collectives[0].start_unix_ns == BASE + 100_000


def test_the_kernels_own_arguments_are_enough(trace: Any, read_trace: Read) -> None:
    """A trace whose host side is missing: Kineto has copied the arguments to the kernel."""
    trace.kernel(KERNEL, 0, 10, 5, **told("_allgather_base", 10, 80, dtype="BFloat16", Seq=3))
    _, entry = only(read_trace(trace))
    assert entry == Collective(0, "all_gather", "0 (0-7)", 0, 10_000, 8, 3, 160)


def test_shapes_tell_where_arguments_do_not(trace: Any, read_trace: Read) -> None:
    """Before torch 2.2: the op of c10d puts out 65536·384 floats and takes in 8192·384; nothing tells the group."""
    trace.add("cpu_op", "c10d::_allgather_base_", 0, 20, **{
        "Input Dims": [[65536, 384], [8192, 384], []], "Input type": ["float", "float", ""],
    })  # fmt: skip
    call(trace, 5, {"Input Dims": [[8192, 384], [], []], "Input type": ["float", "Scalar", ""]})
    group, entry = only(read_trace(trace))
    assert (entry.name, entry.bytes, entry.group, entry.group_size) == ("all_gather", 65536 * 384 * 4, "", None)
    assert json.loads(group.arguments or "") == {"collective": "all_gather", "dtype": "fp32"}


def test_an_annotation_tells_the_inputs(trace: Any, read_trace: Read) -> None:
    """``nccl:all_reduce`` with 366,336 floats inside a record without arguments, around the launch."""
    call(trace, 0, {})
    trace.add("user_annotation", "nccl:all_reduce", 1, 5, **{"Input Dims": [[366336]], "Input type": ["float"]})
    _, entry = only(read_trace(trace))
    assert (entry.name, entry.bytes) == ("all_reduce", 366336 * 4)


@pytest.mark.parametrize(("name", "expected"), [("nccl:_all_gather_base", None), ("nccl:all_to_all", None)])
def test_inputs_alone_do_not_tell_every_message(trace: Any, read_trace: Read, name: str, expected: None) -> None:
    """Of a gathered message they are one part of an unknown number; what an all_to_all gets out may be more."""
    call(trace, 0, {})
    trace.add("user_annotation", name, 1, 5, **{"Input Dims": [[64]], "Input type": ["float"]})
    assert only(read_trace(trace))[1].bytes is expected


def test_one_process_group_is_the_group_of_all(trace: Any, read_trace: Read) -> None:
    """Where distributedInfo lists one group of two, a call that names none is in it: 64 floats of each of 2 ranks."""
    one = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}
    trace.fields["distributedInfo"] = {"rank": 0, "world_size": 2, "pg_count": 1, "pg_config": [one]}
    call(trace, 0, {})
    trace.add("user_annotation", "nccl:_all_gather_base", 1, 5, **{"Input Dims": [[64]], "Input type": ["float"]})
    assert only(read_trace(trace))[1] == Collective(0, "all_gather", "0 (0,1)", 20_000, 10_000, 2, None, 512)
    trace.fields["distributedInfo"]["pg_count"] = 2
    assert only(read_trace(trace))[1].group == ""


def test_a_kernels_name_is_the_last_resort(trace: Any, read_trace: Read) -> None:
    """Launched before the window: the name tells the collective, and nothing else is known."""
    call(trace, 0, {}, kernel="ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*)")
    trace.kernel(KERNEL, 100, 5, 999)
    first, second = read_trace(trace).collectives
    assert (first.name, first.bytes, first.group) == ("reduce_scatter", None, "")
    assert (second.name, second.bytes, second.group) == ("", None, "")


def test_uneven_calls_stay_one_group(trace: Any, read_trace: Read) -> None:
    """Every all_to_allv moves another size: entries tell the larger of in and out, the group of them tells none."""
    for i in range(3):
        call(trace, 100 * i, told("all_to_allv", 100 + i, 50, **{"In split size": "[60, 40]"}))
    profile = read_trace(trace)
    assert [c.bytes for c in profile.collectives] == [400, 404, 408]
    (group,) = profile.groups
    assert group.calls == 3
    assert group.moved_bytes is None
    assert row(profile)["algbw"] is None


def test_a_barrier_has_no_message(trace: Any, read_trace: Read) -> None:
    """Its size is not 0 bytes but none."""
    call(trace, 0, told("barrier", 0, 0, dtype="Byte"))
    _, entry = only(read_trace(trace))
    assert (entry.name, entry.bytes) == ("barrier", None)


def test_calls_alike_are_one_group_others_not(trace: Any, read_trace: Read) -> None:
    """The same kernel: two of 40 bytes are one group, one of 80 and one in another group stand apart."""
    for i, args in enumerate((told("allreduce", 10, 10), told("allreduce", 10, 10), told("allreduce", 20, 20))):
        call(trace, 100 * i, args)
    call(trace, 400, told("allreduce", 10, 10, **{"Process Group Description": "mesh_tp"}))
    groups = read_trace(trace).groups
    assert sorted((g.calls, g.moved_bytes) for g in groups) == [(1, 40), (1, 80), (2, 80)]


@pytest.mark.parametrize(
    ("more", "identity"),
    [
        ({"Process Group Ranks": "[0, 8, 16, 24]", "Group size": 4}, "0 (0-24/8)"),
        ({"Process Group Ranks": "[3, 5, 6]", "Group size": 3}, "0 (3,5,6)"),
        ({"Process Group Ranks": "[7]", "Group size": 1}, "0 (7)"),
        ({"Process Group Ranks": "[]", "Group size": 2}, "0"),
        ({"Process Group Ranks": [0, 1], "Group size": 2}, "0 (0,1)"),
        ({"Process Group Ranks": f"[{', '.join(map(str, range(30)))}, ...]", "Group size": 128}, "0 (0,1… of 128)"),
        (
            {"Process Group Ranks": f"[{', '.join(map(str, range(29)))}, ..., 127]", "Group size": 128},
            "0 (0,1… of 128)",
        ),
        ({"Process Group Name": None, "Process Group ID": 4}, "4 (0-7)"),
        ({"Process Group Name": "a\n\u0000b" + "c" * 100}, "a??b" + "c" * 60 + " (0-7)"),
        ({"Process Group Name": "", "Process Group Ranks": ""}, ""),
    ],
)
def test_identities_of_groups(trace: Any, read_trace: Read, more: dict[str, Any], identity: str) -> None:
    """Name and ranks; more than thirty ranks, which torch cuts, by the first two and how many there are."""
    call(trace, 0, told("allreduce", 1, 1, **more))
    assert only(read_trace(trace))[1].group == identity


@pytest.mark.parametrize(
    ("kinds", "values", "sequence", "size"),
    [
        (["float", "Scalar", "Scalar", "Scalar", "", "ScalarList", "ScalarList", "Scalar"],
         ["", "12", "94", "0", "", "[]", "[]", "4"], 12, 4),
        (["float", "Scalar", "Scalar", "Scalar", "", "", ""], ["", "12", "94", "0", "", "[]", "[]"], 12, None),
        (["float", "", "", "Scalar", "", "ScalarList", "ScalarList", "Scalar", "Scalar", "Scalar"],
         ["", "", "", "0", "", "[]", "[]", "0", "1", "4"], None, None),
        (["float", "Scalar"], ["", "12"], None, None),
    ],
)  # fmt: skip
def test_older_records_tell_by_position(
    trace: Any, read_trace: Read, kinds: list[str], values: list[str], sequence: int | None, size: int | None
) -> None:
    """Sequence number and group size stood among the inputs before torch 2.4; no group is made of each number."""
    args = {"Input Dims": [[]] * len(kinds), "Input type": kinds, "Concrete Inputs": values}
    call(trace, 0, args, kernel="ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)")
    profile = read_trace(trace)
    assert (profile.collectives[0].sequence, profile.collectives[0].group_size) == (sequence, size)
    assert profile.groups[0].concrete is None


@pytest.mark.parametrize(
    "more",
    [
        {"In msg nelems": -1}, {"In msg nelems": 1 << 62}, {"In msg nelems": 10**40}, {"In msg nelems": "many"},
        {"In msg nelems": [1]}, {"In msg nelems": None}, {"In msg nelems": True}, {"In msg nelems": 1.5},
        {"dtype": 7}, {"dtype": "NoSuchType"}, {"In msg nelems": 1 << 49},
    ],
)  # fmt: skip
def test_hostile_sizes_are_unknown(trace: Any, read_trace: Read, more: dict[str, Any]) -> None:
    """What is no size, or more than any machine's memory, is unknown; the rest of the record stands."""
    call(trace, 0, told("allreduce", 1, 1, **more))
    group, entry = only(read_trace(trace))
    assert (entry.name, entry.bytes, entry.group) == ("all_reduce", None, "0 (0-7)")
    assert group.moved_bytes is None


@pytest.mark.parametrize(
    "more",
    [
        {"Group size": 1 << 31}, {"Group size": -4}, {"Group size": 0}, {"Group size": "eight"}, {"Group size": {}},
        {"Seq": -1}, {"Seq": 10**30}, {"Seq": "x"}, {"Collective name": {"a": 1}}, {"Collective name": "x" * 100_000},
        {"Process Group Ranks": "[" + "9" * 10_000}, {"Process Group Ranks": {"0": 1}}, {"Process Group Name": ["a"]},
        {"Process Group Description": 3.5}, {"In split size": 4}, {"Process Group Name": "\ud800"},
    ],
)  # fmt: skip
def test_hostile_arguments_pass_the_store(trace: Any, read_trace: Read, more: dict[str, Any]) -> None:
    """Whatever the arguments hold, the window can be sealed, checked and stored."""
    call(trace, 0, told("allreduce", 1, 1, **more))
    window = window_of(read_trace(trace), WindowContext("0" * 32, Process(Node("n"), 1), Trigger.IMPORTED))
    (entry,) = window.collectives
    assert entry.group_size is None or 0 < entry.group_size < 1 << 31
    assert entry.sequence is None or 0 <= entry.sequence < 1 << 62
    assert len(entry.group) < 400
    assert codec.windows(codec.unseal(codec.seal(codec.segment([window]), "a", "b", 1))) == [window]


@pytest.mark.parametrize("args", [[1, 2], "text", 7, None])
def test_arguments_that_are_no_object(trace: Any, read_trace: Read, args: Any) -> None:
    """The call tells nothing, its kernel stands."""
    call(trace, 0, {})
    trace.events[0]["args"] = args
    assert only(read_trace(trace))[1] == Collective(0, "", "", 20_000, 10_000)


def test_entries_are_bounded(trace: Any, read_trace: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """The earliest are kept, the rest counted; the groups have all."""
    monkeypatch.setattr(collectives, "MAX_COLLECTIVES", 3)
    for i in range(5):
        call(trace, 100 * i, told("allreduce", 1, 1, Seq=i))
    profile = read_trace(trace)
    assert [c.sequence for c in profile.collectives] == [0, 1, 2]
    assert profile.dropped["over_collective_limit"] == 2
    assert sum(g.calls for g in profile.groups) == 5


def test_hosts_that_talk_to_each_other(trace: Any, read_trace: Read) -> None:
    """A window on the CPU: gloo annotates the transfer on a thread of its own, 321,271 floats in 173 ms."""
    trace.op("aten::add", 0, 10)
    trace.op("c10d::allreduce_", 20, 10)
    trace.add("user_annotation", "gloo:all_reduce", 50, 173_000, 900, **{
        "Input Dims": [[321271]], "Input type": ["float"],
    })  # fmt: skip
    (entry,) = read_trace(trace).collectives
    assert entry == Collective(0, "all_reduce", "", 50_000, 173_000_000, None, None, 321271 * 4)


ITEMS = {
    "Float": 4, "Long": 8, "BFloat16": 2, "float": 4, "long": 8, "int": 4, "unsigned char": 1, "signed char": 1,
    "c10::BFloat16": 2, "Byte": 1,
}  # fmt: skip
WORDS = {
    "allreduce": "all_reduce", "broadcast": "broadcast", "_allgather_base": "all_gather", "allreduce_": "all_reduce",
    "alltoall_base_": "all_to_all", "_allgather_base_": "all_gather", "_reduce_scatter_base_": "reduce_scatter",
    "multimem_all_reduce_": "all_reduce",
}  # fmt: skip


def slow(path: Path) -> Counter[tuple[str | None, int | None, int | None, str]]:
    """(collective, bytes, group size, duration) of each collective's kernel, found by looking through all calls."""
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=str)["traceEvents"]
    events = [e for e in events if e.get("ph") == "X"]
    launches = {e["args"]["correlation"]: e for e in events if e["cat"] in ("cuda_runtime", "cuda_driver")}
    calls = defaultdict(list)
    for e in events:
        if e["cat"] in ("cpu_op", "user_annotation") and re.match(r"c10d::|nccl:|symm_mem::|record_param", e["name"]):
            calls[e["tid"]].append((float(e["ts"]), float(e["ts"]) + float(e["dur"]), e))
    found: Counter[tuple[str | None, int | None, int | None, str]] = Counter()
    for kernel in events:
        if kernel["cat"] != "kernel" or not re.search("nccl|multimem_all_reduce", kernel["name"]):
            continue
        launch = launches.get(kernel["args"]["correlation"])
        around = []
        if launch is not None:
            time = float(launch["ts"])
            around = [e for begin, end, e in calls[launch["tid"]] if begin <= time <= end]
        found[(*expected(kernel, around), str(kernel["dur"]))] += 1
    return found


def expected(kernel: dict[str, Any], around: list[dict[str, Any]]) -> tuple[str | None, int | None, int | None]:
    """What a person reads off the events around one launch."""
    for e in (kernel, *around):
        a = e["args"]
        if "Collective name" in a:
            size = max(a["In msg nelems"], a["Out msg nelems"]) * ITEMS[a["dtype"]]
            return WORDS[a["Collective name"]], size, a["Group size"]
    for e in around:
        name = e["name"].partition("::")[2]
        if name in WORDS:
            pairs = list(zip(e["args"].get("Input Dims", []), e["args"].get("Input type", []), strict=True))
            sizes = [math.prod(dims) * ITEMS[kind] for dims, kind in pairs if kind in ITEMS]
            if not sizes:  # a list of tensors: the annotation has them one by one
                notes = [n["args"] for n in around if n["name"].startswith("nccl:")]
                pairs = list(zip(notes[0].get("Input Dims", []), notes[0].get("Input type", []), strict=True))
                sizes = [sum(math.prod(dims) * ITEMS[kind] for dims, kind in pairs)] if pairs else []
            return WORDS[name], max(sizes) if sizes else None, None
    return ("all_reduce" if "AllReduce" in kernel["name"] else None), None, None


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("a100_nccl_args_relative_ts", 21),
        ("a100_cudagraph_triton_nccl_shapes", 80),
        ("sampled_ws128_rank0", 10),
        ("sampled_ws128_rank1", 10),
        ("v100_ddp_profmem_noshapes_int", 2020),
        ("b200_eager", 74),
    ],
)
def test_real_traces(traces: Path, name: str, kernels: int) -> None:
    """Each kernel's collective, message and group size as the slow reading has them."""
    path = traces / "kineto" / f"{name}.json.gz"
    profile = read(path)
    assert len(profile.collectives) == kernels
    by_duration = slow(path)
    fast = Counter((c.name or None, c.bytes, c.group_size, c.duration_ns) for c in profile.collectives)
    assert fast == Counter(
        {(n, size, of, round(float(us) * 1000)): count for (n, size, of, us), count in by_duration.items()}
    )
    grouped = sum(g.calls for g in profile.groups if g.arguments)
    assert grouped == sum(count for key, count in fast.items() if key[0] is not None)


def test_hosts_of_a_real_trace(traces: Path) -> None:
    """Ten all_reduces of gloo: 321,271 and 2,082,411 floats five times each; of ten groups none is named."""
    found = read(traces / "kineto" / "cpu_only.json.gz").collectives
    assert Counter((c.name, c.bytes, c.group) for c in found) == {
        ("all_reduce", 321271 * 4, ""): 5,
        ("all_reduce", 2082411 * 4, ""): 5,
    }
