"""Framing, limits and descriptors of the hook protocol, over real sockets."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from roofwatch.hook import protocol

HOOK = Path(protocol.__file__).parent
OPEN = Path("/proc/self/fd")


def pair() -> tuple[protocol.Channel, protocol.Channel]:
    """A job's and an agent's end of one connection."""
    job, agent = socket.socketpair()
    return protocol.job_side(job), protocol.agent_side(agent)


def everything(channel: protocol.Channel) -> list[tuple[dict[str, Any], int | None]]:
    """All messages until the other end has closed."""
    received: list[tuple[dict[str, Any], int | None]] = []
    while True:
        try:
            received += channel.receive()
        except protocol.Closed:
            return received


def test_frame_bytes() -> None:
    """Four bytes of length, big endian, then JSON: {"type":"hello"} has 16 bytes."""
    assert protocol.encode({"type": "hello"}, 100) == b'\x00\x00\x00\x10{"type":"hello"}'


def test_messages_arrive_whole_and_in_order_however_they_are_cut() -> None:
    """Three messages, fed byte by byte, come out as they went in."""
    sent = [{"type": "hello", "n": n, "text": "é" * n} for n in range(3)]
    decoder = protocol.Decoder(1000)
    stream = b"".join(protocol.encode(message, 1000) for message in sent)
    received = [message for byte in stream for message in decoder.feed(bytes([byte]))]
    assert received == sent


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("!I", protocol.MAX_FROM_JOB + 1),
        struct.pack("!I", 4) + b"nope",
        struct.pack("!I", 2) + b"[]",
        struct.pack("!I", 2) + b"{}",
        struct.pack("!I", 10) + b'{"type":1}',
        struct.pack("!I", 3) + b'"\xff"',
        struct.pack("!I", 100_000) + b"[" * 100_000,
    ],
    ids=["too long", "not JSON", "no object", "no type", "type no text", "not UTF-8", "too deep"],
)
def test_what_is_not_a_message_is_refused(frame: bytes) -> None:
    """The agent's end raises ProtocolError, and nothing else, on any wrong frame."""
    decoder = protocol.Decoder(protocol.MAX_FROM_JOB)
    with pytest.raises(protocol.ProtocolError):
        decoder.feed(frame)


def test_a_message_over_the_limit_is_not_sent() -> None:
    """The agent may send 64 KiB and not a byte more."""
    fits = {"type": "x", "pad": "y" * (protocol.MAX_FROM_AGENT - len('{"type":"x","pad":""}'))}
    assert len(protocol.encode(fits, protocol.MAX_FROM_AGENT)) == protocol.MAX_FROM_AGENT + 4
    fits["pad"] += "y"
    with pytest.raises(protocol.ProtocolError):
        protocol.encode(fits, protocol.MAX_FROM_AGENT)


def test_a_descriptor_rides_with_its_window() -> None:
    """Messages before and after are without; the descriptor reads what was written; it is close-on-exec."""
    job, agent = pair()
    fd = os.memfd_create("test")
    os.write(fd, b"trace")
    os.lseek(fd, 0, os.SEEK_SET)
    job.send({"type": protocol.HELLO})
    job.send({"type": protocol.WINDOW}, fd)
    job.send({"type": protocol.REFUSED})
    os.close(fd)
    job.close()
    received = everything(agent)
    kinds = [(message["type"], got is not None) for message, got in received]
    assert kinds == [(protocol.HELLO, False), (protocol.WINDOW, True), (protocol.REFUSED, False)]
    got = received[1][1]
    assert got is not None
    assert not os.get_inheritable(got)
    with os.fdopen(got, "rb") as file:
        assert file.read() == b"trace"
    agent.close()


def test_descriptors_that_nobody_claims_are_closed() -> None:
    """A descriptor sent with anything but a window does not stay open in the agent."""
    job, agent = pair()
    read, write = os.pipe()
    job.send({"type": protocol.HELLO}, write)
    os.close(write)
    assert agent.receive() == [({"type": protocol.HELLO}, None)]
    agent.close()
    assert os.read(read, 1) == b""  # the last copy of the writing end is gone
    os.close(read)
    job.close()


def test_more_descriptors_than_one_message_needs_end_the_connection() -> None:
    """A peer cannot fill the agent's table of descriptors."""
    job, agent = pair()
    fds = [os.memfd_create("test") for _ in range(20)]
    socket.send_fds(job.sock, [protocol.encode({"type": protocol.HELLO}, 100)], fds)
    before = len(list(OPEN.iterdir()))
    with pytest.raises(protocol.ProtocolError):
        agent.receive()
    agent.close()
    assert len(list(OPEN.iterdir())) == before - 1  # its socket
    for fd in fds:
        os.close(fd)
    job.close()


def test_where_the_agent_listens() -> None:
    """ROOFWATCH_SOCKET, else the runtime folder, else a folder of this user in /tmp."""
    assert protocol.socket_path({"ROOFWATCH_SOCKET": "/x", "XDG_RUNTIME_DIR": "/run"}) == "/x"
    assert protocol.socket_path({"XDG_RUNTIME_DIR": "/run/user/5"}) == "/run/user/5/roofwatch/agent.sock"
    assert protocol.socket_path({}) == f"/tmp/roofwatch-{os.getuid()}/agent.sock"  # noqa: S108 - only its name


def test_the_hook_is_python_3_8(tmp_path: Path) -> None:
    """Every file compiles, and the protocol works, under 3.8."""
    installed = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.8*/bin/python"))
    python = str(installed[-1]) if installed else shutil.which("python3.8")
    if python is None or subprocess.run([python, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("no Python 3.8 here, on PATH or under pyenv")
    copy = tmp_path / "roofwatch" / "hook"
    shutil.copytree(HOOK, copy, ignore=shutil.ignore_patterns("__pycache__"))
    check = "import roofwatch.hook.job, roofwatch.hook.protocol as p; assert p.encode({'type': 'x'}, 90)"
    for arguments in (["-m", "compileall", "-q", str(copy)], ["-c", check]):
        result = subprocess.run([python, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, "")
