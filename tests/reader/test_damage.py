"""Damaged, hostile and foreign input: records or one clear sentence, what was lost counted, nothing hangs."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofwatch.collectors.base import Limits
from roofwatch.collectors.registry import read, read_path
from roofwatch.model.errors import RoofwatchError

WHOLE = (12, 12549021)  # records and device time of the AMD trace most damaged files were made from
# What each damaged file gives: records and nanoseconds, what is dropped, what the sentence says (None: no problem).
READABLE = {
    "bom_prefix": ((1, 1760), {}, None),
    "concatenated_two_documents": ((1, 1760), {"another_document": 71}, "second document"),
    "control_char_in_name": (WHOLE, {}, "byte 2827: a control character"),
    "crlf": ((1, 1760), {}, None),
    "invalid_utf8_in_name": (WHOLE, {}, "byte 2827: invalid UTF-8"),
    "minified": ((1, 1760), {}, None),
    "missing_pid_tid_args": (WHOLE, {}, None),
    "nan_inf_values": (WHOLE, {"bad_time": 2}, "2 damaged places, the first at byte 689: .*not a number"),
    "negative_and_huge_dur": ((11, 12471947), {"bad_duration": 1, "unfinished": 1}, None),
    "toplevel_list": (WHOLE, {}, None),
    "toplevel_list_unclosed": (WHOLE, {}, "byte 63760: the event list is not closed"),
    "trailing_comma_in_args": (WHOLE, {}, "byte 689: a trailing comma"),
    "ts_as_strings": (WHOLE, {}, None),
    "unescaped_quote_in_name": (WHOLE, {}, "byte 2827: a quote inside a name"),
    "windows_backslash": (WHOLE, {}, "byte 2827: a backslash"),
}
REFUSED = {
    "be_pairs": "3 events and among them neither .*1 unmatched",
    "empty_file": "is empty",
    "empty_traceEvents": "no events",
    "no_traceEvents": "without a traceEvents list",
    "truncated_after_comma": "6 kernel launches but not one device record .*byte 32261: the event list is not closed",
    "truncated_gz_stream": "cut off after 3978 bytes.*the file ends inside an event.*1 cut off",
    "truncated_mid_event": "byte 42792: the file ends inside an event.*1 cut off",
}


def test_every_damaged_file_is_expected(traces: Path) -> None:
    """The two tables cover the folder."""
    names = {path.name.split(".")[0] for path in (traces / "kineto_broken").iterdir()}

    assert names == READABLE.keys() | REFUSED.keys()


def broken(traces: Path, name: str) -> Path:
    """The path of a damaged file."""
    return next((traces / "kineto_broken").glob(f"{name}.*"))


@pytest.mark.parametrize("name", READABLE)
def test_damaged_files_that_give_records(traces: Path, name: str) -> None:
    """Records and device time are exact, losses are counted, the damage is named with its place."""
    (records, total), dropped, problem = READABLE[name]

    profile = read(broken(traces, name))

    assert sum(g.calls for g in profile.groups) == records
    assert sum(g.total_ns for g in profile.groups) == total
    assert profile.dropped == dropped
    if problem is None:
        assert profile.problem is None
    else:
        assert re.search(problem, profile.problem or "")
        assert "\n" not in (profile.problem or "")


@pytest.mark.parametrize("name", REFUSED)
def test_damaged_files_that_give_none(traces: Path, name: str) -> None:
    """One sentence that says which file, what is wrong and where."""
    path = broken(traces, name)

    with pytest.raises(RoofwatchError, match=REFUSED[name]) as caught:
        read(path)

    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def sound(traces: Path) -> bytes:
    """The text of a small real trace."""
    return gzip.decompress((traces / "kineto" / "mi300_inductor_triton_min.json.gz").read_bytes())


def outcome(read_bytes, data: bytes) -> tuple[int, int] | str:
    """Records and device time, or the sentence; anything else fails the test."""
    try:
        profile = read_bytes(data)
    except RoofwatchError as error:
        return str(error)
    for device in profile.devices:
        assert device.span_ns - device.busy_ns == sum(c.total_ns for c in device.causes)
    return sum(g.calls for g in profile.groups), sum(g.total_ns for g in profile.groups)


def test_cut_anywhere(read_bytes, sound: bytes) -> None:
    """Cut at 150 places, plain or gzipped: never more than the whole, and all of it once the last record is in."""
    end = sound.rindex(b'"cat": "kernel"')
    for at in random.Random(1).sample(range(len(sound)), 75):
        for data in (sound[:at], gzip.compress(sound)[: at * 5900 // len(sound)]):
            found = outcome(read_bytes, data)
            if not isinstance(found, str):
                assert found[0] <= WHOLE[0]
    assert outcome(read_bytes, sound[: sound.index(b"}\n  }", end) + 5]) == WHOLE


@given(st.data())
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_changed_anywhere(read_bytes, sound: bytes, data: st.DataObject) -> None:
    """Bytes put in, taken out or changed at up to four places: records or a sentence, in less than two seconds."""
    text = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        new = data.draw(
            st.sampled_from([b"", b'"', b"\\", b"\x00", b"\xff", b"{", b"}", b"[", b"]", b",", b"NaN", b"}, {"])
        )
        text[at : at + data.draw(st.integers(0, 40))] = new
    start = time.process_time()

    found = outcome(read_bytes, bytes(text))

    assert time.process_time() - start < 2
    assert isinstance(found, str) or found[0] <= WHOLE[0]


EDITS = (b"", b'"', b"\\", b"\x00", b"\xff", b"{", b"}", b"[", b"]", b",", b"NaN", b"}, {", b":", b"}]", b'],"a":')


def test_one_edit_costs_at_most_two_events(read_bytes, sound: bytes) -> None:
    """Wherever in the event list a few bytes change, at most the two events at that place are lost, of 246."""
    choice = random.Random(2)
    begin, end = sound.index(b'"traceEvents"') + 20, len(sound) - 200
    for _ in range(400):
        at, new, gone = choice.randrange(begin, end), choice.choice(EDITS), choice.choice((0, 1, 5, 40))
        profile = read_bytes(sound[:at] + new + sound[at + gone :])
        assert 244 <= profile.events_read <= 247, (at, new, gone)


@pytest.mark.parametrize(
    "damage", ['"a" b', "C:\\Users\\x", "tab\there", "nul\x00", 'say "hi", twice', '{"device": "cpu"}']
)
@pytest.mark.parametrize("minified", [False, True])
def test_names_written_raw(read_bytes, sound: bytes, damage: str, minified: bool) -> None:
    """A name that the writer did not escape costs nothing: all records, the same time."""
    text = sound
    if minified:
        text = json.dumps(json.loads(sound), separators=(",", ":")).encode()
    damaged, count = re.subn(rb'("name": ?")aten::mm"', lambda m: m[1] + damage.encode() + b'"', text)

    assert count
    assert outcome(read_bytes, damaged) == WHOLE


def test_damage_costs_only_the_damaged(read_bytes, trace) -> None:
    """Of 5,000 kernels 7 are cut in the middle: 4,993 are left, 7 are counted."""
    for index in range(5000):
        trace.kernel("k" * 40, 10 * index, 1, index)
    events = [json.dumps(event) for event in trace.events]
    for at in (0, 1, 2, 1000, 2500, 4000, 4999):
        events[at] = events[at][: len(events[at]) // 2] + '"}'
    profile = read_bytes(('{"traceEvents": [' + ", ".join(events) + "]}").encode())

    assert sum(g.calls for g in profile.groups) == 4993
    assert profile.dropped == {"unreadable": 7}
    assert "7 damaged places, the first at byte 17:" in (profile.problem or "")


def test_events_may_hold_lists_of_objects(read_bytes, trace) -> None:
    """Objects in lists in the arguments look like events; they are not cut there."""
    for index in range(9000):
        trace.kernel("k", 10 * index, 1, index, ranks=[{"name": "a", "x": 1}, {"name": "b"}, {"name": "c"}])

    profile = read_bytes(trace.text())
    assert (sum(g.calls for g in profile.groups), profile.dropped, profile.problem) == (9000, {}, None)


def test_begin_and_end_are_one_event(read_bytes) -> None:
    """A kernel as a B and an E event, 5 to 9 µs; a stray E is counted."""
    text = b"""[{"ph":"E","pid":0,"tid":7,"ts":1},
    {"ph":"B","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5,"args":{"correlation":1}},{"ph":"E","pid":0,"tid":7,"ts":9}]"""

    profile = read_bytes(text)
    assert [(g.kernel, g.calls, g.total_ns) for g in profile.groups] == [("k", 1, 4000)]
    assert profile.dropped == {"unmatched": 1}


KERNEL = '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5,"dur":2,"args":{"correlation":1}}'


@pytest.mark.parametrize(
    ("text", "dropped"),
    [
        (f'{{"traceEvents":[{KERNEL},{{"ph":"Q","x":1}}]}}', {}),  # a phase of the future
        (f'{{"traceEvents":[{KERNEL},null,7,"x",[],{{}}]}}', {"not_an_event": 4}),  # {} is how some end a list
        (f'{{"traceEvents":[{{"name":"no phase"}},{KERNEL}]}}', {"not_an_event": 1}),
        (f'{{"traceEvents":[{KERNEL},{KERNEL.replace("5", "null")}]}}', {"bad_time": 1}),
        (f'{{"traceEvents":[{KERNEL},{KERNEL.replace("2", "-2")}]}}', {"bad_duration": 1}),
        (f'{{"traceEvents":[{KERNEL},{KERNEL.replace("2", "1e12")}]}}', {"bad_duration": 1}),
        (f'{{"traceEvents":[{KERNEL},{KERNEL.replace("2", "9" * 500)}]}}', {"bad_time": 1}),
        (f'{{"traceEvents":[{KERNEL}],"deviceProperties":5,"distributedInfo":[],"baseTimeNanoseconds":"x"}}', {}),
        (f'{{"deviceProperties":[{{"id":"a","name":3}}],"traceEvents":[{KERNEL}]}}', {}),
        (f'{{"traceEvents":[{KERNEL},{KERNEL.replace("}}", ",}}")}]}}', {}),
    ],
)  # fmt: skip
def test_odd_but_readable(read_bytes, text: str, dropped: dict[str, int]) -> None:
    """What is sound is read; what is not is counted under its reason."""
    profile = read_bytes(text.encode())

    assert profile.groups[0].kernel == "k"
    assert profile.dropped == dropped


def test_ids_of_any_type(read_bytes) -> None:
    """Process, thread, correlation and device may be text, fractions, huge, or of no sensible type."""
    odd = ['"a"', "1.5", "null", "[1]", '{"x":1}', "99999999999999999999999", "-1", "true", '"12"']
    events = []
    for value in odd:
        keys = ("correlation", "device", "stream", "bytes", "grid", "block")
        args = "{" + ",".join(f'"{key}":{value}' for key in keys) + "}"
        common = f'"pid":{value},"tid":{value},"ts":1,"dur":1,"args":{args}'
        events += [f'{{"ph":"X","cat":"{cat}","name":"n",{common}}}' for cat in ("kernel", "cpu_op", "cuda_runtime")]
    profile = read_bytes(f'{{"traceEvents":[{",".join(events)}]}}'.encode())

    assert sum(g.calls for g in profile.groups) == len(odd)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"   \n ", "only blanks"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "not JSON"),
        (b"PK\x03\x04abc", "zip archive.*unpack"),
        (b"\x28\xb5\x2f\xfdabc", "zstd data.*decompress"),
        (b"SQLite format 3\x00abc", "SQLite database"),
        ("{}".encode("utf-16"), "UTF-16.*UTF-8"),
        (b"12", "not JSON"),
        (b'{"traceEvents": {"a": 1}}', "traceEvents is not a list"),
        (b'{"traceEvents": null}', "traceEvents is not a list"),
        (b'{"a": [1, 2', "not whole JSON at byte 11 and holds no traceEvents"),
        (b'[{"ph":"X","cat":"other","name":"x","ts":1,"dur":1}]', "1 events and among them neither"),
        (
            b'[{"ph":"M","name":"process_name","pid":1,"args":{"name":"Ascend Hardware"}}]',
            "no kernel and no collective",
        ),
        (b"[" * 100_000, "no events|neither"),
        (b'{"a":' * 100_000, "traceEvents"),
        (b"\x1f\x8b", "is empty .*gzip header"),
        (b"\x1f\x8b\x08\x00" + b"\x00" * 6 + b"\xff" * 50, "gzip stream is damaged"),
        (gzip.compress(b""), "is empty"),
    ],
)  # fmt: skip
def test_not_a_trace(read_bytes, data: bytes, sentence: str) -> None:
    """Foreign input is named for what it is."""
    with pytest.raises(RoofwatchError, match=sentence):
        read_bytes(data)


def test_a_folder_and_nothing(tmp_path: Path) -> None:
    """A folder and a missing file are said to be that."""
    with pytest.raises(RoofwatchError, match="cannot be opened: Is a directory"):
        read(tmp_path)
    with pytest.raises(RoofwatchError, match="cannot be opened: No such file"):
        read(tmp_path / "missing.json")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(RoofwatchError, match="Is a directory"):
        read(descriptor)
    os.close(descriptor)


def test_descriptor_is_read_from_its_beginning_and_stays_open(sound: bytes) -> None:
    """A descriptor passed on by the process that wrote the file stands at its end."""
    descriptor = os.memfd_create("window")
    os.write(descriptor, sound)

    assert sum(g.calls for g in read(descriptor).groups) == WHOLE[0]
    assert os.fstat(descriptor).st_size == len(sound)
    with os.fdopen(descriptor, "rb") as file:
        assert sum(g.calls for g in read(file).groups) == WHOLE[0]
        assert not file.closed


def test_progress_is_told(tmp_path: Path, sound: bytes) -> None:
    """Progress counts the bytes of the file, up to its size."""
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(sound))
    told: list[tuple[int, int | None]] = []

    read(path, progress=lambda done, size: told.append((done, size)))

    assert told[-1] == (path.stat().st_size, path.stat().st_size)


def test_gzip_members_and_what_follows_them(read_bytes, sound: bytes) -> None:
    """A trace in three gzip members is one trace; zeros after it are padding, other bytes are told."""
    third = len(sound) // 3
    packed = b"".join(gzip.compress(sound[at : at + third]) for at in range(0, len(sound), third))

    assert read_bytes(packed).problem is None
    assert read_bytes(packed + b"\x00" * 600).problem is None
    followed = read_bytes(packed + b"junk")
    assert sum(g.calls for g in followed.groups) == WHOLE[0]
    assert "not gzip follow" in (followed.problem or "")


def test_wrong_checksum_is_told(read_bytes, sound: bytes) -> None:
    """All is read, and that the checksum is wrong is said."""
    packed = bytearray(gzip.compress(sound))
    packed[-6] ^= 1

    profile = read_bytes(bytes(packed))
    assert sum(g.calls for g in profile.groups) == WHOLE[0]
    assert "checksum is wrong" in (profile.problem or "")


def test_gzip_header_with_all_fields(read_bytes, sound: bytes) -> None:
    """Extra field, file name, comment and header checksum of a gzip header are skipped."""
    header = b"\x1f\x8b\x08\x1e" + b"\x00" * 6 + b"\x03\x00abc" + b"name.json\x00" + b"a comment\x00" + b"\x12\x34"
    deflate = zlib.compressobj(wbits=-15)
    body = deflate.compress(sound) + deflate.flush()
    trailer = zlib.crc32(sound).to_bytes(4, "little") + len(sound).to_bytes(4, "little")

    profile = read_bytes(header + body + trailer)
    assert (sum(g.calls for g in profile.groups), profile.problem) == (WHOLE[0], None)


def test_tail_metadata_counts_even_where_it_is_damaged(read_bytes) -> None:
    """The clock's base after the events is found whole, mended and in a torn tail."""
    expected = 1_700_000_000_000_005_000
    for tail in (
        ', "baseTimeNanoseconds": 1700000000000000000}',
        ', "baseTimeNanoseconds": 1700000000000000000, "x": NaN,}',
        ', "baseTimeNanoseconds": 1700000000000000000, "traceNa',
    ):
        assert read_bytes(f'{{"traceEvents": [{KERNEL}]{tail}'.encode()).start_unix_ns == expected


def test_size_limit(read_bytes, trace) -> None:
    """Beyond the limit on bytes nothing is read, and that is told and counted."""
    for index in range(3000):
        trace.kernel("k", 10 * index, 1, index)

    profile = read_bytes(gzip.compress(trace.text()), Limits(max_bytes=300_000))
    assert 0 < sum(g.calls for g in profile.groups) < 3000
    assert profile.dropped["over_size_limit"] == 1
    assert "first 300000 bytes" in (profile.problem or "")


def test_a_thread_and_a_device_for_each_record(read_bytes, trace) -> None:
    """20,000 kernels on as many devices, launched from as many threads: all there, in seconds."""
    for index in range(20_000):
        trace.op("aten::mm", 10 * index, 5, tid=index).call("cudaLaunchKernel", 10 * index + 1, 1, index, tid=index)
        trace.kernel("k", 10 * index + 3, 1, index, device=index)
    start = time.process_time()

    profile = read_bytes(json.dumps(trace.document()).encode())

    assert time.process_time() - start < 10
    assert sum(g.calls for g in profile.groups if g.linked) == 20_000
    assert len(profile.devices) <= 257
    for device in profile.devices:
        assert device.span_ns - device.busy_ns == sum(c.total_ns for c in device.causes)


HOSTILE = {
    "bomb of blanks": "gzip_of(b' ' * (1 << 20), 400)",
    "bomb of a list": "gzip_of(b'[' + b'1,' * (1 << 19), 200)",
    "endless string": 'gzip_of(b\'{"traceEvents": [{"ph": "X", "name": "\' + b\'a\' * (1 << 20), 200)',
    "endless key before the events": "gzip_of(b'{\"' + b'a' * (1 << 20), 200)",
    "numbers before the events": "gzip_of(b'{\"a\": [' + b'1,' * (1 << 19), 60)",
    "keys before the events": "gzip_of(b'{' + b'\"a\":1,' * (1 << 18), 40)",
    "empty objects": "gzip_of(b'{\"traceEvents\": [' + b'{},' * (1 << 18), 40)",
    "tiny events": 'gzip_of(b\'{"traceEvents": [\' + b\'{"ph":"X"},\' * (1 << 16), 40)',
    "braces": "gzip_of(b'{\"traceEvents\": [' + b'}, {' * (1 << 18), 10)",
    "quotes": "gzip_of(b'{\"traceEvents\": [{\"' + b'\"\\\\' * (1 << 18), 10)",
    "deep": "gzip_of(b'{\"traceEvents\": [' + b'{\"a\":[' * (1 << 17), 20)",
}
MAKE_AND_READ = """
import io, sys, zlib
from roofwatch.collectors.base import Limits
from roofwatch.collectors.registry import read
from roofwatch.model.errors import RoofwatchError

def gzip_of(text, times):
    z = zlib.compressobj(1, wbits=31)
    return b"".join([z.compress(text), *(z.compress(text[8:]) for _ in range(times)), z.flush()])

data = io.BytesIO(eval(sys.argv[1]))
try:
    read(data, Limits())
except RoofwatchError as error:
    print(error)
# Not ru_maxrss: that begins with the peak of the process that started this one.
print(next(int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_stays_small_and_ends(name: str) -> None:
    """Hundreds of megabytes made to hurt: a sentence within 40 s of CPU and 500 MB (usually a tenth of both)."""
    done = subprocess.run(
        [sys.executable, "-c", MAKE_AND_READ, HOSTILE[name]], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr[-500:]
    sentence, peak = done.stdout.splitlines()
    assert sentence.startswith("the trace ")
    assert int(peak) < 500


def test_a_trace_of_jax_is_refused_by_name(read_bytes):
    """XLA's events have no category, and their list ends with an empty object: that is no damage."""
    event = {"ph": "X", "pid": 1, "tid": 13, "ts": 1, "dur": 2, "name": "loop_add_fusion", "args": {"hlo_op": "add.1"}}
    text = json.dumps({"displayTimeUnit": "ns", "traceEvents": [event, {}]}).encode()
    with pytest.raises(RoofwatchError, match=r"2 events of JAX or XLA, which .*torch.profiler\.$"):
        read_bytes(text)


def test_a_folder_of_traces(tmp_path):
    """What torch.profiler's handler writes into a folder are files to choose one of."""
    (tmp_path / "host_1.1.pt.trace.json.gz").write_bytes(b"")
    with pytest.raises(RoofwatchError, match=r"give one of them, such as host_1\.1\.pt\.trace\.json\.gz\.$"):
        read_path(tmp_path)
