"""``analyze`` and ``import`` on real, on small and on damaged traces."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from roofwatch.model import devices
from roofwatch.model.answer_rows import ROW_KEYS
from roofwatch.model.record import Device, Peak, Peaks, Vendor

Roofwatch = Callable[..., "subprocess.CompletedProcess[str]"]

COVERAGE = {
    "windows", "device_records", "device_time_ns", "busy_ns", "span_ns", "linked_share", "backlog_share",
    "classified_share", "named_share", "sampled_share", "graph_share", "graph_attributed_share", "model_flops", "mfu",
    "mfu_known_share", "disagree_share", "layout_ns", "layout_share", "dropped",
    "source", "sources", "rows_source", "left_out",
}  # fmt: skip
QWEN = "kineto/h100_Qwen_Qwen1.5-0.5B-Chat.json.gz"

# One 4096³ half-precision addmm of 800 µs and one copy of 100 µs on an A100, launched 10 µs before they run.
DEVICE = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_198_045_184, "numSms": 108}
SHAPES = [[4096], [4096, 4096], [4096, 4096], [], []]
TYPES = ["c10::Half", "c10::Half", "c10::Half", "Scalar", "Scalar"]
EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 7, "tid": 7, "ts": 1_000.0, "dur": 50.0,
     "args": {"External id": 1, "Input Dims": SHAPES, "Input type": TYPES}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, "ts": 1_010.0, "dur": 5.0,
     "args": {"correlation": 11, "External id": 1}},
    {"ph": "X", "cat": "kernel", "name": "ampere_fp16_gemm", "pid": 0, "tid": 7, "ts": 1_020.0, "dur": 800.0,
     "args": {"correlation": 11, "External id": 1, "device": 0, "stream": 7}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "pid": 7, "tid": 7, "ts": 1_060.0, "dur": 5.0,
     "args": {"correlation": 12}},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pinned)", "pid": 0, "tid": 7, "ts": 1_820.0,
     "dur": 100.0, "args": {"correlation": 12, "device": 0, "stream": 7, "bytes": 1024}},
]  # fmt: skip


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The trace of the two records above."""
    path = tmp_path / "small.json.gz"
    document = {"schemaVersion": 1, "deviceProperties": [DEVICE], "traceEvents": EVENTS}
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def test_the_json_is_the_contract(roofwatch: Roofwatch, traces: Path) -> None:
    """One object with the documented keys, rows with theirs in order, null for unknown; --top holds here too."""
    done = roofwatch("analyze", str(traces / QWEN), "--format", "json", "--top", "7")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert list(answer) == ["schema_version", "query", "coverage", "device", "timeline", "graphs", "cost", "rows"]
    assert answer["schema_version"] == 1
    assert set(answer["coverage"]) == COVERAGE
    assert answer["device"]["model"].startswith("NVIDIA H100")
    assert {"vendor", "model", "units", "memory_bytes", "inferred", "peaks"} <= set(answer["device"])
    assert {"busy_ns", "idle_ns", "causes", "devices"} == set(answer["timeline"])
    assert answer["cost"] is None
    assert len(answer["rows"]) == 7
    assert all(tuple(row) == ROW_KEYS for row in answer["rows"])
    everything = json.loads(roofwatch("analyze", str(traces / QWEN), "--format", "json", "--top", "0").stdout)
    assert len(everything["rows"]) > 20
    assert everything["rows"][:7] == answer["rows"]
    assert sum(row["total_ns"] for row in everything["rows"]) == answer["coverage"]["device_time_ns"]
    assert sum(row["share"] for row in everything["rows"]) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["kineto/mi300_Qwen1.5-0.5B.json.gz", "kineto/cpu_only.json.gz", QWEN])
def test_tables_of_real_traces_fit_80_columns(roofwatch: Roofwatch, traces: Path, name: str) -> None:
    """NVIDIA, AMD and CPU: a head, 20 rows at most, no line wider than 80."""
    done = roofwatch("analyze", str(traces / name))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith(Path(name).name)
    assert max(len(line) for line in lines if str(traces) not in line) <= 80  # a path is told whole
    table = lines[lines.index("") + 1 :]
    assert 1 <= sum(line.lstrip().split(" ", 1)[0].isdigit() for line in table) <= 20


def test_csv_has_a_header_and_as_many_rows(roofwatch: Roofwatch, traces: Path) -> None:
    """Every row has every column, and unknown is empty."""
    done = roofwatch("analyze", str(traces / QWEN), "--format", "csv", "--top", "30")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert tuple(rows[0]) == ROW_KEYS
    assert len(rows) == 30
    assert all(None not in row.values() and None not in row for row in rows)


def test_a_product_by_hand(roofwatch: Roofwatch, small: Path) -> None:
    """2·4096³ FLOP and at most 4096² for the bias; 3·4096² + 4096 halves; roof 440.5 µs of 800: 55 %.

    The copy is 100 of 900 µs, 11.1 %.
    """
    done = roofwatch("analyze", str(small), "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    product, copy = answer["rows"]
    assert (product["op"], product["kind"], product["bound"], product["evidence"]) == (
        "aten::addmm", "matmul", "compute", "shapes",
    )  # fmt: skip
    assert product["total_ns"] == 800_000
    assert product["flops"] == pytest.approx(2 * 4096**3, rel=2e-4)
    assert product["bytes"] == pytest.approx(3 * 4096**2 * 2, rel=1e-3)
    assert product["roof_fraction"] == pytest.approx(0.5506, rel=1e-3)
    assert product["ridge"] == pytest.approx(153.02, rel=1e-4)
    assert (copy["bound"], copy["evidence"], copy["share"]) == ("copy", "definition", pytest.approx(1 / 9))
    assert answer["timeline"]["busy_ns"] == 900_000


def test_the_next_command_is_told_whatever_the_path(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """A path that does not fit beside the command has a line of its own: it is never another's. A copy is 8 ms late."""
    waiting = [*EVENTS[:-1], {**EVENTS[-1], "ts": 9_820.0}]
    document = json.dumps({"schemaVersion": 1, "deviceProperties": [DEVICE], "traceEvents": waiting})
    long = "a" * 90 + ".json"
    for name, told in (
        (long, f"→ run:\n     roofwatch diagnose \\\n       {long}\n"),
        ("a.json", "→ run: roofwatch diagnose a.json\n"),
    ):
        (tmp_path / name).write_text(document)
        assert told in roofwatch("analyze", name).stdout


BROKEN_WITHOUT_RECORDS = {
    "be_pairs", "empty_file", "empty_traceEvents", "no_traceEvents", "truncated_after_comma", "truncated_gz_stream",
    "truncated_mid_event",
}  # fmt: skip
BROKEN_IN_PART = {
    "concatenated_two_documents", "control_char_in_name", "invalid_utf8_in_name", "nan_inf_values",
    "negative_and_huge_dur", "toplevel_list_unclosed", "trailing_comma_in_args", "unescaped_quote_in_name",
    "windows_backslash",
}  # fmt: skip


def test_every_broken_trace_gives_records_or_a_sentence(roofwatch: Roofwatch, traces: Path) -> None:
    """Exit 0 or 4 with records on stdout, or exit 1 without; one sentence that names the file; never a traceback."""
    files = sorted((traces / "kineto_broken").iterdir())
    assert len(files) == 22
    for file in files:
        name = file.name.split(".")[0]
        done = roofwatch("analyze", str(file), "--format", "json")
        expected = 1 if name in BROKEN_WITHOUT_RECORDS else 4 if name in BROKEN_IN_PART else 0
        assert done.returncode == expected, (name, done.stderr)
        assert "Traceback" not in done.stderr
        lines = done.stderr.splitlines()
        nameless = name.startswith("toplevel_list")  # a list of events does not tell its device
        assert len(lines) == (expected != 0) + nameless, (name, lines)
        assert not nameless or "does not tell which device it was" in lines[0]
        assert all(line.startswith(f"roofwatch: {file}") for line in lines)
        if expected == 1:
            assert done.stdout == ""
        else:
            assert json.loads(done.stdout)["rows"], name


@pytest.mark.parametrize("make", [Path.mkdir, lambda _: None, lambda path: path.write_text("hello")])
def test_what_is_no_trace(roofwatch: Roofwatch, tmp_path: Path, make: Callable[[Path], object]) -> None:
    """A folder, nothing, a text: one sentence that names it, exit 1."""
    path = tmp_path / "what"
    make(path)
    done = roofwatch("analyze", str(path))
    assert (done.returncode, done.stdout) == (1, "")
    assert str(path) in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["analyze", "diagnose", "graph-capture", "import"])
@pytest.mark.parametrize("device", ["/dev/zero", "pipe"])
def test_what_is_no_regular_file_is_refused_up_front(
    roofwatch: Roofwatch, small: Path, tmp_path: Path, command: str, device: str
) -> None:
    """A device without end and a pipe that nobody writes to would both be read for ever."""
    given = device
    if device == "pipe":
        given = str(tmp_path / "pipe")
        os.mkfifo(given)
    words = {
        "graph-capture": ["analyze", str(small), "--graph-capture", given],
        "import": ["import", given, "--db", f"sqlite:///{tmp_path / 'x.db'}"],
    }.get(command, [command, given])
    done = roofwatch(*words)
    assert done.returncode == 1
    assert f"{given} is a pipe or a device, not a file: save what it gives to a file first." in done.stderr
    assert ".." not in done.stderr


def test_import_counts_a_file_once(roofwatch: Roofwatch, small: Path, tmp_path: Path) -> None:
    """Twice into a database: one window, found by node, by model, by label; its time is the trace's, 1970."""
    url = f"sqlite:///{tmp_path}/t.db"
    arguments = ("import", str(small), "--db", url, "--node", "lab", "--model", "m", "--label", "run=1")
    first, second = roofwatch(*arguments), roofwatch(*arguments)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == f"{small}: 2 records\n"
    assert second.stdout == f"{small}: 2 records, known already\n"
    assert json.loads(roofwatch("windows", "--db", url, "--since", "all", "--format", "json").stdout)["rows"][0][
        "device_records"
    ] == 2  # fmt: skip
    for wanted in (["--node", "lab"], ["--model", "m"], ["--label", "run=1"], ["--label", "file=small.json.gz"]):
        found = roofwatch("top", "--db", url, "--since", "all", "--format", "json", *wanted)
        assert [row["calls"] for row in json.loads(found.stdout)["rows"]] == [1, 1], wanted
    for wanted in (["--label", "run=2"], ["--node", "other"], ["--model", "n"]):
        missing = roofwatch("top", "--db", url, "--since", "all", "--format", "json", *wanted)
        assert missing.returncode == 4
        assert json.loads(missing.stdout)["rows"] == []
        told = {"--label": "nothing matches", "--node": "no node 'other' here: there is lab."}
        assert told.get(wanted[0], "no model 'n' here: there is m.") in missing.stderr


def test_import_goes_on_after_a_bad_file(roofwatch: Roofwatch, small: Path, tmp_path: Path) -> None:
    """The good one is stored, the bad one told, the exit code is 1."""
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    url = f"sqlite:///{tmp_path}/t.db"
    done = roofwatch("import", str(bad), str(small), "--db", url)
    assert done.returncode == 1
    assert str(bad) in done.stderr
    assert json.loads(roofwatch("nodes", "--db", url, "--format", "json").stdout)["rows"][0]["windows"] == 1


def test_a_file_and_a_store_answer_alike(roofwatch: Roofwatch, traces: Path, tmp_path: Path) -> None:
    """The rows of ``analyze`` and those of ``top`` after ``import`` are the same objects."""
    url, file = f"sqlite:///{tmp_path}/t.db", str(traces / QWEN)
    assert roofwatch("import", file, "--db", url).returncode == 0
    stored = json.loads(roofwatch("top", "--db", url, "--since", "all", "--top", "0", "--format", "json").stdout)
    read = json.loads(roofwatch("analyze", file, "--top", "0", "--format", "json").stdout)
    assert stored["rows"] == read["rows"]
    assert {**stored["coverage"], "sampled_share": None} == read["coverage"]


# A 512³ float32 product of 2 ms on a CPU: 2·512³ = 268 MFLOP, so on 200 GFLOP/s 1.342 ms, 67.1 % of the roof.
CPU_EVENT = {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 1_000.0, "dur": 2_000.0,
    "args": {"External id": 1, "Input Dims": [[512, 512], [512, 512]], "Input type": ["float", "float"]},
}  # fmt: skip


@pytest.fixture
def cpu(tmp_path: Path) -> Path:
    """A trace of one CPU op, and this CPU's peaks for three threads in the cache."""
    path = tmp_path / "cpu.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [CPU_EVENT]}))
    here = Device(Vendor.CPU, devices.cpu_model(), units=3)
    peaks = Peaks({("fp32", "matrix"): Peak(200e9, "measured")}, Peak(50e9, "measured"))
    devices.save_peaks(tmp_path / "cache" / "roofwatch" / "peaks.json", devices.calibration_key(here), peaks)
    return path


def test_a_cpu_trace_is_judged_only_where_the_user_says_that_it_is_from_here(roofwatch: Roofwatch, cpu: Path) -> None:
    """Without --here no verdict and a sentence that says why; with it and the right threads the verdict by hand."""
    unknown = roofwatch("analyze", str(cpu), "--format", "json")
    assert unknown.returncode == 0
    answer = json.loads(unknown.stdout)
    assert (answer["rows"][0]["bound"], answer["device"]["model"]) == ("unknown", "CPU")
    assert "does not say which CPU recorded it" in unknown.stderr
    assert "add --here" in unknown.stderr
    here = roofwatch("analyze", str(cpu), "--here", "--threads", "3", "--format", "json")
    assert (here.returncode, here.stderr) == (0, "")
    answer = json.loads(here.stdout)
    assert (answer["query"]["here"], answer["query"]["threads"]) == (True, 3)
    assert (answer["device"]["model"], answer["device"]["units"]) == (devices.cpu_model(), 3)
    assert (answer["rows"][0]["bound"], answer["rows"][0]["evidence"]) == ("compute", "shapes")
    assert answer["rows"][0]["roof_fraction"] == pytest.approx(0.671, abs=5e-4)


def test_threads_that_were_not_measured_are_told(roofwatch: Roofwatch, cpu: Path) -> None:
    """The command that measures them; by default torch's number; --threads alone makes no sense."""
    done = roofwatch("analyze", str(cpu), "--here", "--threads", "5")
    assert done.returncode == 0
    assert "not measured with 5 threads: run 'roofwatch devices calibrate --threads 5' first" in done.stderr
    usual = roofwatch("analyze", str(cpu), "--here", "--format", "json", env={"OMP_NUM_THREADS": "2"})
    assert json.loads(usual.stdout)["query"]["threads"] == 2
    assert roofwatch("analyze", str(cpu), "--threads", "3").returncode == 2


def test_import_takes_the_same_word_for_it(roofwatch: Roofwatch, cpu: Path, small: Path, tmp_path: Path) -> None:
    """In the database with its verdict and the CPU's name; a trace of a GPU has nothing that --here could mean."""
    url = f"sqlite:///{tmp_path}/t.db"
    done = roofwatch("import", str(cpu), str(small), "--here", "--threads", "3", "--db", url)
    assert done.returncode == 0
    assert done.stderr == f"roofwatch: {small}: --here does nothing, its time is that of other devices than a CPU.\n"
    row = json.loads(
        roofwatch("top", "--db", url, "--since", "all", "--device", devices.cpu_model(), "--format", "json").stdout
    )["rows"][0]
    assert (row["op"], row["bound"]) == ("aten::mm", "compute")


def test_a_known_file_stays_as_it_was(roofwatch: Roofwatch, cpu: Path, tmp_path: Path) -> None:
    """Imported without --here and then with it, under another model: told as known, one window, its first model."""
    url = f"sqlite:///{tmp_path}/t.db"
    assert roofwatch("import", str(cpu), "--db", url, "--model", "a").returncode == 0
    again = roofwatch("import", str(cpu), "--db", url, "--model", "b", "--here", "--threads", "3")
    assert (again.returncode, again.stdout) == (0, f"{cpu}: 1 record, known already\n")
    rows = json.loads(roofwatch("windows", "--db", url, "--since", "all", "--format", "json").stdout)["rows"]
    assert [row["model"] for row in rows] == ["a"]


def test_an_imported_cpu_has_a_name(roofwatch: Roofwatch, cpu: Path, small: Path, tmp_path: Path) -> None:
    """Beside a GPU: one of each, and each is named."""
    url = f"sqlite:///{tmp_path}/t.db"
    assert roofwatch("import", str(cpu), str(small), "--db", url).returncode == 0
    row = json.loads(roofwatch("nodes", "--db", url, "--format", "json").stdout)["rows"][0]
    assert (row["devices"], row["device"]) == (2, "CPU, NVIDIA A100-SXM4-80GB")
