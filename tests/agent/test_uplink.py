"""The uplink of a real agent against a small real store that is slow, dies, rejects, or commands."""

from __future__ import annotations

import signal
import time

import pytest

from roofwatch.agent.uplink import check_target, is_loopback
from roofwatch.model.errors import UsageError
from roofwatch.proto import codec
from roofwatch.proto.trust import Trust
from roofwatch.proto.v1 import roofwatch_pb2 as pb


def feed(job, count: int) -> None:
    """Answer ``count`` requests with a window each."""
    for _ in range(count):
        job.answer(job.receive())


def test_windows_reach_the_store_and_leave_the_spool(agents, stores, job, wait):
    """Three windows arrive once each, under numbers that count up, and the spool is empty after the acks."""
    store = stores()
    agent = agents("--interval", "0.5", "--store", f"127.0.0.1:{store.port}", "--labels", "rack=7")
    feed(job(agent.socket, model="m"), 3)

    wait(lambda: agent.status()["windows"].get("stored", 0) >= 3, "three windows stored")

    received = store.received()
    assert [e.id.sequence for e in received] == list(range(1, len(received) + 1))
    assert len(store.windows()) == len(set(store.windows())) == agent.status()["windows"]["sealed"]
    assert agent.status()["spool"] == {**agent.status()["spool"], "segments": 0, "bytes": 0}
    hello = pb.AgentHello.FromString((store.folder / "hello").read_bytes())
    assert (hello.agent, dict(hello.node.labels)) == (received[0].id.agent, {"rack": "7"})


def test_a_store_killed_after_commit_and_before_ack_gets_each_window_once(agents, stores, job, wait):
    """The store dies with committed, unacked segments; after its restart nothing is lost and all repeats are known."""
    store = stores("die=2")
    agent = agents("--interval", "0.5", "--store", f"127.0.0.1:{store.port}")
    client = job(agent.socket)
    feed(client, 2)
    deadline = time.monotonic() + 20
    while store.process.poll() is None and time.monotonic() < deadline:
        feed(client, 1)
    assert store.process.poll() == 9

    feed(client, 2)
    store = stores()
    wait(
        lambda: agent.status()["spool"]["segments"] == 0 and agent.status()["windows"]["sealed"] >= 4, "spool empty", 30
    )

    counted = agent.status()["windows"]
    assert counted["sealed"] == counted["stored"] + counted["duplicate"] == len(set(store.windows()))
    assert counted["duplicate"] >= 1
    assert agent.status()["uplink"]["disconnects"] >= 1


def test_an_agent_killed_with_windows_in_its_spool_sends_them_after_its_restart(agents, stores, job, wait):
    """SIGKILL the agent with no store at hand; the next agent sends the old segments under their old numbers."""
    agent = agents("--interval", "0.5")
    feed(job(agent.socket), 3)
    sealed = wait(lambda: agent.status()["windows"].get("sealed"), "windows sealed")
    agent.kill()

    store = stores()
    agent = agents("--interval", "60", "--store", f"127.0.0.1:{store.port}")
    wait(lambda: agent.status()["windows"].get("stored") == sealed, "old windows stored")

    assert len(store.windows()) == sealed
    hello = pb.AgentHello.FromString((store.folder / "hello").read_bytes())
    assert store.received()[0].id.agent == hello.agent
    assert store.received()[0].id.boot != hello.boot


def test_rejected_segments_are_dropped_and_told_with_the_next_segment(agents, stores, job, wait):
    """A rejected window is counted as store_rejected, never sent again, and the count travels with a later segment."""
    store = stores("reject")
    agent = agents("--interval", "0.5", "--store", f"127.0.0.1:{store.port}")
    client = job(agent.socket)
    feed(client, 1)
    wait(lambda: agent.status()["drops"].get("store_rejected") == 1, "a rejected window")
    store.kill()
    assert agent.status()["spool"]["segments"] == 0

    store = stores()
    feed(client, 1)
    wait(store.received, "a segment", 30)

    told = codec.unseal(store.received()[0]).agent_drops
    assert dict(told) == {"store_rejected": 1}


def test_stopping_flushes_what_was_sealed(agents, stores, job, wait):
    """SIGTERM right after a window arrived: it is read, sealed, sent and acked before the agent ends."""
    store = stores("delay=0.3")
    agent = agents("--interval", "0.5", "--store", f"127.0.0.1:{store.port}")
    wait(lambda: agent.status()["uplink"]["connected"], "connected")
    client = job(agent.socket)
    feed(client, 1)
    wait(lambda: agent.status()["windows"].get("recorded"), "a window read")

    assert agent.stop() == 0

    assert len(store.windows()) == 1


def test_stopping_does_not_wait_for_a_store_that_never_acks(agents, stores, job, wait):
    """Five seconds at most, and the window stays in the spool for the next start."""
    store = stores("silent")
    agent = agents("--interval", "0.5", "--store", f"127.0.0.1:{store.port}")
    feed(job(agent.socket), 1)
    wait(store.received, "a segment sent")
    began = time.monotonic()

    assert agent.stop() == 0

    assert time.monotonic() - began < 6.5
    assert "windows_kept=1" in agent.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping_without_a_store_that_answers_is_quick(agents, number):
    """Nobody listens on the store's port: the agent is in its back-off and ends at once."""
    agent = agents("--store", "127.0.0.1:1")
    began = time.monotonic()

    agent.process.send_signal(number)

    assert agent.process.wait(10) == 0
    assert time.monotonic() - began < 2


def test_a_command_takes_a_window_now_and_is_answered(agents, stores, job, wait):
    """take_window for all processes asks at once (interval: an hour); the result names the pid."""
    store = stores("command=id: 'c1' take_window { steps: 3 duration_ms: 70 shapes: true }")
    agent = agents("--interval", "3600", "--store", f"127.0.0.1:{store.port}")
    results = store.folder / "results"
    wait(results.exists, "a result")
    assert "not registered" in results.read_text()
    store.kill()
    client = job(agent.socket)

    stores("command=id: 'c2' take_window { steps: 3 duration_ms: 70 shapes: true }")
    request = client.receive(40)

    assert (request["trigger"], request["steps"], request["shapes"]) == ("requested", 1, False)  # its first window
    line = wait(lambda: [x for x in results.read_text().splitlines() if "c2" in x], "the second result")[0]
    assert "accepted: true" in line
    assert "pid: " in line


def test_a_command_changes_the_schedule(agents, stores, job, wait):
    """From one window an hour to one a second."""
    store = stores("command=id: 's' set_schedule { interval_s: 1 steps: 4 }")
    agent = agents("--interval", "3600", "--store", f"127.0.0.1:{store.port}")
    wait(lambda: agent.status()["settings"]["interval_s"] == 1.0, "the new interval")

    request = job(agent.socket).receive(5)

    assert request["trigger"] == "periodic"


def test_plain_text_stays_on_this_machine_unless_told_otherwise():
    """Loopback in every spelling is allowed, anything else needs --insecure, and nonsense is a usage error."""
    assert all(is_loopback(t) for t in ("127.0.0.1:7", "127.8.8.8:7", "localhost:7", "[::1]:7", "unix:/run/x"))
    assert not any(is_loopback(t) for t in ("10.0.0.1:7", "store:7", "[fe80::1]:7", "127.0.0.1.example.org:7"))
    check_target("store:7700", Trust(insecure=True))
    check_target("store:7700", Trust(ca="ca.pem"))
    with pytest.raises(UsageError, match="--insecure"):
        check_target("store:7700", Trust())
    for wrong in ("store", "store:", "store:x", ":7700", "store:0", "store:70000"):
        with pytest.raises(UsageError, match="HOST:PORT"):
            check_target(wrong, Trust(insecure=True))
