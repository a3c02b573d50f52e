"""Whole folders: which source is read, what the helpers tell, and what is not followed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from ascend_tables import LEVEL0, LEVEL1, START, table
from ascend_views import BASE, View

from roofwatch.collectors.ascend import folder as folders
from roofwatch.collectors.ascend.facts import hashed
from roofwatch.collectors.base import Found
from roofwatch.collectors.registry import read_path
from roofwatch.model.errors import RoofwatchError

ALEXNET = "ascend/pytorch_alexnet_910B_ddp2"
QWEN = "ascend/qwen3_0.6b_910B_tp1pp2dp2_level2"
NAME = "node1_4711_20250109065800123_ascend_pt"
OUTPUT = "ASCEND_PROFILER_OUTPUT"
PROF = "PROF_000001_20250109_ABC"

Make = Callable[[dict[str, bytes]], Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a capture's folder with files by their places."""

    def made(files: dict[str, bytes]) -> Path:
        folder = tmp_path / NAME
        for place, text in files.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        return folder

    return made


def records(found: Found) -> int:
    """How many device records there are."""
    return sum(group.calls for group in found.profile.groups)


def files(found: Found) -> list[str]:
    """Names of the files that were read for records."""
    return [path.name for path in found.files]


def view_of_table() -> bytes:
    """A view of the one kernel of ``table({})``, asked for by an op."""
    view = View().op("aten::mm", (-20, -5)).op("aclnnMm", (-15, -8))
    assert BASE == START
    return view.launch("MatMulV3_1", op=-15, runs=(0, 10.5)).text()


def summary(row: dict[str, str], columns: tuple[str, ...] = LEVEL0) -> bytes:
    """A row under the names of ``op_summary``."""
    return table(row, columns=columns).replace(b",Name,", b",Op Name,")


def info(rank: object = 3) -> bytes:
    """``profiler_info_N.json``, as far as it is read."""
    return json.dumps({"config": {}, "rank_id": rank}).encode()


# -- real ones ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["level0", "level1", "level2"])
def test_text_and_database_of_a_level_agree(traces: Path, level: str) -> None:
    """The same kernels, cores, ops, phases and shapes, as often: two runs of one job, one exported either way."""
    found = [read_path(traces / ALEXNET / form / level / "rank0_ascend_pt") for form in ("text", "db")]
    assert [one.profile.collector for one in found] == ["ascend_csv", "ascend_db"]
    assert [records(one) for one in found] == [191, 191]

    def counted(one: Found) -> dict[tuple[object, ...], int]:
        counts: dict[tuple[object, ...], int] = {}
        for group in one.profile.groups:
            core = group.core if level != "level0" else None  # which only the database's tasks tell there
            key = (group.kernel, group.type, core, group.op, group.phase, group.shapes, group.dtypes,
                   group.formats, group.outputs, group.arguments, group.moved_bytes, group.inserted)  # fmt: skip
            counts[key] = counts.get(key, 0) + group.calls
        return counts

    assert counted(found[0]) == counted(found[1])
    for one in found:
        assert (one.profile.rank, one.profile.steps, one.profile.problem) == (0, 1, None)
        assert sum(group.total_ns for group in one.profile.groups if group.linked) == sum(
            group.total_ns for group in one.profile.groups
        )


def test_the_qwen_set(traces: Path) -> None:
    """Kernel table before ``analysis.db``, which has collectives alone; groups by purpose and ranks; world of 4."""
    found = [read_path(traces / QWEN / f"rank_{rank}_ascend_pt") for rank in range(4)]
    assert [records(one) for one in found] == [2463, 15, 2587, 23]
    assert [files(one) for one in found] == [["kernel_details.csv"], ["analysis.db"]] * 2
    assert [(one.profile.rank, one.profile.world_size) for one in found] == [(rank, 4) for rank in range(4)]
    groups = [{(entry.group, entry.group_size) for entry in one.profile.collectives} for one in found]
    assert ("pp (0,2)", 2) in groups[0] & groups[2]
    assert ("pp (1,3)", 2) in groups[1] & groups[3]
    assert ("dp_cp (0,1)", 2) in groups[0] & groups[1]
    assert [one.profile.problem is None for one in found] == [True, False, True, False]


def test_how_tables_name_groups() -> None:
    """The number in the Qwen set's tables is a hash of the group's name in its metadata."""
    assert hashed("group_name_5") == "5862276114690318097"
    assert hashed("group_name_0") == "5862276093215481612"
    assert hashed("group_name_20") == "3985310491373102170"


@pytest.mark.parametrize("inner", ["", OUTPUT, f"{OUTPUT}/."])
def test_the_folder_or_its_output(traces: Path, inner: str) -> None:
    """The output folder alone is a capture too; only the helpers above it are not seen then."""
    found = read_path(traces / ALEXNET / "text/level1/rank1_ascend_pt" / inner)
    assert (records(found), found.profile.has_host_events) == (191, True)
    assert found.profile.rank == (None if inner else 1)


def test_several_captures_are_named(traces: Path) -> None:
    """A folder of two ranks says which there are; one with a single rank in it is that."""
    with pytest.raises(RoofwatchError, match=r"holds 2 captures \(rank0_ascend_pt, rank1_ascend_pt\): give one"):
        read_path(traces / ALEXNET / "text/level1")
    assert records(read_path(traces / ALEXNET / "text/level0")) == 191


# -- which source ------------------------------------------------------------------------------------------------------


def test_order_of_sources(make: Make, traces: Path) -> None:
    """Database, kernel table, summary, view: each only where none before it has records."""
    database = (traces / ALEXNET / "db/level1/rank1_ascend_pt" / OUTPUT / "ascend_pytorch_profiler_1.db").read_bytes()
    folder = make({
        f"{PROF}/mindstudio_profiler_output/op_summary_20250109.csv": table({}, columns=LEVEL0),
        f"{OUTPUT}/kernel_details.csv": table({}),
        f"{OUTPUT}/ascend_pytorch_profiler_1.db": database,
        f"{OUTPUT}/trace_view.json": view_of_table(),
    })  # fmt: skip
    assert files(read_path(folder)) == ["ascend_pytorch_profiler_1.db"]
    (folder / OUTPUT / "ascend_pytorch_profiler_1.db").unlink()
    found = read_path(folder)
    assert (files(found), found.profile.has_host_events) == (["kernel_details.csv"], True)
    (folder / OUTPUT / "kernel_details.csv").unlink()
    (folder / OUTPUT / "trace_view.json").rename(folder / OUTPUT / "other.json")
    assert files(read_path(folder)) == ["op_summary_20250109.csv"]
    shutil.rmtree(folder / PROF)
    found = read_path(folder)
    assert (files(found), found.profile.collector) == (["other.json"], "ascend_trace_view")


def test_table_and_view_together(make: Make) -> None:
    """The table's details, the view's ops; the first file is the table, which names the window."""
    found = read_path(make({f"{OUTPUT}/kernel_details.csv": table({}), f"{OUTPUT}/trace_view.json": view_of_table()}))
    (group,) = found.profile.groups
    assert (group.type, group.core, group.shapes, group.op) == ("MatMulV3", "AI_CORE", "[[16,32],[32,8]]", "aclnnMm")
    assert (group.linked, group.step_calls, found.profile.steps) == (True, 1, 1)
    assert files(found) == ["kernel_details.csv"]
    (device,) = found.profile.devices
    assert {cause.cause.value: cause.total_ns for cause in device.causes} == {
        "launch_bound": 5_000,
        "launch_gap": 15_000,
    }


def test_sources_without_records_give_way(make: Make) -> None:
    """A table with a head alone, a database that is none, an ``analyse.done``: the view is read, and why is said."""
    found = read_path(make({
        f"{OUTPUT}/ascend_pytorch_profiler_0.db": b"SQLite format 3\x00" + b"\x00" * 500,
        f"{OUTPUT}/kernel_details.csv": table(),
        f"{OUTPUT}/trace_view.json": view_of_table(),
        f"{OUTPUT}/analyse.done": b"",
        "profiler_info_0.json": info(0),
    }))  # fmt: skip
    assert (files(found), records(found)) == (["trace_view.json"], 1)
    problem = found.profile.problem
    assert problem is not None
    assert "ascend_pytorch_profiler_0.db" in problem
    assert "kernel_details.csv holds no kernel and no collective" in problem


def test_a_damaged_view_costs_only_the_links(make: Make) -> None:
    """The table is read without it, and why is said."""
    view = b'["async_npu" and nothing'
    found = read_path(make({f"{OUTPUT}/kernel_details.csv": table({}), f"{OUTPUT}/trace_view.json": view}))
    assert (records(found), found.profile.has_host_events) == (1, False)
    assert found.profile.problem is not None


@pytest.mark.parametrize(
    "contents",
    [
        {"profiler_info_0.json": info(0), f"{OUTPUT}/analyse.done": b""},
        {f"{OUTPUT}/op_statistic.csv": b"OP Type,Core Type,Count,Total Time(us)\nAdd,AI_CORE,1,2\n"},
        {f"{PROF}/host/data/unaging.additional": b"\x00\x01" * 100},
        {},
    ],
)
def test_nothing_to_read(make: Make, tmp_path: Path, contents: dict[str, bytes]) -> None:
    """One sentence, that says what to do."""
    folder = make(contents) if contents else tmp_path
    with pytest.raises(RoofwatchError, match=r"neither a database nor a table .*\.analyse"):
        read_path(folder)


def test_all_sources_without_records(make: Make) -> None:
    """Where all of them fail, the first reasons are told."""
    with pytest.raises(RoofwatchError, match=r"holds nothing that can be read: .*kernel_details\.csv holds no kernel"):
        read_path(make({f"{OUTPUT}/kernel_details.csv": table(), f"{OUTPUT}/analyse.done": b""}))


def test_slices(make: Make) -> None:
    """Slices of the latest export are one table, in order; those of an earlier export are not read."""
    rows = [{"Start Time(us)": f"{START + 20 * i}", "Type": f"T{i}"} for i in range(12)]
    output = f"{PROF}/mindstudio_profiler_output"
    slices = {f"{output}/op_summary_slice_{i}_20250109120000.csv": summary(row) for i, row in enumerate(rows)}
    old = {f"{output}/op_summary_slice_0_20250109110000.csv": summary({})}
    found = read_path(make({**slices, **old}))
    assert files(found) == [f"op_summary_slice_{i}_20250109120000.csv" for i in range(12)]
    assert {group.kernel for group in found.profile.groups} == {f"T{i}" for i in range(12)}
    assert found.profile.devices[0].span_ns == 20_000 * 11 + 10_500


def test_slices_may_differ_in_their_columns(make: Make) -> None:
    """A pipe that one slice does not tell is not told of its rows."""
    first = summary({"aic_mac_ratio": "0.5"}, LEVEL1)
    second = summary({"Start Time(us)": f"{START + 20}", "Type": "Add"})
    found = read_path(make({"op_summary_slice_0_1.csv": first, "op_summary_slice_1_1.csv": second}))
    pipes = {group.kernel: group.pipes for group in found.profile.groups}
    assert pipes["Add"] is None
    assert pipes["MatMulV3"] is not None
    assert pipes["MatMulV3"].mac_ns == pytest.approx(5_250)


# -- helpers -----------------------------------------------------------------------------------------------------------


def test_what_helpers_tell(make: Make) -> None:
    """Rank by the file's name, pid by the folder's, world size, chip, and the groups of collectives."""
    rows = [
        {},
        {"Name": "hcom_allGather__097_6_1", "Type": "hcom_allGather_", "Accelerator Core": "COMMUNICATION",
         "Start Time(us)": f"{START + 50}", "Duration(us)": "5"},
    ]  # fmt: skip
    metadata = {
        "distributed_args": {"world_size": 4},
        "parallel_group_info": {"group_name_5": {"group_name": "dp_cp", "global_ranks": [0, 1]}},
    }
    communication = {"step13": {"p2p": {}, "collective": {"hcom_allGather__097_6_1@5862276114690318097": {}}}}
    device = {"DeviceInfo": [{"ai_core_num": 20, "aic_frequency": "1650", "aiv_num": 40}]}
    found = read_path(make({
        f"{OUTPUT}/kernel_details.csv": table(*rows),
        f"{OUTPUT}/communication.json": json.dumps(communication).encode(),
        "profiler_info_1.json": info("7"),
        "profiler_metadata.json": json.dumps(metadata).encode(),
        f"{PROF}/device_0/info.json.0": json.dumps(device).encode(),
    }))  # fmt: skip
    profile = found.profile
    assert (profile.rank, profile.world_size, profile.pid) == (1, 4, 4711)
    assert (profile.devices[0].units, profile.devices[0].clock_hz) == (20, 1.65e9)
    (entry,) = profile.collectives
    assert (entry.name, entry.group, entry.group_size) == ("all_gather", "dp_cp (0,1)", 2)


@pytest.mark.parametrize(("rank", "told"), [(5, 5), ("5", 5), (-1, None), ("x", None), (None, None), ([], None)])
def test_rank_in_the_file(make: Make, rank: object, told: int | None) -> None:
    """Without a rank in its name the file says it: a number once, a text since; what is no rank is none."""
    found = read_path(make({f"{OUTPUT}/kernel_details.csv": table({}), "profiler_info.json": info(rank)}))
    assert found.profile.rank == told


HELPERS = (
    "profiler_info.json", "profiler_metadata.json", f"{OUTPUT}/communication.json", f"{PROF}/device_0/info.json.0",
)  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"a": ' * 5000, b'{"step": 7}', b'{"step": {"collective": []}}',
        b'{"DeviceInfo": 5}', b'{"DeviceInfo": [{"ai_core_num": [], "aic_frequency": "1e9"}]}',
        b'{"distributed_args": 3, "parallel_group_info": {"a": 5}}',
    ],
)  # fmt: skip
def test_helpers_may_be_anything(make: Make, text: bytes) -> None:
    """A helper that is damaged tells nothing, and costs nothing."""
    found = read_path(make({f"{OUTPUT}/kernel_details.csv": table({}), **dict.fromkeys(HELPERS, text)}))
    assert (found.profile.rank, found.profile.world_size, found.profile.devices[0].units) == (None, None, None)
    assert records(found) == 1


# -- what is not followed ----------------------------------------------------------------------------------------------


def test_links_are_not_followed(make: Make, tmp_path: Path) -> None:
    """Neither to files nor to folders, inside the folder or outside."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kernel_details.csv").write_bytes(table({}))
    folder = make({"profiler_info_0.json": info(0)})
    (folder / OUTPUT).mkdir()
    (folder / OUTPUT / "kernel_details.csv").symlink_to(outside / "kernel_details.csv")
    (folder / "linked").symlink_to(outside, target_is_directory=True)
    (folder / "round").symlink_to(folder, target_is_directory=True)
    with pytest.raises(RoofwatchError, match="neither a database"):
        read_path(folder)
    (folder / "profiler_info_0.json").unlink()
    (folder / "profiler_info_9.json").symlink_to(tmp_path / NAME / "none")
    (folder / "real.csv").write_bytes(table({}))
    found = read_path(folder)
    assert (files(found), found.profile.rank) == (["real.csv"], None)


def test_other_things_than_files(make: Make) -> None:
    """A pipe in a folder is not opened, or nobody would ever answer."""
    folder = make({"kernel_details.csv": table({})})
    os.mkfifo(folder / "trace_view.json")
    assert files(read_path(folder)) == ["kernel_details.csv"]


def test_the_walk_is_bounded(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not deeper than a capture is, nor through more entries or files than there are in one."""
    deep = "/".join(["d"] * folders.MAX_DEPTH)
    with pytest.raises(RoofwatchError, match="neither"):
        read_path(make({f"{deep}/kernel_details.csv": table({})}))
    folder = make({**{f"a/{i}": b"" for i in range(50)}, "z/kernel_details.csv": table({})})
    assert records(read_path(folder)) == 1
    monkeypatch.setattr(folders, "MAX_ENTRIES", 40)
    with pytest.raises(RoofwatchError, match="neither"):
        read_path(folder)
    monkeypatch.setattr(folders, "MAX_ENTRIES", 1000)
    monkeypatch.setattr(folders, "MAX_LOOKED_AT", 40)
    with pytest.raises(RoofwatchError, match="neither"):
        read_path(folder)


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    """One that is not there."""
    with pytest.raises(RoofwatchError, match="cannot be opened"):
        read_path(tmp_path / "none")
