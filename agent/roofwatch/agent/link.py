"""Between the daemon and its parse worker, over a socket pair.

Down go tasks (pickled: the daemon made them and the worker trusts it) with the trace's descriptor, and with one more
for a text of any length that a job wrote. Up comes an answer:
a JSON head and bytes, never a pickle, because the worker has touched hostile input.
"""

from __future__ import annotations

import array
import json
import os
import pickle
import socket
import struct
from dataclasses import dataclass, field, replace
from typing import Any

from roofwatch.collectors.base import WindowContext

MAX_ANSWER = 32 << 20  # a window of 1,000 signatures is about 200 kB
_TASK = struct.Struct("!I")
_ANSWER = struct.Struct("!II")
_FD_SPACE = socket.CMSG_SPACE(3 * array.array("i").itemsize)
MAX_LENT = 2 << 20


@dataclass(frozen=True, slots=True)
class Task:
    """One trace to read."""

    format: str
    size: int
    context: WindowContext
    most_bytes: int
    cpu_seconds: int
    beside: tuple[str, ...] = ()  # fields of the context whose text comes by a descriptor of its own


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a task: a segment of one window, or a reason and a sentence. After ``last`` the worker ends."""

    reason: str = ""
    detail: str = ""
    events: int = 0
    last: bool = False
    segment: bytes = field(default=b"", repr=False)
    lent: bytes = field(default=b"", repr=False)  # what the window lends to others without shapes
    borrowed: str = ""  # what became of borrowing


def send_task(sock: socket.socket, task: Task, fd: int, graphs: bytes = b"", lent: bytes = b"") -> None:
    """Hand over a task; the caller keeps its descriptor. ``graphs`` and ``lent``: text, too long for the socket.

    Raises:
        OSError: the worker is gone.
    """
    texts = {name: text for name, text in (("graphs", graphs), ("lent", lent)) if text}
    body = pickle.dumps(replace(task, beside=tuple(texts)))
    frame = _TASK.pack(len(body)) + body
    fds = [fd]
    try:
        for name, text in texts.items():
            fds.append(os.memfd_create(f"roofwatch-{name}", os.MFD_CLOEXEC))
            _write_all(fds[-1], text)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())]
        sent = sock.sendmsg([frame], rights)
    finally:
        for own in fds[1:]:
            os.close(own)
    if sent < len(frame):
        raise BlockingIOError("the worker's socket is full")  # a task is far smaller than its buffer


def _write_all(fd: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.write(fd, data[written:])


def _read_all(fd: int) -> bytes:
    """What the daemon wrote, from the beginning: it shares its position with us."""
    os.lseek(fd, 0, os.SEEK_SET)
    with os.fdopen(fd, "rb") as file:
        return file.read()


def receive_task(sock: socket.socket) -> tuple[Task, int] | None:
    """The next task and its descriptor, None at the end. Blocks."""
    data, ancillary, _, _ = sock.recvmsg(_TASK.size, _FD_SPACE, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for _, _, payload in ancillary:
        fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    if len(data) < _TASK.size or not fds:
        return None
    body = _exactly(sock, _TASK.unpack(data)[0])
    task: Task = pickle.loads(body)  # noqa: S301 - from the daemon, see above
    for name, own in zip(task.beside, fds[1:], strict=True):
        text = _read_all(own)
        context = replace(task.context, graphs=text) if name == "graphs" else replace(task.context, lent=text)
        task = replace(task, context=context)
    return task, fds[0]


def _exactly(sock: socket.socket, size: int) -> bytes:
    body = bytearray()
    while len(body) < size:
        piece = sock.recv(size - len(body))
        if not piece:
            raise EOFError
        body += piece
    return bytes(body)


def send_answer(sock: socket.socket, answer: Answer) -> None:
    """Send what became of a task. Blocks."""
    head: dict[str, Any] = {
        "reason": answer.reason, "detail": answer.detail, "events": answer.events, "last": answer.last,
        "lent": len(answer.lent), "borrowed": answer.borrowed,
    }  # fmt: skip
    text = json.dumps(head).encode()
    sock.sendall(_ANSWER.pack(len(text), len(answer.segment) + len(answer.lent)) + text)
    sock.sendall(answer.segment + answer.lent)


class AnswerReader:
    """Collects an answer from a non-blocking socket, never more than ``MAX_ANSWER`` bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def read(self, sock: socket.socket) -> Answer | None:
        """The answer where it is complete.

        Raises:
            EOFError: the worker is gone.
            ValueError, KeyError: what came is not an answer.
        """
        ended = False
        while not ended:
            try:
                piece = sock.recv(1 << 18)
            except BlockingIOError:
                break
            ended = not piece
            self._buffer += piece
            if len(self._buffer) > MAX_ANSWER:
                raise ValueError("the answer is too large")
        answer = self._complete()
        if ended and answer is None:
            raise EOFError
        return answer

    def _complete(self) -> Answer | None:
        if len(self._buffer) < _ANSWER.size:
            return None
        head, body = _ANSWER.unpack_from(self._buffer)
        if head + body > MAX_ANSWER:
            raise ValueError("the answer is too large")
        if len(self._buffer) < _ANSWER.size + head + body:
            return None
        fields = json.loads(self._buffer[_ANSWER.size : _ANSWER.size + head])
        found = bytes(self._buffer[_ANSWER.size + head : _ANSWER.size + head + body])
        self._buffer.clear()
        detail, lent = str(fields["detail"])[:500], int(fields["lent"])
        if not 0 <= lent <= min(body, MAX_LENT):
            raise ValueError("more is lent than was sent")
        return Answer(
            str(fields["reason"]), detail, int(fields["events"]), bool(fields["last"]),
            found[: body - lent], found[body - lent :], str(fields["borrowed"])[:16],
        )  # fmt: skip


def close_quietly(fd: int) -> None:
    """Close a descriptor that may already be gone."""
    try:
        os.close(fd)
    except OSError:
        return
