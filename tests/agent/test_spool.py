"""The spool: numbered, bounded, and still there after SIGKILL."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from roofwatch.agent import counters, spool
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb


def opened(folder, most_bytes=1 << 20, most_age_s=3600.0):
    """A spool and its counters."""
    count = counters.Counters()
    return spool.Spool(folder, most_bytes, most_age_s, count), count


def seal_of(size: int = 100, windows: int = 1):
    """A sealing function for an envelope with ``size`` bytes of payload."""

    def seal(agent, boot, sequence):
        return pb.SegmentEnvelope(
            id=pb.SegmentId(agent=agent, boot=boot, sequence=sequence), payload=bytes(size), windows=windows
        )

    return seal


def stored(kept):
    """All segments in order."""
    found, row = [], 0
    while (one := kept.after(row)) is not None:
        row = one.row
        found.append(pb.SegmentEnvelope.FromString(one.envelope))
    return found


def test_segments_are_numbered_and_come_back_in_order(tmp_path):
    """1, 2, 3 in the first boot; a second boot starts at 1 again under another name, behind what is left."""
    kept, _ = opened(tmp_path)
    for _ in range(3):
        assert kept.append(seal_of())
    assert kept.delete(kept.after(0).row) == 1
    assert kept.delete(1) == 0  # gone already
    first = (kept.agent, kept.boot)
    kept.close()

    kept, _ = opened(tmp_path)
    kept.append(seal_of())
    found = [(e.id.agent, e.id.boot, e.id.sequence) for e in stored(kept)]
    second = (kept.agent, kept.boot)
    kept.close()

    assert found == [(*first, 2), (*first, 3), (*second, 1)]
    assert first[0] == second[0]
    assert first[1] != second[1]


def test_bytes_are_bounded_and_the_oldest_make_room(tmp_path):
    """Room for three segments of about 1,000 bytes: of five the last three stay, two windows each are counted lost."""
    kept, count = opened(tmp_path, most_bytes=3500)
    for _ in range(5):
        assert kept.append(seal_of(1000, windows=2))

    assert [e.id.sequence for e in stored(kept)] == [3, 4, 5]
    assert dict(count.drops) == {counters.SPOOL_BYTES: 4}
    assert (kept.segments, kept.windows) == (3, 6)
    assert kept.bytes == sum(len(e.SerializeToString()) for e in stored(kept)) <= 3500
    assert not kept.append(seal_of(4000, windows=3))  # larger than the whole bound
    assert dict(count.drops) == {counters.SPOOL_BYTES: 7}
    assert kept.segments == 3
    kept.close()


def test_what_is_on_its_way_does_not_make_room(tmp_path):
    """The store may be committing segment 1, so segment 2 is given up instead."""
    kept, count = opened(tmp_path, most_bytes=2500)
    kept.append(seal_of(1000))
    kept.append(seal_of(1000))
    kept.append(seal_of(1000), in_flight={kept.after(0).row})

    assert [e.id.sequence for e in stored(kept)] == [1, 3]
    assert dict(count.drops) == {counters.SPOOL_BYTES: 1}
    kept.close()


def test_age_is_bounded(tmp_path):
    """Segments older than the limit go, counted; younger ones and those in flight stay."""
    kept, count = opened(tmp_path, most_age_s=0.3)
    kept.append(seal_of(windows=3))
    kept.append(seal_of(windows=5))
    time.sleep(0.4)
    kept.append(seal_of())

    assert kept.expire(in_flight={kept.after(0).row}) == 5

    assert [e.id.sequence for e in stored(kept)] == [1, 3]
    assert dict(count.drops) == {counters.SPOOL_AGE: 5}
    kept.close()


def test_the_file_shrinks_when_the_spool_has_drained(tmp_path):
    """After 2 MB were stored and deleted, upkeep gives the space back."""
    kept, _ = opened(tmp_path, most_bytes=4 << 20)
    for _ in range(20):
        kept.append(seal_of(100_000))
    for row in range(1, 21):
        kept.delete(row)
    kept.expire()

    assert sum(p.stat().st_size for p in tmp_path.iterdir()) < 200_000
    kept.close()


def test_an_appended_segment_survives_sigkill(tmp_path):
    """A process appends and reports each number after append returned; killed in the middle, none of those is lost."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom roofwatch.agent import counters, spool\n"
        "from roofwatch.proto.v1 import roofwatch_pb2 as pb\n"
        "s = spool.Spool(Path(sys.argv[1]), 1 << 30, 1e6, counters.Counters())\n"
        "while True:\n"
        "    s.append(lambda *n: pb.SegmentEnvelope(id=pb.SegmentId(**dict(zip(('agent', 'boot', 'sequence'), n))),"
        " payload=bytes(3000)))\n"
        "    print(s._sequence, flush=True)\n"
    )
    reported = 0
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            for line in writer.stdout:
                if int(line) >= 40:
                    break
            writer.send_signal(signal.SIGKILL)
            reported += int([*writer.stdout, line][-1] or line)
    kept, _ = opened(tmp_path, most_bytes=1 << 30)
    found = stored(kept)
    kept.close()

    boots = {e.id.boot for e in found}
    assert len(boots) == 3
    for boot in boots:
        numbers = [e.id.sequence for e in found if e.id.boot == boot]
        assert numbers == list(range(1, len(numbers) + 1))
    assert reported <= len(found) <= reported + 3  # the kill may fall between commit and report


def test_two_agents_do_not_share_a_spool(tmp_path):
    """The second is told in one sentence; after the first has closed it may come in."""
    kept, _ = opened(tmp_path)
    with pytest.raises(spool.SpoolError, match="another agent uses the state folder"):
        opened(tmp_path)
    kept.close()
    opened(tmp_path)[0].close()


def newer(path):
    """A spool of a later schema."""
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda p: p.write_bytes(b"this is no database at all" * 100), "file is not a database"),
        (newer, "made by a newer agent"),
        (lambda p: p.mkdir(), "unable to open"),
    ],
)
def test_an_unusable_spool_is_one_sentence(tmp_path, make, sentence):
    """Damaged, newer, or no file: what is wrong, where, what to do; and the lock is free again."""
    make(tmp_path / "spool.db")
    for _ in range(2):
        with pytest.raises(spool.SpoolError, match=sentence) as told:
            opened(tmp_path)
        assert "--state" in str(told.value)
        assert "\n" not in str(told.value)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    """The parent is a file."""
    (tmp_path / "file").write_text("")
    with pytest.raises(
        spool.SpoolError, match=r"cannot use the state folder .*Not a directory; choose another with --state"
    ):
        opened(tmp_path / "file" / "state")


def test_a_full_disk_loses_the_window_counted_and_nothing_else(tmp_path):
    """Pages are limited through SQLite itself: the write fails, is counted, and later writes work again."""
    kept, count = opened(tmp_path, most_bytes=1 << 30)
    kept.append(seal_of(1000))
    pages = kept._db.execute("PRAGMA page_count").fetchone()[0]
    kept._db.execute(f"PRAGMA max_page_count = {pages + 2}").fetchall()

    assert not kept.append(seal_of(200_000, windows=4))
    assert dict(count.drops) == {counters.SPOOL_ERROR: 4}
    kept._db.execute("PRAGMA max_page_count = 1000000").fetchall()
    assert kept.append(seal_of(1000))

    assert [e.id.sequence for e in stored(kept)] == [1, 3]  # number 2 is never used again
    assert kept.segments == 2
    kept.close()


def test_what_cannot_be_removed_is_still_counted(tmp_path):
    """The disk fails in the middle of expiring and rejecting: nothing is removed, from the totals neither."""
    kept, count = opened(tmp_path)
    for _ in range(2):
        kept.append(seal_of(1000, windows=3))
    before = (kept.segments, kept.windows, kept.bytes)
    kept._db.execute("UPDATE segment SET created_unix_ns = 0")
    kept._db.execute("CREATE TRIGGER full BEFORE INSERT ON untold BEGIN SELECT RAISE(ABORT, 'disk'); END")
    for remove in (kept.expire, lambda: kept.reject(1)):
        with pytest.raises(sqlite3.Error, match="disk"):
            remove()
        assert (kept.segments, kept.windows, kept.bytes) == before
    kept._db.execute("DROP TRIGGER full")
    kept._db.execute("UPDATE segment SET envelope = x'ff' WHERE row = 1")  # damaged: given up all the same
    assert kept.expire() == 6
    assert (kept.segments, kept.windows, kept.bytes) == (0, 0, 0)
    assert dict(count.drops) == {counters.SPOOL_AGE: 6}
    kept.close()


def test_what_was_given_up_is_told_by_the_next_segment_whatever_happens(tmp_path):
    """Two windows are pushed out and three too old, then the agent is killed: the next one tells five, once."""
    kept, _ = opened(tmp_path, most_bytes=2500)
    for _ in range(3):
        kept.append(seal_of(1000, windows=2))  # the third pushes out the first
    kept._db.execute("UPDATE segment SET created_unix_ns = 0, windows = 3 WHERE sequence = 2")
    kept.expire()
    kept.close()  # its counters are gone, as with SIGKILL

    kept, count = opened(tmp_path, most_bytes=2500)
    assert count.take_unreported() == {counters.SPOOL_BYTES: 2, counters.SPOOL_AGE: 3}
    assert dict(count.drops) == {}  # of this agent's own
    kept.append(seal_of(), told=[counters.SPOOL_BYTES, counters.SPOOL_AGE])
    kept.close()
    kept, count = opened(tmp_path)
    assert count.take_unreported() == {}
    kept.close()


def test_drops_of_a_segment_that_is_given_up_are_told_by_another(tmp_path):
    """A segment tells four drops and is refused by the store, another one tells one and is pushed out."""
    kept, count = opened(tmp_path, most_bytes=1500)
    for drops in ({"parse_crash": 4}, {"parse_time": 1}):
        kept.append(lambda *number, told=drops: codec.seal(codec.segment([], told), *number), told=drops)
    kept.reject(kept.after(0).row)
    kept.append(seal_of(1380))  # room for nothing else
    assert count.take_unreported() == {"parse_crash": 4, "parse_time": 1}
    assert dict(count.drops) == {}  # no window was in either
    assert [e.id.sequence for e in stored(kept)] == [3]
    kept.close()
