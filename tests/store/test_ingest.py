"""What the writer stores: once, whole, and only what passes the checks."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import func, select
from store_builders import COPY, GEMM, H100, MI300, NORM, SQLITE_ALONE, process_of, segment_of, stat, uid_of, window_of

from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Bound, DeviceWindow, Evidence, Signature, Window
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import schema
from roofwatch.store.blocks import FACT, unpack
from roofwatch.store.database import Database
from roofwatch.store.days import serial
from roofwatch.store.histograms import Histograms
from roofwatch.store.ingest import Writer
from roofwatch.store.outcome import Outcome
from roofwatch.store.unpack import Unpacker


def store(writer: Writer, *envelopes: pb.SegmentEnvelope) -> list[Outcome]:
    """Store segments, waiting for each group's commit."""
    unpacker = Unpacker()
    return [f.result(30) for f in [writer.submit(unpacker.unpack(e)) for e in envelopes]]


def rows(db: Database, table: str) -> int:
    """How many rows a table has."""
    with db.read() as connection:
        return int(connection.execute(select(func.count()).select_from(schema.metadata.tables[table])).scalar_one())


def kernels(db: Database) -> int:
    """How many kernels the windows have."""
    with db.read() as connection:
        return int(connection.execute(select(func.sum(schema.kernel_blocks.c.rows))).scalar_one())


def small(name: str) -> Window:
    """A window of two kernels."""
    return window_of(name, [stat(GEMM, [1000, 2000], roof_ns=100.0), stat(NORM, [50])])


def test_every_column_of_a_kernel(db: Database, writer: Writer) -> None:
    """The block of a window holds what was sent, each value in its own column, and each kernel's histogram."""
    kernel = dataclasses.replace(stat(GEMM, [1000, 2000, 4000]), step_calls=2, step_ns=3000, formula_bound=Bound.MEMORY)
    store(writer, segment_of([window_of("a", [kernel, stat(NORM, [5])])], 1))
    with db.read() as connection:
        window, rows_, facts, histograms = connection.execute(schema.kernel_blocks.select()).one()
    first, second = (dict(zip(FACT, row, strict=True)) for row in unpack(facts, len(FACT)).T.tolist())
    assert (serial(window), rows_) == (1, 2)
    assert first == {
        "signature_id": GEMM.id,
        "total_ns": 7000,
        "min_ns": 1000,
        "max_ns": 4000,
        "step_ns": 3000,
        "calls": 3,
        "step_calls": 2,
        "device": 0,
        "evidence": schema.EVIDENCE_CODES[Evidence.SHAPES],
        "bound": 1,
        "formula_bound": 2,
        "first": 1,
    }
    assert (second["signature_id"], second["formula_bound"]) == (NORM.id, -1)
    assert Histograms.unpack(histograms, rows_).each() == [kernel.histogram, stat(NORM, [5]).histogram]


def test_steps_are_counted_once_a_kernel() -> None:
    """One row of a kernel's name a device model is its first; a copy is none: no profiler looks into it."""
    signatures = [dataclasses.replace(GEMM, shapes=f"[[{i}]]") for i in range(3)]
    copy = dataclasses.replace(stat(COPY, [1]), bound=Bound.COPY, evidence=Evidence.DEFINITION)
    elsewhere = dataclasses.replace(stat(signatures[2], [1]), device=1)
    window = window_of("a", [copy, stat(signatures[0], [1]), stat(signatures[1], [1]), stat(NORM, [1]), elsewhere])
    window = dataclasses.replace(window, devices=(window.devices[0], DeviceWindow(MI300, 1, 1)))
    facts = Unpacker().unpack(segment_of([window], 1)).windows[0].facts
    assert facts.columns[FACT.index("first")].tolist() == [0, 1, 0, 1, 1]


def test_codes_cover_the_record() -> None:
    """Every bound and evidence has a code of its own, and the codes in use are those first released."""
    assert set(schema.BOUNDS.values()) == set(schema.Bound)
    assert set(schema.EVIDENCES.values()) == set(schema.Evidence)
    assert [schema.BOUNDS[i].value for i in range(7)] == [
        "unknown", "compute", "memory", "latency", "communication", "copy", "host",
    ]  # fmt: skip
    assert [schema.EVIDENCES[i].value for i in range(6)] == [
        "none", "counters", "shapes", "borrowed", "name", "definition",
    ]  # fmt: skip


def test_segment_is_stored_once(db: Database, writer: Writer) -> None:
    """A segment sent again, alone or beside itself in one group, is a duplicate and changes nothing."""
    envelope = segment_of([small("a"), small("b")], 1)
    statuses = [o.status for o in store(writer, envelope, envelope)]
    statuses += [o.status for o in store(writer, envelope)]
    assert statuses == [pb.STORED, pb.DUPLICATE, pb.DUPLICATE]
    assert [rows(db, t) for t in ("segments", "windows", "window_devices", "kernel_blocks")] == [1, 2, 2, 2]
    assert kernels(db) == 4


def test_window_in_two_segments_counts_once(db: Database, writer: Writer) -> None:
    """A window that arrives again under another number is not stored again; its company is."""
    outcomes = store(writer, segment_of([small("a")], 1), segment_of([small("a"), small("b")], 2))
    outcomes += store(writer, segment_of([small("b"), small("c"), small("c")], 3, boot="later"))
    assert {o.status for o in outcomes} == {pb.STORED}
    with db.read() as connection:
        assert {uid.hex() for uid in connection.scalars(select(schema.windows.c.uid))} == set(map(uid_of, "abc"))
    assert kernels(db) == 6


def test_two_agents_of_one_identity(db: Database, writer: Writer) -> None:
    """The same number with other content is not called a duplicate, which would lose it silently."""
    first, second = store(writer, segment_of([small("a")], 1), segment_of([small("b")], 1))
    assert first.status == pb.STORED
    assert second.status == pb.REJECTED
    assert "two agents share one identity" in second.reason
    assert rows(db, "windows") == 1


def test_agent_drops_are_counted_once(db: Database, writer: Writer) -> None:
    """What an agent dropped is stored with the segment that tells it, and not again with its repetition."""
    envelope = codec.seal(codec.segment([], {"spool_full": 3, "parse_failed": 1}), "agent-a", "boot-a", 1)
    store(writer, envelope, envelope)
    with db.read() as connection:
        drops = connection.execute(schema.agent_drops.select().order_by(schema.agent_drops.c.reason)).all()
    assert [(d.reason, d.count) for d in drops] == [("parse_failed", 1), ("spool_full", 3)]


def test_process_learns_and_never_forgets(db: Database, writer: Writer) -> None:
    """A later window that knows the model adds it; one that does not know it takes nothing away."""
    store(writer, segment_of([window_of("a", [stat(NORM, [5])], process=process_of(user="ada"))], 1))
    learned = process_of(model="llama", labels={"git": "abc"}, versions={"torch": "2.13"})
    store(writer, segment_of([window_of("b", [stat(NORM, [5])], process=learned)], 2))
    store(writer, segment_of([window_of("c", [stat(NORM, [5])], process=process_of(labels={"git": "def"}))], 3))
    with db.read() as connection:
        process = connection.execute(schema.processes.select()).one()
        labels = connection.execute(schema.labels.select()).all()
    assert (process.owner, process.model) == ("ada", "llama")
    assert [(label.key, label.value) for label in labels] == [("git", "def")]


def test_roof_takes_the_newest_word_and_keeps_what_is_known(db: Database, writer: Writer) -> None:
    """A roof is a property of signature and peaks: a corrected one replaces it, an unknown one does not."""
    for number, roof in enumerate((100.0, 120.0, None), 1):
        store(writer, segment_of([window_of(f"w{number}", [stat(GEMM, [500], roof_ns=roof, ridge=295.0)])], number))
    with db.read() as connection:
        roof_row = connection.execute(schema.roofs.select()).one()
    assert (roof_row.signature_id, roof_row.roof_ns, roof_row.ridge) == (GEMM.id, 120.0, 295.0)


def test_dimensions_survive_a_new_writer(db: Database) -> None:
    """After a restart everything known is written again without harm, and counted once."""
    for number in (1, 2):
        writer = Writer(db)
        store(writer, segment_of([small(f"w{number}")], number))
        writer.close()
    counts = [rows(db, t) for t in ("nodes", "processes", "devices", "signatures", "texts", "roofs", "windows")]
    assert counts == [1, 1, 1, 2, 4, 1, 2]  # texts: two kernels, two ops


def test_close_stores_what_waits(db: Database) -> None:
    """Everything submitted before close() is stored when it returns."""
    writer, unpacker = Writer(db), Unpacker()
    waiting = [writer.submit(unpacker.unpack(segment_of([small(f"w{i}")], i))) for i in range(1, 41)]
    writer.close()
    assert all(f.done() for f in waiting)
    assert rows(db, "windows") == 40


def test_refused_by_the_database_alone(db: Database, writer: Writer) -> None:
    """Should a check have a hole, the segment that the database refuses is rejected and its group is stored."""
    unpacker = Unpacker()
    good, bad, late = (unpacker.unpack(segment_of([small(name)], i)) for i, name in enumerate("abc", 1))
    broken = dataclasses.replace(bad.windows[0].window, collector=None)  # may not be null
    bad.windows[0] = dataclasses.replace(bad.windows[0], window=broken)
    with db.write():  # holds the writer back, so that the three become one group
        futures = [writer.submit(work) for work in (good, bad, late)]
        time.sleep(0.2)
    assert [f.result(30).status for f in futures] == [pb.STORED, pb.REJECTED, pb.STORED]
    assert "the database refuses it" in futures[1].result().reason
    assert (rows(db, "windows"), rows(db, "segments"), kernels(db)) == (2, 2, 4)
    assert store(writer, segment_of([small("b")], 2))[0].status == pb.STORED  # nothing half was left of it


def test_reader_does_not_block_the_writer(db: Database, writer: Writer) -> None:
    """While a reader holds a transaction, segments are stored at once, and the reader goes on seeing its own state."""
    store(writer, segment_of([small("a")], 1))
    with db.read() as connection:
        before = connection.execute(select(func.count()).select_from(schema.windows)).scalar()
        started = time.monotonic()
        for i in range(2, 22):
            store(writer, segment_of([small(f"w{i}")], i))
        took = time.monotonic() - started
        db.truncate_log()  # gives up at once, too
        after = connection.execute(select(func.count()).select_from(schema.windows)).scalar()
    assert (before, after) == (1, 1)
    assert took < 5  # the busy timeout is 30
    assert rows(db, "windows") == 21


@SQLITE_ALONE
def test_log_is_cut_back(db: Database, writer: Writer, tmp_path: Path) -> None:
    """With no reader left the write-ahead log is emptied."""
    store(writer, *(segment_of([small(f"w{i}")], i) for i in range(1, 9)))
    log = tmp_path / "store.db-wal"
    assert log.stat().st_size > 0
    db.truncate_log()
    assert log.stat().st_size == 0


FULL_DISK = """
import resource, signal, sys
from roofwatch.model.errors import RoofwatchError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import database
from roofwatch.store.ingest import Writer
from roofwatch.store.unpack import Unpacker
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
db = database.open(sys.argv[1])
writer, unpacker = Writer(db), Unpacker()
envelopes = [pb.SegmentEnvelope.FromString(open(name, "rb").read()) for name in sys.argv[2:]]
print(writer.submit(unpacker.unpack(envelopes[0])).result().status)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, resource.RLIM_INFINITY))
try:
    writer.submit(unpacker.unpack(envelopes[1])).result()
except RoofwatchError as error:
    print(f"failed: {error}")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(writer.submit(unpacker.unpack(envelopes[1])).result().status)
"""


def test_disk_that_takes_no_more(tmp_path: Path) -> None:
    """When the file cannot grow the segment is neither acknowledged nor rejected; with room again it is stored.

    The limit is the operating system's own on file size, in a process of its own.
    """
    files = []
    for i in (1, 2):
        file = tmp_path / f"segment{i}"
        file.write_bytes(segment_of([small(f"w{i}")], i).SerializeToString())
        files.append(str(file))
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "store.db"), *files],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    first, second, third = done.stdout.splitlines()
    assert (first, third) == (str(pb.STORED), str(pb.STORED))
    assert second.startswith(f"failed: the database sqlite:///{tmp_path}/store.db failed: ")


def test_signature_without_anything_is_stored(db: Database, writer: Writer) -> None:
    """Unknown is null in the database, never 0 and never empty text."""
    bare = Signature(kernel="k", kind=GEMM.kind)
    store(writer, segment_of([window_of("a", [stat(bare, [1])], device=dataclasses.replace(H100, uuid=None))], 1))
    with db.read() as connection:
        signature = connection.execute(schema.signatures.select()).one()
        window = connection.execute(schema.windows.select()).one()
        device = connection.execute(schema.devices.select()).one()
    assert (signature.op_id, signature.flops, signature.bytes, signature.shapes) == (None,) * 4
    assert (window.steps, window.represents_ns, window.open_ns, window.padding_batches) == (None,) * 4
    assert device.uuid is None


def test_writer_tells_a_failed_database(db: Database, writer: Writer) -> None:
    """A database that fails in the middle is told in one sentence, and the writer goes on."""
    with db.write() as connection:
        connection.exec_driver_sql("ALTER TABLE idle_causes RENAME TO hidden")
    work = Unpacker().unpack(segment_of([dataclasses.replace(small("a"))], 1))
    with db.write() as connection:
        connection.exec_driver_sql("ALTER TABLE window_devices RENAME TO gone")
    with pytest.raises(RoofwatchError, match=r"the database .* failed: .*window_devices"):
        writer.submit(work).result(30)
    with db.write() as connection:
        connection.exec_driver_sql("ALTER TABLE gone RENAME TO window_devices")
        connection.exec_driver_sql("ALTER TABLE hidden RENAME TO idle_causes")
    assert writer.submit(work).result(30).status == pb.STORED
    assert rows(db, "windows") == 1
