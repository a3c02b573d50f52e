"""Commands that meet a ClickHouse database: one that does not write there says so in one sentence, and what to do."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from clickhouse_server import ClickHouse

from roofwatch.store import database
from roofwatch.store.clickhouse import ddl

Roofwatch = Callable[..., "subprocess.CompletedProcess[str]"]
TRACE = (
    '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.0, "dur": 2.0, '
    '"args": {"device": 0, "stream": 7}}]}'
)


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a command that failed says."""
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_migrate_tells_the_version_of_the_tables(roofwatch: Roofwatch, clickhouse: ClickHouse) -> None:
    """What ``roofwatch_versions`` has; made, brought here from the third version, and again to no effect."""
    name = clickhouse.create()
    url = clickhouse.url(name)
    for _ in range(2):
        done = roofwatch("store", "migrate", "--db", url)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{url} has tables of version {ddl.VERSION}\n"
    assert clickhouse.run("SELECT version FROM roofwatch_versions", name) == [[str(ddl.VERSION)]]
    for text in (
        "TRUNCATE TABLE roofwatch_versions",
        "INSERT INTO roofwatch_versions (version, applied_unix_ns) VALUES (3, 1)",
        "DROP TABLE packed_sums",
    ):
        clickhouse.run(text, name)
    done = roofwatch("store", "migrate", "--db", url)
    assert (done.returncode, done.stdout) == (0, f"{url} has tables of version {ddl.VERSION}\n")
    assert clickhouse.run("SELECT max(version) FROM roofwatch_versions", name) == [[str(ddl.VERSION)]]
    assert clickhouse.run("SELECT count() FROM packed_sums", name) == [["0"]]
    clickhouse.run("INSERT INTO roofwatch_versions (version, applied_unix_ns) VALUES (9000, 1)", name)
    assert "a newer version of Roofwatch (tables 9000, " in sentence(roofwatch("store", "migrate", "--db", url))


def test_what_only_the_store_does_there(started: Roofwatch, clickhouse: ClickHouse, tmp_path: Path) -> None:
    """``prune`` and ``import``: where it is done instead, with no line of the log before."""
    url = clickhouse.url(clickhouse.create())
    database.open(url).close()
    assert "is pruned by its running store alone, every half minute" in sentence(started("store", "prune", "--db", url))
    (tmp_path / "trace.json").write_text(TRACE)
    assert "is written by its store: run 'roofwatch store serve', and send to it (--store)" in sentence(
        started("import", "trace.json", "--db", url)
    )


def test_a_store_without_its_server_says_one_sentence(started: Roofwatch, tmp_path: Path) -> None:
    """Libraries below have nothing to add to it."""
    at = ("--db", "clickhousedb://u@127.0.0.1:1/d", "--listen", "127.0.0.1:0", "--journal", str(tmp_path / "j.db"))
    done = started("store", "serve", *at)
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "no ClickHouse answers" in done.stderr
