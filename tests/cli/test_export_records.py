"""``export --format parquet|csv|json``: every record once, with all that is known of it, a page at a time."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from roofwatch.cli import records as exporting
from roofwatch.model import records
from roofwatch.model.errors import RoofwatchError, UsageError
from roofwatch.model.histogram import bucket_of
from roofwatch.model.record import Window
from roofwatch.model.records import KEYS
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries
from roofwatch.store.queries import records as paging
from roofwatch.store.unpack import Unpacker

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))  # store_builders; the import mode leaves the path alone

import fresh
from store_builders import (
    CPU,
    GEMM,
    H100,
    NORM,
    process_of,
    running_store,
    segment_of,
    send,
    stat,
    window_of,
)

Roofwatch = Callable[..., "subprocess.CompletedProcess[str]"]
START_NS = 1_800_000_000_000_000_000
OTHER = 1.5  # ns a call: the roof of NORM


def three_windows() -> list[Window]:
    """Two that begin at the same moment, one later, of two nodes and two devices.

    The first stands for ten times its span, so its 3000 ns of GEMM stand for 30,000.
    """
    first = process_of("n1", 7, model="llama", job="slurm:1", rank=3, labels={"git": "4f2a"})
    return [
        window_of("a", [stat(GEMM, [1000, 2000], roof_ns=500.0, ridge=295.0), stat(NORM, [40], roof_ns=OTHER)],
                  process=first, start_unix_ns=START_NS, span_ns=1_000_000, represents_ns=10_000_000, steps=2),
        window_of("b", [stat(GEMM, [7])], process=process_of("n2", 8), start_unix_ns=START_NS, device=CPU),
        window_of("c", [stat(GEMM, [9])], process=first, start_unix_ns=START_NS + 10**9),
    ]  # fmt: skip


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """A database that holds them."""
    opened = fresh.opened(tmp_path / "w.db")
    writer = Writer(opened)
    assert writer.submit(Unpacker().unpack(segment_of(three_windows(), 1))).result(30).reason == ""
    writer.close()
    yield opened
    opened.close()


def url(tmp_path: Path) -> str:
    """The same database, for a program."""
    return f"sqlite:///{tmp_path / 'w.db'}"


@pytest.mark.usefixtures("db")
def test_a_record_has_all_its_keys(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """As JSON lines, by hand; CSV and Parquet hold the same values, lists and maps as JSON text."""
    done = roofwatch("export", "--db", url(tmp_path), "--since", "all", "--format", "json", "-o", "-")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 4
    found = next(row for row in rows if row["pid"] == 7 and row["kernel"] == GEMM.kernel)
    low, high = bucket_of(1000), bucket_of(2000)
    assert tuple(found) == KEYS
    assert found["histogram_counts"] == [1, *[0] * (high - low - 1), 1]
    assert {key: found[key] for key in KEYS if key not in {"histogram_counts", "window", "process"}} == {
        "start_unix_ns": START_NS, "duration_ns": 1_000_000, "steps": 2, "first_step": None,
        "represents_ns": 10_000_000, "trigger": "periodic", "collector": "kineto", "node": "n1", "pid": 7,
        "job": "slurm:1", "rank": 3, "local_rank": None, "world_size": None, "model": "llama",
        "labels": {"git": "4f2a"}, "vendor": "nvidia", "device": H100.model, "index": 0, "uuid": "GPU-1",
        "kernel": GEMM.kernel, "kind": "matmul", "op": "aten::addmm", "phase": "forward", "module": None,
        "shapes": [[8, 512], [512, 512]], "dtypes": ["bf16", "bf16"], "arguments": None, "formula": "matmul",
        "precision": "bf16", "unit": "matrix", "flops": 4_194_304, "bytes": 540_672, "flops_max": None, "calls": 2,
        "total_ns": 3000, "est_ns": 30_000, "min_ns": 1000, "max_ns": 2000, "step_calls": 2, "step_ns": 3000,
        "bound": "compute", "evidence": "shapes", "formula_bound": None, "roof_ns": 500.0, "ridge": 295.0,
        "histogram_low": low,
    }  # fmt: skip
    done = roofwatch("export", "--db", url(tmp_path), "--since", "all", "--format", "csv", "-o", "-")
    told = list(csv.DictReader(io.StringIO(done.stdout)))
    expected = []
    for row in rows:
        texts = {
            key: json.dumps(value, separators=(",", ":"))
            for key, value in row.items()
            if isinstance(value, list | dict)
        }
        expected.append({key: texts.get(key, "" if value is None else str(value)) for key, value in row.items()})
    assert told == expected
    out = tmp_path / "k.parquet"
    done = roofwatch("export", "--db", url(tmp_path), "--since", "all", "--format", "parquet", "-o", str(out))
    assert done.returncode == 0
    assert "4 records of 3 windows" in done.stderr
    as_parquet = pq.read_table(out).to_pylist()
    for row in as_parquet:
        row |= {key: row[key] and json.loads(row[key]) for key in ("labels", "shapes", "dtypes", "arguments")}
    assert as_parquet == rows
    assert sorted(path.name for path in tmp_path.glob("*parquet*")) == ["k.parquet"]


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_reader_that_goes_away(tmp_path: Path, form: str) -> None:
    """As in a pipe to head: no word, and the exit code that a shell reports."""
    read, write = os.pipe()
    os.close(read)
    program = [sys.executable, "-m", "roofwatch.cli.main", "export", "--db", url(tmp_path), "--since", "all"]
    done = subprocess.run(
        [*program, "--format", form, "-o", "-"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.usefixtures("db")
def test_a_served_store_gives_the_same(roofwatch: Roofwatch, tmp_path: Path) -> None:
    """Line for line as the database that is opened here."""
    here = roofwatch("export", "--db", url(tmp_path), "--since", "all", "--format", "csv", "-o", "-")
    (tmp_path / "served").mkdir()
    with running_store(tmp_path / "served") as running:
        send(running.address, [segment_of(three_windows(), 1)], 1)
        there = roofwatch("export", "--store", running.address, "--since", "all", "--format", "csv", "-o", "-")
    assert there.returncode == 0, there.stderr
    assert there.stdout == here.stdout
    assert len(there.stdout.splitlines()) == 1 + 4


def test_filters_choose_windows_and_devices(db: Database) -> None:
    """As everywhere: by node, and by device."""
    for given, calls in (
        (Filter(node="n2"), [1]),
        (Filter(vendor="cpu"), [1]),
        (Filter(since_unix_ns=START_NS + 1), [1]),
    ):
        page = Queries(db).run("records", given)
        assert [row[records.POINTERS] for row in page["rows"]] == calls
        assert page["coverage"]["windows"] == 1


def test_pages_hold_every_record_once(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window a page, also of those that begin at the same moment; a window that came since is of the next export."""
    monkeypatch.setattr(paging, "PAGE_WINDOWS", 1)
    queries, seen, options = Queries(db), [], {}
    for number in range(3):
        page = queries.run("records", Filter(), options=options)
        assert len(page["windows"]) == 1
        assert page["coverage"]["source"] == "raw"
        seen += [row[0] for row in records.values(page)]
        options = {"after": page["next"], "upto": page["upto"]}
        if number == 0:
            writer = Writer(db)
            late = window_of("late", [stat(GEMM, [5])], start_unix_ns=START_NS + 5)
            assert writer.submit(Unpacker().unpack(segment_of([late], 2))).result(30).reason == ""
            writer.close()
    assert options["after"] is None
    assert len(seen) == 4
    assert len(set(seen)) == 3
    monkeypatch.setattr(paging, "PAGE_ROWS", 1)
    assert len(queries.run("records", Filter())["windows"]) == 1


@pytest.mark.parametrize(
    "options", [{"after": 3}, {"after": [1]}, {"after": [1, "x"]}, {"upto": "1"}, {"upto": 1 << 70}]
)
def test_pages_that_are_none(db: Database, options: dict[str, object]) -> None:
    """They are refused in a sentence."""
    with pytest.raises(UsageError, match="page of records"):
        Queries(db).run("records", Filter(), options=options)


def test_kernels_that_are_gone_are_told(roofwatch: Roofwatch, db: Database, tmp_path: Path) -> None:
    """A window without its block is left out, and said so; without any there is no file."""
    with db.write() as connection:
        connection.exec_driver_sql("DELETE FROM kernel_blocks WHERE window_id = (SELECT max(id) FROM windows)")
    arguments = ("export", "--db", url(tmp_path), "--format", "csv", "-o", str(tmp_path / "k.csv"))
    done = roofwatch(*arguments, "--since", "all")
    assert done.returncode == 0
    assert "1 window left out" in done.stderr
    assert len((tmp_path / "k.csv").read_text().splitlines()) == 1 + 3
    (tmp_path / "k.csv").unlink()
    assert roofwatch(*arguments, "--node", "elsewhere", "--since", "all").returncode == 4
    assert not list(tmp_path.glob("*k.csv*"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("abcd12", "--format", "csv", "-o", "x"), "no abcd12"),
        (("--format", "insight", "-o", "x"), "name it"),
        (("abcd12", "--format", "insight", "-o", "x", "--node", "n1"), "--node chooses windows"),
        (("--format", "parquet", "-o", "-"), "name a file with -o"),
    ],
)
def test_what_does_not_go_together(roofwatch: Roofwatch, words: tuple[str, ...], told: str) -> None:
    """Exit code 2 and a sentence."""
    done = roofwatch("export", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in " ".join(done.stderr.split())


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One sentence says what to install, before anything is asked or written."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "roofwatch.cli.records_parquet", raising=False)
    monkeypatch.delattr("roofwatch.cli.records_parquet", raising=False)
    with pytest.raises(RoofwatchError, match=r"pip install 'roofwatch\[parquet\]'"):
        exporting.export(Filter(), "parquet", tmp_path / "x", store=None, db=str(tmp_path / "none.db"))
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_finished_is_not_left(tmp_path: Path) -> None:
    """What was there stays as it was."""
    out = tmp_path / "k.csv"
    out.write_text("before")
    with pytest.raises(TypeError), exporting._file(out) as file:
        file.writelines([b"half", "no bytes"])  # type: ignore[list-item]
    assert out.read_text() == "before"
    assert [path.name for path in tmp_path.glob("*k.csv*")] == ["k.csv"]
    with pytest.raises(RoofwatchError, match="cannot be written"), exporting._file(tmp_path / "no" / "k.csv"):
        pass


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_an_interrupted_export_leaves_the_file_before(
    roofwatch: Roofwatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Ctrl-C between two pages: one sentence, exit code 130, and the folder as it was."""
    if form == "parquet":
        pytest.importorskip("pyarrow")
    out = tmp_path / "kernels"
    out.write_text("an older export")
    before = sorted(tmp_path.iterdir())

    def interrupted(first: exporting.Page, rest: Iterator[exporting.Page]) -> Iterator[exporting.Page]:
        yield first
        os.kill(os.getpid(), signal.SIGINT)
        yield from rest

    monkeypatch.setattr(exporting, "_all", interrupted)
    done = roofwatch("export", "--db", url(tmp_path), "--since", "all", "--format", form, "-o", str(out))
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == f"roofwatch: interrupted: {out} is not written.\n"
    assert (sorted(tmp_path.iterdir()), out.read_text()) == (before, "an older export")
