"""The socket of a real agent under peers that are wrong, slow, many, or somebody else."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest

from roofwatch.agent import connection, identity
from roofwatch.agent import status as status_of
from roofwatch.hook import protocol
from roofwatch.model.errors import UnreachableError

HELLO = {"type": "hello", "protocol": 1}


def raw(path, wait_s=15):
    """A connected socket that has said nothing."""
    sock = socket.socket(socket.AF_UNIX)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", wait_s, 0))  # waits for room in the queue
    sock.connect(str(path))
    sock.settimeout(wait_s)
    return sock


def answer_to(path, say):
    """The type of what the agent answers, "closed" where it hangs up."""
    sock = raw(path)
    channel = protocol.job_side(sock)
    try:
        channel.send(say)
        return channel.receive()[0][0]["type"]
    except (protocol.Closed, OSError):
        return "closed"
    finally:
        channel.close()


def the_rest(channel):
    """What comes until the agent hangs up."""
    messages = []
    try:
        while True:
            messages += [message for message, _ in channel.receive()]
    except protocol.Closed:
        return messages


def as_nobody(call):
    """What a call gives in a child that has become another user."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setuid(65534)
            os.write(writing, json.dumps(call()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as out:
        told = out.read()
    os.waitpid(child, 0)
    return json.loads(told)


def test_a_process_is_who_the_kernel_says_it_is(agents, job):
    """The pid is the peer's, not the one it claims; user and start time are the kernel's (psutil agrees to a tick)."""
    agent = agents("--interval", "3600")
    job(agent.socket, pid=1, model="llama", rank=3)

    (listed,) = agent.status()["process_list"]
    budget = listed.pop("budget")

    assert (budget["spent_share"], budget["window_cost_ns"], budget["reason"]) == (0, None, "cold_start")
    assert listed == {
        "pid": os.getpid(), "user": psutil.Process().username(), "model": "llama", "rank": 3, "close_path": None
    }  # fmt: skip
    start = identity.start_unix_ns(os.getpid(), identity.boot_time_s())
    assert abs(start / 1e9 - psutil.Process().create_time()) < 0.02


@pytest.mark.parametrize(
    ("sent", "counted"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "closed_not_protocol"),  # a length of 1.2 GB
        (struct.pack("!I", protocol.MAX_FROM_JOB + 1), "closed_not_protocol"),
        (struct.pack("!I", 4) + b"\xff\xfe\xfd\xfc", "closed_not_protocol"),
        (struct.pack("!I", 2) + b"[]", "closed_not_protocol"),
        (protocol.encode({"type": "hello"}, 1000), "closed_bad_hello"),
        (protocol.encode({"type": "hello", "protocol": "1"}, 1000), "closed_bad_hello"),
        (protocol.encode({"type": "hello", "protocol": True}, 1000), "closed_bad_hello"),
        (protocol.encode({"type": "hello", "protocol": 9}, 1000), "closed_protocol"),
        (protocol.encode({"type": "hello", "protocol": 1}, 1000) * 2, "closed_second_hello"),
        (struct.pack("!I", 200_000) + b"[" * 200_000, "closed_not_protocol"),
    ],
)
def test_what_is_not_the_protocol_ends_the_conversation(agents, wait, sent, counted):
    """Closed, counted by reason, and the agent serves the next."""
    agent = agents("--interval", "3600")
    sock = raw(agent.socket)
    sock.sendall(sent)

    wait(lambda: agent.status()["connections"].get(counted) == 1, counted)

    sock.close()
    assert "internal_error" not in agent.log.read_text()


def test_unknown_messages_are_answered_by_nothing(agents, job):
    """A message of a later version neither ends the conversation nor gets an answer; deep JSON is only JSON."""
    agent = agents("--interval", "3600")
    one = job(agent.socket)
    one.channel.send({"type": "of_tomorrow", "x": [[[[]]]]})
    one.channel.send({"type": "refused", "request": 99, "reason": "busy"})
    one.channel.send({"type": "window", "request": "x", "size": -1})

    assert not one.closed(within=0.5)
    assert agent.status()["processes"] == 1


def test_silence_and_half_messages_time_out(agents):
    """No hello within 5 s, or half a message and no more in 5 s: closed. Silence after a hello is fine."""
    agent = agents("--interval", "3600")
    silent, half = raw(agent.socket), raw(agent.socket)
    channel = protocol.job_side(half)
    channel.send({"type": "hello", "protocol": 1})
    half.sendall(struct.pack("!I", 500) + b"{")
    began = time.monotonic()

    assert silent.recv(10) == b""
    assert connection.HELLO_WITHIN_S - 0.5 < time.monotonic() - began < connection.HELLO_WITHIN_S + 3
    first, *more = [m["type"] for m, _ in channel.receive()]
    assert first == "welcome"
    assert set(more) <= {"take_window"}
    assert all(message["type"] == "take_window" for message in the_rest(channel))
    assert connection.MESSAGE_WITHIN_S - 0.5 < time.monotonic() - began < connection.MESSAGE_WITHIN_S + 3
    counted = agent.status()["connections"]
    assert (counted["closed_no_hello"], counted["closed_half_message"]) == (1, 1)
    silent.close()
    half.close()


def as_another(call):
    """A call in a process of its own: who floods is not who looks."""
    child = os.fork()
    if child == 0:
        try:
            call()
        finally:
            os._exit(0)
    return child


def test_a_flood_of_messages_ends_the_conversation(agents, job, wait):
    """Ten thousand small messages: the sender is cut off, descriptors that rode with them are closed."""
    agent = agents("--interval", "3600")
    before = psutil.Process(agent.process.pid).num_fds()
    reading, writing = os.pipe()

    def flood():
        one = job(agent.socket)
        try:
            for _ in range(10_000):
                one.channel.send({"type": "window", "request": 5}, 0)
        except OSError as error:
            os.write(writing, type(error).__name__.encode())

    os.waitpid(as_another(flood), 0)
    os.close(writing)
    assert os.read(reading, 100) in {b"BrokenPipeError", b"ConnectionResetError"}
    wait(lambda: agent.status()["connections"].get("closed_flood") == 1, "flood counted")
    wait(lambda: psutil.Process(agent.process.pid).num_fds() <= before, "descriptors closed")
    os.close(reading)


def test_a_flood_of_bytes_ends_the_conversation(agents, job, wait):
    """Eighty messages, each as long as one may be: after 16 MiB of them nothing more is read of that process."""
    agent, sent = agents("--interval", "3600"), []
    reading, writing = os.pipe()

    def flood():
        one = job(agent.socket)
        try:
            for _ in range(80):
                one.channel.send({"type": "nothing", "x": "y" * 260_000})
                sent.append(260_000)
        except OSError:
            os.write(writing, b"%d" % sum(sent))

    os.waitpid(as_another(flood), 0)
    os.close(writing)
    assert 16_000_000 < int(os.read(reading, 100) or 0) < 18_000_000
    wait(lambda: agent.status()["connections"].get("closed_flood") == 1, "flood counted")
    os.close(reading)


def test_ten_thousand_registrations_leave_the_agent_as_it_was(agents, wait):
    """One process registers and goes, a third in the middle of a message: some fifty are heard, the rest hung up on.

    Who asks meanwhile is answered; memory and descriptors are back afterwards.
    """
    agent = agents("--interval", "3600")
    hello = protocol.encode({"type": "hello", "protocol": 1, "model": "m" * 200, "labels": {"k": "v" * 200}}, 10_000)
    for _ in range(500):
        raw(agent.socket).close()
    wait(lambda: agent.status()["connections"].get("closed_peer", 0) >= 500, "500 gone")
    process = psutil.Process(agent.process.pid)
    rss, fds, began = process.memory_info().rss, process.num_fds(), process.cpu_times().user

    def register():
        for number in range(10_000):
            with suppress(OSError), raw(agent.socket, wait_s=30) as sock:
                sock.sendall(hello if number % 3 else hello[: 50 + number % 100])
                if number % 2:
                    sock.recv(100) if number % 3 else None

    child, answered = as_another(register), 0
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        answered += agent.status()["uptime_s"] > 0

    assert answered >= 5
    wait(lambda: agent.status()["processes"] == 0 and process.num_fds() <= fds, "all forgotten", 30)
    assert process.memory_info().rss - rss < 8 << 20
    assert process.cpu_times().user - began < 10
    counted = agent.status()["connections"]
    assert 5 < counted["registered"] <= 200  # those that waited to be greeted, of fifty in ten seconds
    assert counted["rejected_flood"] > 7000
    assert agent.log.stat().st_size < 20_000  # ten thousand registrations are not ten thousand lines


def test_no_more_processes_than_allowed_at_once(agents, job):
    """The fourth of three is told so and turned away; when one goes the next may come."""
    agent = agents("--interval", "3600", "--max-processes", "3")
    third = [job(agent.socket, greet=False) for _ in range(3)][-1]  # no hello: a second one of this pid ends the first
    fourth = job(agent.socket, greet=False)

    told = fourth.receive()
    assert (told["type"], told["reason"]) == ("rejected", "3 processes are connected and no more are allowed")
    assert fourth.closed()
    third.close()
    time.sleep(0.2)
    assert agent.status()["connections"]["rejected_full"] == 1


def test_a_process_that_registers_again_replaces_itself(agents, job):
    """The newer conversation of the same pid stays."""
    agent = agents("--interval", "3600")
    first = job(agent.socket)
    second = job(agent.socket, model="again")

    assert first.closed()
    assert not second.closed(within=0.3)
    assert [p["model"] for p in agent.status()["process_list"]] == ["again"]


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
@pytest.mark.parametrize("mode", ["--user", "--system"])
def test_another_user_may_register_only_with_a_system_agent(agents, short, mode):
    """The socket is 0600 and, were it open, the uid is refused; a system agent takes any uid."""
    agent = agents("--interval", "3600", mode)
    system = mode == "--system"
    assert (agent.socket.stat().st_mode & 0o777) == (0o666 if system else 0o600)
    assert (agent.socket.parent.stat().st_mode & 0o777) == (0o755 if system else 0o700)
    for path in (short, agent.socket.parent):
        path.chmod(0o755)
    agent.socket.chmod(0o666)
    told = as_nobody(lambda: [answer_to(agent.socket, say) for say in (HELLO, {"type": "status"})])

    assert told == (["welcome", "status"] if system else ["rejected", "rejected"])


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
def test_a_user_is_told_of_its_own_processes_root_of_all(agents, short, job):
    """Root has a process, nobody has one: nobody sees one of the two, and no counter of what others do."""
    agent = agents("--interval", "3600", "--system")
    for path in (short, agent.socket.parent):
        path.chmod(0o755)
    job(agent.socket, model="of-root")

    def look():
        channel = protocol.job_side(raw(agent.socket))
        channel.send({**HELLO, "model": "of-nobody"})
        assert channel.receive()[0][0]["type"] == "welcome"
        return status_of.request(str(agent.socket)), agent.status()["processes"]

    told, count = as_nobody(look)
    assert ([p["model"] for p in told["process_list"]], told["processes"], count) == (["of-nobody"], 1, 1)
    assert (told["of_user"], told["connections"], told["windows"], told["spool"]) == (True, {}, {}, {})
    whole = agent.status()
    assert {p["model"] for p in whole["process_list"]} >= {"of-root"}
    assert whole["connections"]["registered"] == 2
    assert "of_user" not in whole


def test_status_of_no_agent_is_one_sentence(short):
    """Nobody listens: unreachable, exit code 3."""
    with pytest.raises(UnreachableError, match=r"no agent answers on .*start one with"):
        status_of.request(str(short / "none.sock"))


def test_a_status_of_many_processes_fits_one_message(agents):
    """A thousand registered children of one shell would not fit; 300 real connections stand for them."""
    agent = agents("--interval", "3600", "--max-processes", "400")
    program = (
        "import os, socket, sys\nfrom roofwatch.hook import protocol\n"
        "for _ in range(150):\n"
        "    s = socket.socket(socket.AF_UNIX)\n"
        "    if os.fork() == 0:\n"
        "        s.connect(sys.argv[1]); c = protocol.job_side(s)\n"
        "        c.send({'type': 'hello', 'protocol': 1, 'model': chr(0x1F600) * 300})\n"
        "        c.receive(); sys.stdin.read(); os._exit(0)\n"
        "print('up', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(agent.socket)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as children:
        children.stdout.readline()
        end = time.monotonic() + 15
        while agent.status()["processes"] < 150 and time.monotonic() < end:
            time.sleep(0.1)
        told = agent.status()
        children.stdin.close()

    assert told["processes"] == 150
    assert len(told["process_list"]) == 64
