"""``padding`` from a store: through the wire's form, real SQLite, and the command line."""

from __future__ import annotations

import dataclasses
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from store_builders import H100, process_of, stat, window_of

from roofwatch.model.kinds import Kind
from roofwatch.model.padding import of_batches
from roofwatch.model.record import Bound, Padding, Signature, Window
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.queries import Queries

# As in test_schemes: 600 ns of a product, 300 of scores, 100 of an optimizer, of the lengths 10, 10, 10, 40.
PRODUCT = Signature("gemm", Kind.MATMUL, "aten::mm", shapes="[[160,16],[16,16]]", dtypes='["fp32","fp32"]')
SCORES = Signature("softmax", Kind.SOFTMAX, "aten::_softmax", shapes="[[4,2,40,40]]", dtypes='["fp32"]')
STEP = Signature("adam", Kind.OPTIMIZER, "aten::_fused_adamw_")
TOLD = of_batches([[10, 10, 10, 40]])
SECOND = 1_000_000_000

Keep = Callable[[list[Window]], None]


def kernels() -> list[Any]:
    """The three kernels."""
    return [stat(PRODUCT, [600], bound=Bound.UNKNOWN), stat(SCORES, [300], bound=Bound.UNKNOWN), stat(STEP, [100])]


def padded(window: Window, padding: Padding | None) -> Window:
    """A window that tells lengths."""
    return dataclasses.replace(window, padding=padding)


def scene() -> list[Window]:
    """Two windows of a job, 60 s apart, each for a minute and busy for the 1000 ns of its span."""
    job = process_of(pid=41, model="told")
    more = {"process": job, "span_ns": 1000, "represents_ns": 60 * SECOND, "device": H100}
    at = 2_000_000_000 * SECOND
    return [padded(window_of(name, kernels(), start_unix_ns=at + i * 60 * SECOND, **more), TOLD)
            for i, name in enumerate("ab")]  # type: ignore[arg-type]  # fmt: skip


def ask(db: Database, **scope: Any) -> dict[str, Any]:
    """The answer of the query."""
    return Queries(db).run("padding", Filter(**scope))


def test_a_store_tells_what_the_lengths_and_kernels_tell(db: Database, keep: Keep) -> None:
    """1000 ns of each minute are busy 60 s of device time: 24 device-hours a day, of which 54.84 % can be saved."""
    keep(scene())
    found = ask(db)
    assert found["utilisation"] == {"linear": pytest.approx(0.4375), "quadratic": pytest.approx(0.296875)}
    assert found["split"]["linear_share"] == pytest.approx(0.6)
    assert found["split"]["quadratic_share"] == pytest.approx(0.3)
    assert found["split"]["other_share"] == pytest.approx(0.1)
    assert found["period_ns"] == 120 * SECOND
    assert found["device_hours_per_day"] == pytest.approx(24.0)
    free = found["rows"][-1]
    assert free["scheme"] == "padding_free"
    assert free["saved_share"] == pytest.approx(0.5484375)
    assert free["saved_device_hours_per_day"] == pytest.approx(0.5484375 * 24)
    assert (found["lengths"]["windows"], found["lengths"]["sequences"], found["processes"]) == (2, 8, 1)
    assert found["recommendation"]["do"] == "bucket"
    assert found["recommendation"]["boundaries"] == [10, 40]


def test_only_windows_of_known_intervals_make_hours(db: Database, keep: Keep) -> None:
    """Two jobs, an hour apart, each busy for its minute; the second's first window stands for nothing, with 1000 ns.

    Two minutes of device time in two minutes: 24 device-hours a day, not 24 · 2 ÷ 62; and a job beside the first, of
    half its minute, makes 2.5 minutes in 2.
    """
    first, second = scene()
    hour = 3600 * SECOND
    job = process_of(pid=42, model="told")
    more = {"process": job, "span_ns": 1000, "device": H100}
    silent = padded(window_of("c", kernels(), start_unix_ns=first.start_unix_ns + hour, **more), TOLD)  # type: ignore[arg-type]
    later = {**more, "represents_ns": 60 * SECOND, "start_unix_ns": first.start_unix_ns + hour + 90 * SECOND}
    keep([first, silent, padded(window_of("d", kernels(), **later), TOLD)])  # type: ignore[arg-type]
    found = ask(db)
    assert found["period_ns"] == 120 * SECOND
    assert found["device_hours_per_day"] == pytest.approx(24.0)
    beside = {**later, "process": process_of(pid=43, model="told"), "represents_ns": 30 * SECOND}
    keep([padded(window_of("e", kernels(), **beside), TOLD)])  # type: ignore[arg-type]
    assert ask(db)["device_hours_per_day"] == pytest.approx(24.0 * 2.5 / 2)
    assert ask(db)["period_ns"] == 120 * SECOND
    wide = {**later, "represents_ns": 600 * SECOND, "start_unix_ns": second.start_unix_ns + 240 * SECOND}
    keep([padded(window_of("f", kernels(), **{**wide, "process": process_of(pid=44, model="told")}), TOLD)])  # type: ignore[arg-type]
    assert ask(db)["period_ns"] == (600 + 60) * SECOND  # it holds the first job's minute


def test_what_a_window_told_comes_back(db: Database, keep: Keep, tmp_path: Path) -> None:
    """Lengths, shapes, rounded and unread in their columns, as they were sent."""
    told = Padding(2, 8, 10, 34, 50, ((3, 1), (5, 1)), ((2, 5, 1), (3, 4, 2)), coarsened=1, unread=7)
    keep([padded(scene()[0], told)])
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        row = connection.execute(
            "SELECT padding_lengths, padding_shapes, padding_coarsened, padding_unread FROM windows"
        ).fetchone()
    assert [json.loads(text) for text in row[:2]] == [[[3, 1], [5, 1]], [[2, 5, 1], [3, 4, 2]]]
    assert row[2:] == (1, 7)
    found = ask(db)["lengths"]
    assert (found["unread"], found["coarsened"], found["sequences"]) == (7, 1, 2)


def test_processes_that_tell_nothing_are_left_out(db: Database, keep: Keep) -> None:
    """Beside a job that serves something else: its 5000 ns are in no share, and that it told nothing is."""
    other = window_of("c", [stat(PRODUCT, [5000])], process=process_of(pid=42), represents_ns=60 * SECOND)
    keep([*scene(), other])
    found = ask(db)
    assert found["split"]["linear_share"] == pytest.approx(0.6)
    assert (found["processes"], found["processes_without_lengths"]) == (1, 1)
    assert ask(db, model="told")["processes_without_lengths"] == 0


def test_only_unread_batches_are_no_lengths(db: Database, keep: Keep) -> None:
    """A mask that could not be read is no batch of no tokens."""
    keep([padded(scene()[0], Padding(0, 0, 0, 0, 0, unread=4))])
    found = ask(db)
    assert found["utilisation"] == {"linear": None, "quadratic": None}
    assert (found["recommendation"], found["lengths"]["unread"]) == (None, 4)


def test_the_command_shows_it(db: Database, keep: Keep, roofwatch: Callable[..., Any], tmp_path: Path) -> None:
    """In 80 columns, with the boundaries, the hours and what is taken for granted; JSON and CSV have the same rows."""
    keep(scene())
    url = f"sqlite:///{tmp_path}/store.db"
    shown = roofwatch("padding", "--db", url, "--since", "all")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "Used: 43.8 % of the tokens, 29.7 % of their squares (attention)" in lines
    assert "Device time: linear 60 % · quadratic 30 % · other 10 %" in lines
    assert any(re.fullmatch(r"2 buckets +100 % +100 % +55 % +55 % +13\.2", line) for line in lines)
    assert "2 buckets up to 10, 40 tokens" in shown.stdout
    told = json.loads(roofwatch("padding", "--db", url, "--since", "all", "--format", "json").stdout)
    assert told["rows"] == ask(db)["rows"]
    table = roofwatch("padding", "--db", url, "--since", "all", "--format", "csv").stdout.splitlines()
    assert table[0].startswith("scheme,buckets,boundaries,linear_utilisation")
    assert len(table) == 1 + len(told["rows"])


def test_without_lengths_one_sentence_says_how(
    db: Database, keep: Keep, roofwatch: Callable[..., Any], tmp_path: Path
) -> None:
    """Windows there are, lengths none: exit 4; nothing at all: what there is instead."""
    del db
    keep([padded(scene()[0], None)])
    where = ("--db", f"sqlite:///{tmp_path}/store.db")
    shown = roofwatch("padding", *where, "--since", "all")
    assert shown.returncode == 4
    assert "batch(lengths=" in shown.stderr
    assert "model_module=" in shown.stderr
    assert len(shown.stderr.splitlines()) == 1
    nothing = roofwatch("padding", *where, "--since", "all", "--model", "tole")
    assert nothing.returncode == 4
    assert "told" in nothing.stderr
