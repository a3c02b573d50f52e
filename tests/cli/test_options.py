"""Times, labels and filters on the command line."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import pytest
from click.testing import CliRunner

from roofwatch.cli import options, showing
from roofwatch.cli.options import moment
from roofwatch.store.filter import Filter

NOW = 1_770_000_000_000_000_000  # 2026-02-02 02:40:00 UTC
HOUR = 3_600_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW), ("all", 0), ("90s", NOW - 90 * 10**9), ("30m", NOW - HOUR // 2), ("30min", NOW - HOUR // 2),
        ("1h", NOW - HOUR), ("1.5h", NOW - HOUR * 3 // 2), ("2d", NOW - 48 * HOUR), ("1w", NOW - 168 * HOUR),
        ("1h30m", NOW - HOUR * 3 // 2), ("1 h 30 m", NOW - HOUR * 3 // 2), (" 1h ", NOW - HOUR),
        ("2026-02-02T02:40:00Z", NOW), ("2026-02-02T02:40:00.000001+00:00", NOW + 1000),
        ("2026-02-02T03:40+01:00", NOW), ("20260202T024000Z", NOW),
    ],
)  # fmt: skip
def test_moments(text: str, expected: int) -> None:
    """Durations count back from now; ISO times name their zone."""
    assert moment(text, NOW) == expected


def test_a_time_without_a_zone_is_local() -> None:
    """As the user's clock shows it."""
    local = datetime.fromtimestamp(NOW / 1e9, UTC).astimezone().replace(tzinfo=None)
    assert moment(local.isoformat(), NOW) == NOW


@pytest.mark.parametrize("text", ["", "h", "1", "3y", "yesterday", "1h ago", "-1h", "2026-13-01", "1h,30m"])
def test_what_is_no_moment(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError, match=r".*"):
        moment(text, NOW)


@pytest.mark.parametrize(
    "text",
    ["2262-04-12T00:00Z", "3000-01-01", "9999-12-31T23:59:59-12:00", "1677-09-21T00:00Z", "0001-01-01T00:00+14:00",
     "999999999d", "9" * 400 + "d"],
)  # fmt: skip
def test_what_64_bits_of_nanoseconds_do_not_hold(text: str) -> None:
    """A time that neither the wire nor a database can hold is told from what is no time."""
    with pytest.raises(OverflowError):
        moment(text, NOW)


def test_the_first_and_the_last_day_that_can_be_named() -> None:
    """As the message about the range says: both ends lie within ±2⁶³ ns, by the calendar's own arithmetic."""
    for day in (datetime(1677, 9, 22, tzinfo=UTC), datetime(2262, 4, 11, tzinfo=UTC)):
        days = (day - datetime(1970, 1, 1, tzinfo=UTC)).days
        assert moment(day.isoformat(), NOW) == days * 86_400 * 10**9


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (0, 0, "all time"), (NOW - HOUR, 0, "last 1 h"), (NOW - HOUR - 900_000_000, 0, "last 1 h"),
        (NOW - HOUR * 3 // 2, 0, "last 90 min"), (NOW - 48 * HOUR, 0, "last 2 d"), (NOW - 5 * 10**9, 0, "last 5 s"),
    ],
)  # fmt: skip
def test_periods(since: int, until: int, expected: str) -> None:
    """What was given as a duration comes back as one, also when a second went by meanwhile."""
    assert showing.period(since, until, NOW) == expected


def test_a_date_long_ago_is_no_number_of_seconds() -> None:
    """333 days and 44 s ago somebody named a day, not 28,771,244 s."""
    assert showing.period(NOW - 333 * 24 * HOUR - 44 * 10**9, 0, NOW).startswith("since 20")


def test_title_names_what_was_asked() -> None:
    """Node or all nodes first, then the other filters, the period last."""
    given = Filter(node="gpu-07", model="llama", process="4711", labels={"git": "abc", "a": "b"})
    assert showing.title(given, NOW) == ["gpu-07", "llama", "process 4711", "a=b", "git=abc", "all time"]
    assert showing.title(Filter(), NOW) == ["all nodes", "all time"]


@pytest.mark.parametrize(
    ("given", "command"),
    [
        (Filter(since_unix_ns=NOW - HOUR), "roofwatch diagnose"),
        (Filter(), "roofwatch diagnose --since all"),
        (Filter(since_unix_ns=NOW - HOUR * 3 // 2, node="gpu-07"), "roofwatch diagnose --node gpu-07 --since 90m"),
        (
            Filter(since_unix_ns=NOW - 48 * HOUR, model="a b", process="7", labels={"git": "x", "a": "$y"}),
            "roofwatch diagnose --process 7 --model 'a b' --label 'a=$y' --label git=x --since 2d",
        ),
    ],
)
def test_the_command_that_diagnoses_the_same(given: Filter, command: str) -> None:
    """Its filter is that of the command before, quoted for a shell; the default time is not repeated."""
    assert showing.diagnose(given, NOW) == command


@pytest.mark.parametrize(
    ("words", "env", "told"),
    [
        (("--db", "sqlite:///a b.db"), {}, "roofwatch diagnose --db 'sqlite:///a b.db'"),
        (("--store", "h:1"), {"ROOFWATCH_DB": "sqlite:///x.db"}, "roofwatch diagnose --store h:1"),
        ((), {"ROOFWATCH_DB": "sqlite:///x.db"}, "roofwatch diagnose"),
        (("--db", "postgresql+psycopg://u:secret@h/d"), {}, "roofwatch diagnose --db URL"),
        (("--db", "postgresql+psycopg://u@h/d?password=secret"), {}, "roofwatch diagnose --db URL"),
        (("--db", "postgresql+psycopg://u@h:5432/d"), {}, "roofwatch diagnose --db postgresql+psycopg://u@h:5432/d"),
    ],
)
def test_the_next_command_asks_the_same_store(words: tuple[str, ...], env: dict[str, str], told: str) -> None:
    """What was typed is told again; what the environment says holds for the next command, too; no password is shown."""

    @click.command
    @options.source
    def command(**_: str | None) -> None:
        source, short = showing.typed_source()
        click.echo(showing.diagnose(Filter(since_unix_ns=NOW - HOUR), NOW, source))
        assert short in ([], ["--db", "URL"], ["--store", "HOST:PORT"])
        assert bool(short) == bool(source)

    done = CliRunner().invoke(command, words, env=env)
    assert (done.exit_code, done.output) == (0, f"{told}\n"), done.output


def test_points_in_time_come_back_as_such() -> None:
    """A time that is no round duration before now is told as a time, and means the same moment."""
    words = showing.diagnose(Filter(NOW - HOUR * 5 - 1234 * 10**9, NOW - HOUR), NOW).split()
    assert moment(words[words.index("--until") + 1], NOW) == NOW - HOUR
    assert moment(words[words.index("--since") + 1], NOW) == NOW - HOUR * 5 - 1234 * 10**9
