"""The hook protocol, once for both sides: names, limits, framing, and file descriptors that ride with a message.

``docs/hook-protocol.md`` says what each message means. Standard library only, Python 3.8 and newer.
"""

import array
import json
import os
import socket
import struct
from typing import Any, Dict, List, Mapping, Optional, Tuple

PROTOCOL = 1

HELLO = "hello"
WELCOME = "welcome"
REJECTED = "rejected"
TAKE_WINDOW = "take_window"
WINDOW = "window"
REFUSED = "refused"
GRAPH_LOGS = "graph_logs"

KINETO_JSON = "kineto-json"
ASCEND_DB = "ascend-db"  # what torch_npu's offline analysis makes of a window

OWN_PROFILER = "own_profiler"
GRAPH_CAPTURE = "graph_capture"
BUSY = "busy"
EXITING = "exiting"
NO_STEPS = "no_steps"
GIVEN_UP = "given_up"
UNSAFE = "unsafe"
UNSUPPORTED = "unsupported"
ERROR = "error"
DISK = "disk"
ANALYSIS = "analysis"
IDLE = "idle"
MODEL_LOAD = "model_load"
CHECKPOINT = "checkpoint"
CLOCK_SET = "clock_set"
REASONS = (
    OWN_PROFILER, GRAPH_CAPTURE, BUSY, EXITING, NO_STEPS, GIVEN_UP, UNSAFE, UNSUPPORTED, ERROR, DISK, ANALYSIS,
    IDLE, MODEL_LOAD, CHECKPOINT, CLOCK_SET,
)  # fmt: skip

NATIVE = "native"
BINDINGS = "bindings"
PLAIN = "plain"
NPU = "npu"
NONE = "none"
CLOSE_PATHS = (NATIVE, BINDINGS, PLAIN, NPU, NONE)
ANALYSIS_S = 240.0  # between the cut of an NPU's window and its message, at most: the vendor's analysis, one at a time

MAX_FROM_JOB = 256 * 1024
MAX_FROM_AGENT = 64 * 1024

_HEAD = struct.Struct("!I")
_MAX_FDS = 4  # one a message is enough; a peer that sends more is not ours
_FD_SPACE = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
_READ = 64 * 1024


class ProtocolError(Exception):
    """The peer sent something that is not a message; close the connection."""


class Closed(Exception):  # noqa: N818 - the end of a conversation, not a fault
    """The peer closed the connection."""


def socket_path(environ: Mapping[str, str] = os.environ) -> str:
    """Where the agent listens: ``ROOFWATCH_SOCKET``, else in ``XDG_RUNTIME_DIR``, else in a private folder of /tmp."""
    chosen = environ.get("ROOFWATCH_SOCKET")
    if chosen:
        return chosen
    runtime = environ.get("XDG_RUNTIME_DIR")
    folder = os.path.join(runtime, "roofwatch") if runtime else "/tmp/roofwatch-%d" % os.getuid()  # noqa: S108 - mode 0700, and the hook checks who owns the agent
    return os.path.join(folder, "agent.sock")


def encode(message: Mapping[str, Any], limit: int) -> bytes:
    """One frame: four bytes of length, big endian, and JSON. Raises ProtocolError above ``limit`` bytes of JSON."""
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("utf-8")
    if len(body) > limit:
        raise ProtocolError(
            "a %s message of %d bytes is over the limit of %d" % (message.get("type"), len(body), limit)
        )
    return _HEAD.pack(len(body)) + body


class Decoder:
    """Bytes in, messages out. Never holds more than one frame of ``limit`` bytes and one read."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Bytes of a message that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> List[Dict[str, Any]]:
        """The messages that ``data`` completes. Raises ProtocolError on a bad length, bad JSON, or no ``type``."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= _HEAD.size:
            (length,) = _HEAD.unpack_from(self._buffer)
            if length > self._limit:
                raise ProtocolError("a message of %d bytes is over the limit of %d" % (length, self._limit))
            end = _HEAD.size + length
            if len(self._buffer) < end:
                break
            messages.append(_parse(bytes(self._buffer[_HEAD.size : end])))
            del self._buffer[:end]
        return messages


def _parse(body: bytes) -> Dict[str, Any]:
    try:
        message = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a message is not JSON: %s" % type(error).__name__) from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ProtocolError("a message is not an object with a type")
    return message


class Channel:
    """One connected stream socket, blocking or not, that carries messages and the descriptors of ``window`` messages.

    The owner closes it; descriptors handed out by ``receive`` belong to the caller.
    """

    def __init__(self, sock: socket.socket, max_in: int, max_out: int) -> None:
        self.sock = sock
        self._decoder = Decoder(max_in)
        self._max_out = max_out
        self._fds: List[int] = []
        self.received = 0  # bytes in all

    def fileno(self) -> int:
        """Descriptor of the socket, for select and event loops."""
        return self.sock.fileno()

    @property
    def pending(self) -> int:
        """Bytes of a message that is not complete yet; a receiver times out on a half message that stays one."""
        return self._decoder.pending

    def send(self, message: Mapping[str, Any], fd: Optional[int] = None) -> None:
        """Send one message, with ``fd`` where given (the caller keeps its copy). Raises OSError or ProtocolError."""
        frame = encode(message, self._max_out)
        if fd is None:
            self.sock.sendall(frame)
            return
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]).tobytes())]
        sent = self.sock.sendmsg([frame], rights)
        if sent < len(frame):
            self.sock.sendall(frame[sent:])

    def receive(self) -> List[Tuple[Dict[str, Any], Optional[int]]]:
        """Read once; the messages now complete, each ``window`` with its descriptor (None where none came).

        Raises Closed at the end of the stream, ProtocolError on what is not a message, OSError (BlockingIOError on a
        non-blocking socket with nothing to read).
        """
        data, ancillary, flags, _ = self.sock.recvmsg(_READ, _FD_SPACE, socket.MSG_CMSG_CLOEXEC)
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
                self._fds.extend(fds)
        if flags & socket.MSG_CTRUNC or len(self._fds) > _MAX_FDS:
            raise ProtocolError("more than %d descriptors at once" % _MAX_FDS)
        if not data:
            raise Closed
        self.received += len(data)
        return [(m, self._take_fd() if m["type"] == WINDOW else None) for m in self._decoder.feed(data)]

    def _take_fd(self) -> Optional[int]:
        # One read never passes the end of the piece of stream that a descriptor rides on, so order is enough.
        return self._fds.pop(0) if self._fds else None

    def close(self) -> None:
        """Close the socket and every descriptor that no message has claimed."""
        self.sock.close()
        while self._fds:
            os.close(self._fds.pop())


def job_side(sock: socket.socket) -> Channel:
    """The hook's end of the conversation."""
    return Channel(sock, MAX_FROM_AGENT, MAX_FROM_JOB)


def agent_side(sock: socket.socket) -> Channel:
    """The agent's end of the conversation."""
    return Channel(sock, MAX_FROM_JOB, MAX_FROM_AGENT)
