"""Damaged input: records or one clear sentence, what was lost counted."""

from __future__ import annotations

import gzip
import json
import random
import re
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofwatch.collectors.registry import read
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


def test_tail_metadata_counts_even_where_it_is_damaged(read_bytes) -> None:
    """The clock's base after the events is found whole, mended and in a torn tail."""
    expected = 1_700_000_000_000_005_000
    for tail in (
        ', "baseTimeNanoseconds": 1700000000000000000}',
        ', "baseTimeNanoseconds": 1700000000000000000, "x": NaN,}',
        ', "baseTimeNanoseconds": 1700000000000000000, "traceNa',
    ):
        assert read_bytes(f'{{"traceEvents": [{KERNEL}]{tail}'.encode()).start_unix_ns == expected
