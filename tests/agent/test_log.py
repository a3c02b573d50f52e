"""The log: one line an event, whatever is in it, and no storms."""

from __future__ import annotations

import io

from roofwatch.agent.log import BURST, Log


def test_hostile_values_stay_in_their_field():
    """Line breaks, quotes, equals signs and terminal escapes are quoted; unknown fields are left out."""
    out = io.StringIO()
    Log(out).info("registered", pid=7, model='a\nlevel=x "\x1b[31m', rank=None, plain="llama-7b")

    (line,) = out.getvalue().splitlines()
    assert line.endswith('level=info event=registered pid=7 model="a\\nlevel=x \\"\\u001b[31m" plain=llama-7b')


def test_a_repeating_event_is_thinned_and_says_by_how_much():
    """Of 105 lines in a minute five are written, and the next period tells of the 100. Other events are unaffected."""
    out, now = io.StringIO(), [0.0]
    log = Log(out, lambda: now[0])
    for _ in range(105):
        log.warning("lost")
    log.info("other")
    now[0] = 61.0
    log.warning("lost")

    lines = out.getvalue().splitlines()
    assert len(lines) == BURST + 2
    assert "event=other" in lines[BURST]
    assert lines[-1].endswith("event=lost suppressed=100")


def test_a_log_nobody_reads_harms_nobody():
    """A closed stream is not an error."""
    out = io.StringIO()
    out.close()

    Log(out).info("anything")


def test_who_asked_for_what_is_never_left_out():
    """Forty captures within a minute, at a level that leaves out what is as it should be: forty lines."""
    out = io.StringIO()
    log = Log(out, lambda: 0.0, level="error")
    for number in range(40):
        log.audit("capture", by="alice", processes=number)
        log.info("window")

    lines = out.getvalue().splitlines()
    assert [line.partition("event=")[2] for line in lines] == [
        f"capture by=alice processes={number} audit=True" for number in range(40)
    ]
