"""Windows on request, across two nodes and through a real store: what becomes of each, and the traces that are kept."""

from __future__ import annotations

import gzip
import json
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import old_peers
import pytest
from capture_site import ALONE, Site, wait_for

from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc

NODES = ("node-a", "node-b")
LONE = "lone"  # a process of no job


@pytest.fixture(scope="module")
def job(site: Site) -> str:
    """A job with a rank on each of two nodes, whose agents take no window by themselves; its name.

    Beside one of the ranks a process of no job; they start together, as starting takes most of the time.
    """
    for node in NODES:
        site.agent(node, "--interval", "3600")
    name = site.ranks(*NODES)
    site.job("node-a", ALONE, LONE)
    site.stepping(name, NODES)
    site.alone(LONE)
    return name


def test_all_ranks_take_the_same_step_and_keep_their_traces(site: Site, job: str, tmp_path: Path) -> None:
    """From nothing known to three whole steps at one step; the store has the windows, the agents the traces."""
    answer = site.json("capture", "--job", job, "--all-ranks", "--keep-trace", "--timeout", "40s")
    assert answer["coverage"] == {"agents": 2, "silent": [], "passed_over": 0, "world_size": 2}
    rows = answer["rows"]
    assert [(row["rank"], row["node"], row["outcome"], row["steps"]) for row in rows] == [
        (0, "node-a", "taken", 3), (1, "node-b", "taken", 3),
    ]  # fmt: skip
    assert len({row["first_step"] for row in rows}) == 1
    again = site.json("capture", "--job", job, "--all-ranks", "--steps", "5")["rows"]
    assert [(row["outcome"], row["steps"], row["trace_kept"]) for row in again] == [("taken", 5, False)] * 2
    assert len({row["first_step"] for row in again}) == 1

    def stored() -> dict[str, dict]:
        return {row["uid"]: row for row in site.json("windows", "--job", job, "--limit", "0")["rows"]}

    # The command waits until they are there.
    assert {row["window"] for row in (*rows, *again)} <= set(stored())
    for row in (*rows, *again):
        window = stored()[row["window"]]
        assert (window["trigger"], window["node"], window["steps"]) == ("requested", row["node"], row["steps"])
        assert (window["first_step"], window["duration_ns"]) == (row["first_step"], row["duration_ns"])
    _fetched(site, rows, tmp_path)


def _fetched(site: Site, rows: list[dict], tmp_path: Path) -> None:
    """Both traces are listed; one is fetched whole, for its owner only, and is what Perfetto opens."""
    listed = {row["window"]: row for row in site.json("trace", "list")["rows"]}
    assert set(listed) == {row["window"] for row in rows}
    first = listed[rows[0]["window"]]
    assert (first["node"], first["pid"], first["rank"], first["format"]) == ("node-a", rows[0]["pid"], 0, "kineto-json")
    for row in rows:  # what its file does not hold: begin, length and steps of the window
        assert listed[row["window"]]["stored"] is True
        known = {name: row[name] for name in ("steps", "first_step", "duration_ns")}
        assert {name: listed[row["window"]][name] for name in known} == known
    drawn = site.call("trace", "list").stdout
    assert {"began", "from", "steps", "length"} <= set(drawn.splitlines()[0].split())
    assert f" {rows[0]['first_step']:,} " in drawn
    out = tmp_path / "t.json.gz"
    done = site.call("trace", "get", first["window"][:10], "-o", str(out))
    assert done.returncode == 0, done.stderr
    assert "ui.perfetto.dev" in done.stdout
    assert (out.stat().st_size, stat.S_IMODE(out.stat().st_mode)) == (first["bytes"], 0o600)
    trace = json.loads(gzip.decompress(out.read_bytes()))
    ops = {event["name"] for event in trace["traceEvents"] if event.get("cat") == "cpu_op"}
    assert {"aten::linear", "aten::addmm"} & ops
    assert list(tmp_path.iterdir()) == [out]
    kept = list((site.folder / "node-a" / "state" / "traces").iterdir())
    assert {(path.suffix, stat.S_IMODE(path.stat().st_mode)) for path in kept} == {(".gz", 0o600), (".json", 0o600)}
    opened = site.call("trace", "open", first["window"][:10])
    assert f"roofwatch trace get {first['window'][:8]}" in opened.stdout


def test_of_a_trace_its_windows_node_alone_is_heard(site: Site, job: str, tmp_path: Path) -> None:
    """Another node's agent, first to answer, tells of a false trace of a stored window, kept there or not.

    It is neither listed nor fetched. What it tells of a window that nobody stored is its word, taken where it is named.
    """
    kept = next(row for row in site.json("trace", "list")["rows"] if row["node"] == "node-a")
    bare = next(
        r["uid"] for r in site.json("windows", "--job", job, "--limit", "0")["rows"] if r["uid"] != kept["window"]
    )
    invented = kept["window"][:8] + "0" * 24
    told = [kept["window"], bare, invented]
    with old_peers.agent(site.address, "node-evil", old_peers.forger([bytes.fromhex(uid) for uid in told])):
        listing = site.json("trace", "list")
        assert {"node": "node-evil", "reason": "not_its_own"} in listing["coverage"]["silent"]
        assert [r["window"] for r in listing["rows"] if r["node"] == "node-evil"] == [invented]
        assert [r["stored"] for r in listing["rows"] if r["window"] in told] == [
            r["node"] != "node-evil" for r in listing["rows"] if r["window"] in told
        ]
        out = tmp_path / "t.json.gz"
        for begin in (kept["window"], kept["window"][:8]):
            done = site.call("trace", "get", begin, "-o", str(out))
            assert done.returncode == 0, done.stderr
            assert out.read_bytes() == (site.folder / "node-a/state/traces" / f"{kept['window']}.gz").read_bytes()
            out.unlink()
        for words, why in (
            ((bare,), "node-evil is not believed, for it is another node's window"),
            ((kept["window"], "--node", "node-evil"), "node-evil is not believed"),
            ((invented,), "nothing but an agent's word says that it is of node node-evil"),
        ):
            done = site.call("trace", "get", *words, "-o", str(out))
            assert (done.returncode, why in done.stderr, out.exists()) == (1, True, False), done.stderr
        done = site.call("trace", "get", invented, "--node", "node-evil", "-o", str(out))
        assert (done.returncode, out.read_bytes()) == (0, old_peers.FALSE), done.stderr
        _asked_directly(site, [bytes.fromhex(uid) for uid in told])


def _asked_directly(site: Site, told: list[bytes]) -> None:
    """The store itself, whoever asks it: an older command line names no node."""
    with grpc.insecure_channel(site.address) as channel:
        stub = rpc.ControlStub(channel)
        for window, node, why in (
            (told[1], "", "no agent of node"), (told[0], "node-evil", "is of node node-a"),
            (told[2], "", "is not stored, so nothing says whose it is"),
        ):  # fmt: skip
            with pytest.raises(grpc.RpcError, match=why) as refused:
                list(stub.GetTrace(pb.GetTraceRequest(window=window, node=node), timeout=20))
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        chunks = list(stub.GetTrace(pb.GetTraceRequest(window=told[0]), timeout=20))
        assert chunks[0].head.node == "node-a"
        assert b"".join(chunk.data for chunk in chunks) != old_peers.FALSE
    read = f"event=trace_read by=anybody window={told[0].hex()} audit=True"
    assert site.said(site.started[1]).count(read) == 4  # each time, by name; once in the test before
    assert f"trace of window {told[0].hex()}" in site.said(site.started[0])


def test_one_rank_is_the_default_and_what_is_not_there_is_told(site: Site, job: str) -> None:
    """The lowest rank; a rank by its number; a job, node or trace that nobody has; two ways to choose."""
    answer = site.json("capture", "--job", job, "--steps", "1")
    assert [(row["rank"], row["outcome"]) for row in answer["rows"]] == [(0, "taken")]
    assert answer["coverage"]["passed_over"] == 1
    answer = site.json("capture", "--job", job, "--rank", "1", "--steps", "1")
    assert [(row["rank"], row["node"]) for row in answer["rows"]] == [(1, "node-b")]
    done = site.call("capture", "--job", job, "--rank", "1", "--rank", "7", "--rank", "9", "--steps", "1")
    assert (done.returncode, "ranks 7, 9 of 2: registered with no agent of this store." in done.stderr) == (4, True)
    here = site.json("capture", "--job", job, "--rank", "0", "--rank", "1", "--node", "node-b", "--steps", "1")
    assert [row["rank"] for row in here["rows"]] == [1]  # the other rank is elsewhere, and was not meant
    for words, code, told in (
        (("capture", "--job", "none"), 4, "no process of job none is registered with the 2 agents"),
        (("capture", "--node", "none"), 4, "no agent of node 'none' is connected"),
        (("capture",), 2, "which? Name a --job"),
        (("capture", "--job", job, "--rank", "0", "--all-ranks"), 2, "give one of them"),
        (("trace", "get", "0123456789"), 1, "no agent that is connected keeps a trace of window 0123456789"),
        (("trace", "get", "nonsense"), 2, "is no window"),
    ):
        done = site.call(*words)
        assert (done.returncode, told in done.stderr) == (code, True), done.stderr


def test_what_cannot_be_taken_is_told(site: Site, job: str) -> None:
    """A process that does not step any more does not answer in time; then its window is still owed; then it comes."""
    del job
    site.halt(LONE)
    time.sleep(0.2)
    row = site.json("capture", "--model", LONE, "--timeout", "1s", code=1)["rows"][0]
    assert (row["outcome"], row["reason"]) == ("timed_out", "no_answer")
    row = site.json("capture", "--model", LONE, "--timeout", "1s", code=1)["rows"][0]
    assert (row["outcome"], row["reason"]) == ("timed_out", "busy")
    site.halt(LONE, on=False)
    row = site.json("capture", "--model", LONE)["rows"][0]
    assert (row["outcome"], row["steps"], row["rank"]) == ("taken", 3, None)
    drawn = site.call("capture", "--model", LONE, "--steps", "1")
    assert "taken" in drawn.stdout
    assert max(map(len, drawn.stdout.splitlines())) <= 80


def test_an_agent_killed_meanwhile_is_told(site: Site, job: str) -> None:
    """It had asked; the one that comes after it knows nothing of the request, and keeps the traces."""
    del job
    (row,) = site.json("capture", "--model", LONE, "--steps", "1", "--keep-trace")["rows"]
    kept = {row["window"] for row in site.json("trace", "list")["rows"]}
    assert row["window"] in kept
    site.halt(LONE)
    time.sleep(0.2)
    agent = site.started[1]
    before = site.status("node-a")["windows"]["requested"]
    asking = (sys.executable, "-m", "roofwatch.cli.main", "capture", "--model", LONE, "--timeout", "60s")
    env = {**site.env, "ROOFWATCH_STORE": site.address}
    with subprocess.Popen([*asking, "--format", "json"], env=env, stdout=subprocess.PIPE, text=True) as capture:
        wait_for(lambda: site.status("node-a")["windows"]["requested"] > before, "asked", 30)
        time.sleep(0.3)
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        site.agent("node-a", "--interval", "3600", "--budget", "0.001", "--hard-stop", "0.001")
        told = json.loads(capture.communicate(timeout=30)[0])
    assert capture.returncode == 1
    assert [(row["outcome"], row["reason"]) for row in told["rows"]] == [("timed_out", "agent_gone")]
    assert {row["window"] for row in site.json("trace", "list")["rows"]} == kept
    site.halt(LONE, on=False)


def test_over_the_hard_stop_it_is_refused(site: Site, job: str) -> None:
    """By the agent of the test before, whose hard stop is 0.001 %: what costs anything makes the next too dear."""
    del job
    wait_for(lambda: LONE in site.models("node-a"), "it has found the new agent", 30)
    for _ in range(8):
        done = site.call("capture", "--model", LONE, "--steps", "50")
        if done.returncode:
            break
        assert "taken" in done.stdout
    assert done.returncode == 1, done.stdout
    assert "refused: over_budget" in done.stdout
    assert "as much as its hard stop allows" in done.stderr


def test_peers_that_are_too_old_are_named(site: Site, job: str) -> None:
    """An old agent is told beside what was taken; an old store in a sentence."""
    with old_peers.agent(site.address, "node-old", old_peers.unknown):
        done = site.call("capture", "--job", job, "--rank", "1", "--steps", "1")
        assert done.returncode == 0, done.stderr
        assert "node-old: its agent is too old to be asked, upgrade it." in done.stderr
        assert site.json("trace", "list")["coverage"]["silent"] == [{"node": "node-old", "reason": "too_old"}]
    with old_peers.store() as address:
        for words in (("capture", "--job", job), ("trace", "list"), ("trace", "get", "01234567")):
            done = site.call(*words, "--store", address)
            assert done.returncode == 3, done.stderr
            assert (
                done.stderr
                == f"roofwatch: the store at {address} is too old to ask agents for windows and traces: upgrade it.\n"
            )


def test_a_trace_that_comes_damaged_leaves_no_file(site: Site, tmp_path: Path) -> None:
    """An agent gives other bytes than it told the hash of."""
    with old_peers.agent(site.address, "node-liar", old_peers.liar):
        done = site.call(
            "trace", "get", old_peers.WINDOW.hex(), "--node", "node-liar", "-o", str(tmp_path / "t.json.gz")
        )
    assert (done.returncode, "came damaged" in done.stderr) == (1, True), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_fetch_that_is_killed_leaves_no_file(site: Site, tmp_path: Path) -> None:
    """The agent says what it keeps and then nothing more; the asker is killed while it waits."""
    asked = threading.Event()

    def slow(command: pb.Command) -> pb.AgentMessage | None:
        if command.WhichOneof("body") != "read_trace":
            return old_peers.liar(command)
        asked.set()
        return None

    fetch = (sys.executable, "-m", "roofwatch.cli.main", "trace", "get", old_peers.WINDOW.hex(), "--node", "node-slow")
    env = {**site.env, "ROOFWATCH_STORE": site.address}
    fetch += ("-o", str(tmp_path / "t.json.gz"))
    with old_peers.agent(site.address, "node-slow", slow), subprocess.Popen(fetch, env=env) as asking:
        assert asked.wait(30)
        asking.kill()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "told"), [("t.json.gz", "ui.perfetto.dev"), ("t.db.gz", "MindStudio Insight")])
def test_how_to_open_depends_on_what_it_is(roofwatch: Any, tmp_path: Path, name: str, told: str) -> None:
    """A file is asked nobody about."""
    (tmp_path / name).touch()
    done = roofwatch("trace", "open", tmp_path / name)
    assert (done.returncode, told in done.stdout, name.removesuffix(".gz") in done.stdout) == (0, True, True)
