"""From a running torch process to ``roofwatch top``, and what happens when a part of the way dies."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from typing import Any

import pytest
from whole_path import Node, wait_for

from roofwatch.hook.native import proved
from roofwatch.model.answer_rows import ROW_KEYS


def stored(node: Node) -> list[tuple[str, int]]:
    """Uid and number of rows of each window, straight from the database file."""
    with sqlite3.connect(f"file:{node.folder}/store.db?mode=ro", uri=True) as db:
        return db.execute("select hex(uid), count(*) from windows group by uid").fetchall()


def spooled(node: Node) -> int:
    """Windows that the agent has not handed over yet."""
    with sqlite3.connect(f"file:{node.folder}/state/spool.db?mode=ro", uri=True) as db:
        return db.execute("select coalesce(sum(windows), 0) from segment").fetchone()[0]


def test_a_running_job_is_seen_in_top(node: Node) -> None:
    """Registered under model and label, windows of two steps, kernels with kinds, costs measured; exit code kept."""
    node.store()
    node.agent()
    job = node.job("mlp", 12)
    wait_for(lambda: len(node.windows()) >= 3, "three windows did not arrive")
    process = node.ask("processes", "--label", "suite=e2e")["rows"][0]
    assert (process["model"], process["pid"]) == ("mlp", job.pid)
    assert process["lost_ns"] is not None
    assert any(window["steps"] == 2 for window in node.windows())
    answer = node.ask("top", "--model", "mlp", "--top", "0")
    assert all(tuple(row) == ROW_KEYS for row in answer["rows"])
    assert {"aten::addmm", "aten::mm", "aten::gelu"} <= {row["op"] for row in answer["rows"]}
    assert {"matmul", "activation"} <= {row["kind"] for row in answer["rows"]}
    # Self times: what is counted is at most what the windows spanned, nothing twice.
    assert 0 < sum(row["total_ns"] for row in answer["rows"]) <= answer["coverage"]["span_ns"]
    assert sum(row["total_ns"] for row in answer["rows"]) == answer["coverage"]["device_time_ns"]
    assert sum(row["share"] for row in answer["rows"]) == pytest.approx(1.0)
    assert node.ask("nodes")["rows"][0]["processes"] == 1
    assert node.ask("roofline")["rows"]
    assert job.wait(30) == 0
    assert job.stdout.read() == "done\n"


def test_a_killed_store_loses_and_doubles_nothing(node: Node) -> None:
    """SIGKILL twice while windows stream in: what the agent sealed is in the database once when all is handed over."""
    store = node.store()
    node.agent(interval=0.5)
    job = node.job("mlp", 18)
    seen: set[str] = set()
    for _ in range(2):
        before = len(seen)
        wait_for(lambda before=before: len(node.windows()) >= before + 2, "windows did not arrive")
        seen |= {window["uid"] for window in node.windows()}
        store.send_signal(signal.SIGKILL)
        store.wait()
        time.sleep(1.5)  # windows go on being sealed meanwhile
        store = node.store()
    assert job.wait(40) == 0
    wait_for(lambda: len(stored(node)) == recorded(node) and spooled(node) == 0, "not every window was handed over")
    found = stored(node)
    assert {uid.lower() for uid, _ in found} >= seen
    assert all(count == 1 for _, count in found)
    assert len(node.windows()) == len(found) > len(seen)


def recorded(node: Node) -> int:
    """Windows that the agent says it has recorded."""
    from roofwatch.agent import status  # noqa: PLC0415

    return int(status.request(str(node.socket))["windows"]["recorded"])


def test_a_killed_agent_is_replaced(node: Node) -> None:
    """The job neither ends nor says a word; it registers with the next agent by itself and gives windows again."""
    node.store()
    agent = node.agent()
    job = node.job("mlp", 40)
    wait_for(node.windows, "no window arrived")
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    assert job.poll() is None
    before = {window["uid"] for window in node.windows()}
    node.agent()
    wait_for(lambda: {w["uid"] for w in node.windows()} - before, "no window arrived after the agent came back")
    assert {window["pid"] for window in node.windows()} == {job.pid}
    job.send_signal(signal.SIGTERM)
    assert job.wait(10) == -signal.SIGTERM


def trouble(node: Node, *arguments: str) -> str:
    """The one sentence with which a program refuses to start, exit code 1."""
    done = subprocess.run(
        [sys.executable, "-m", "roofwatch.cli.main", *arguments],
        capture_output=True, text=True, timeout=30, check=False, env=node.env,
    )  # fmt: skip
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_what_cannot_start_says_so_in_a_sentence(node: Node) -> None:
    """A second agent on a socket, a port in use, an unwritable folder, a database from a newer version."""
    node.store()
    node.agent()
    assert "another agent" in trouble(node, "agent", "--state", str(node.folder / "other"))
    assert "port is in use" in trouble(node, "store", "serve", "--listen", node.address, "--db", f"{node.url}2")
    locked = ("--db", "sqlite:////proc/roofwatch/store.db")
    assert "/proc/roofwatch" in trouble(node, "store", "serve", "--listen", "127.0.0.1:0", *locked)
    assert "/proc/roofwatch" in trouble(
        node, "agent", "--state", "/proc/roofwatch", "--socket", f"{node.folder}/b.sock"
    )
    assert "/proc/roofwatch" in trouble(
        node, "agent", "--state", f"{node.folder}/b", "--socket", "/proc/roofwatch/a.sock"
    )
    newer = node.folder / "newer.db"
    with sqlite3.connect(newer) as db:
        db.execute("create table alembic_version (version_num varchar(32) not null primary key)")
        db.execute("insert into alembic_version values ('9999')")
    assert "newer" in trouble(node, "store", "serve", "--listen", "127.0.0.1:0", "--db", f"sqlite:///{newer}")


def test_the_doctor_finds_what_is_there_and_what_is_not(node: Node) -> None:
    """With store and agent both are ok; the probe of torch names the version; after their end both fail, exit 1."""

    def look() -> tuple[int, dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-m", "roofwatch.cli.main", "doctor", "--store", node.address, "--format", "csv"],
            capture_output=True, text=True, timeout=60, check=False, env=node.env,
        )  # fmt: skip
        rows = [line.split(",") for line in done.stdout.splitlines()[1:]]
        return done.returncode, {row[0]: row[1] for row in rows}

    code, found = look()
    assert code == 1
    assert (found["agent"], found["store"]) == ("fail", "fail")
    store, agent = node.store(), node.agent()
    code, found = look()
    assert code == 0
    assert {name: found[name] for name in ("python", "socket", "agent", "spool", "store")} == dict.fromkeys(
        ("python", "socket", "agent", "spool", "store"), "ok"
    )
    torch = pytest.importorskip("torch")
    assert found["torch"] == ("ok" if proved(torch) else "warn")  # windows of other builds stall the job
    agent.terminate()
    store.terminate()
    assert (agent.wait(15), store.wait(15)) == (0, 0)


def test_a_file_is_imported_into_a_running_store(node: Node) -> None:
    """One kernel of 5 µs from a trace, sent twice over the wire: one window, found by its label."""
    trace = node.folder / "one.json"
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10.0, "dur": 5.0}
    properties = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}]
    kernel["args"] = {"device": 0, "stream": 7, "correlation": 1}
    trace.write_text(json.dumps({"deviceProperties": properties, "traceEvents": [kernel]}))
    node.store()
    said = [
        subprocess.run(
            [sys.executable, "-m", "roofwatch.cli.main", "import", str(trace), "--store", node.address],
            capture_output=True, text=True, timeout=60, check=True, env=node.env,
        ).stdout
        for _ in range(2)
    ]  # fmt: skip
    assert said == [f"{trace}: 1 record\n", f"{trace}: 1 record, known already\n"]
    rows = node.ask("top", "--label", "file=one.json")["rows"]
    assert [(row["kernel"], row["calls"], row["total_ns"]) for row in rows] == [("k", 1, 5000)]
