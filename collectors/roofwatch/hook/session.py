"""The hook's one thread: waits for a sign of life, keeps the conversation with the agent, takes windows."""

import _thread
import os
import socket
import struct
import time
from typing import Any, Callable, Dict, Optional, Set

from . import protocol
from .descriptors import JobChannel, lifted
from .log import failure, log
from .quiesce import threads
from .request import Refused
from .window import Taker

POLL_S = 5.0  # no thread of ours wakes more often than this without an agent
RETRY_S, RETRY_MOST_S = 5.0, 60.0
CONNECT_S = 2.0
AGAIN_S = 1.0  # between two hellos at least: a job that forks at each step ends the conversation as often
BUSY_SHARE = 0.005  # of a core since the last look: it does more than wait (launchers are known by name)
_CREDENTIALS = struct.Struct("3i")


class Session:
    """``describe()`` gives the hello, ``welcome()`` says whether to say it; ``alive``: the process computes.

    ``changed()`` is asked before each window: where it is true the hello no longer holds, and is said again.
    """

    def __init__(
        self,
        taker: Taker,
        describe: Callable[[], Dict[str, Any]],
        welcome: Callable[[], bool],
        changed: Callable[[], bool] = lambda: False,
    ) -> None:
        self.taker, self.describe, self.welcome, self.changed = taker, describe, welcome, changed
        self.alive = False
        self.said = 0.0  # when hello was said last
        self.renew()

    def renew(self) -> None:
        """No thread, no connection: at the start, and in a forked child."""
        self.running: Optional[object] = None  # the thread whose turn it is
        self.channel: Optional[JobChannel] = None
        self.sleep = _thread.allocate_lock()
        self.sleep.acquire()
        self.over = _thread.allocate_lock()  # held while a thread of ours lives
        self.again = False  # begin once it has ended

    def begin(self) -> None:
        """Start the thread, once. Not a ``threading.Thread``: the job counts its own."""
        if self.running is None and not self.taker.exiting:
            # One at a time: a thread that was told to end may still have a window's last seconds to go. It is told to
            # begin anew before it is found alive, since it may end just after that.
            self.again = True
            if not self.over.acquire(False):
                return
            self.again = False
            me = self.running = object()
            self.taker.hurry = False
            try:
                _thread.start_new_thread(self._run, (me, self.over))
            except BaseException:
                self.running = None
                self.over.release()
                raise

    def live(self) -> None:
        """The process steps, or has said itself that it is to be watched."""
        self.alive = True
        self.begin()
        self._wake()

    def _wake(self) -> None:
        try:
            self.sleep.release()
        except RuntimeError:
            pass

    def _mine(self, me: object) -> bool:
        return self.running is me and not self.taker.exiting

    def _run(self, me: object, over: Any) -> None:
        try:
            self._wait_for_life(me)
            retry = RETRY_S
            while self._mine(me) and self.welcome():
                self._pause(me, self.said + AGAIN_S - time.monotonic())
                if not self._mine(me):
                    break
                seconds = self._converse()
                retry = RETRY_S if seconds == 0 else max(retry, seconds or 0)
                self._pause(me, retry)
                retry = min(retry * 2, RETRY_MOST_S)
        except Exception as error:
            failure("thread", error)
        finally:
            over.release()
            self._begin_again(over)

    def _begin_again(self, over: Any) -> None:
        try:
            if self.again and over is self.over:
                self.begin()
        except Exception as error:
            failure("thread", error)

    def _pause(self, me: object, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._mine(me):
            left = end - time.monotonic()
            if left <= 0:
                return
            self.sleep.acquire(True, left)

    def _wait_for_life(self, me: object) -> None:
        """For processes without steps: one that has computed since the last look is alive."""
        wall, cpu = time.monotonic_ns(), time.process_time_ns()
        while self._mine(me) and not self.alive:
            self.sleep.acquire(True, POLL_S)
            now, used = time.monotonic_ns(), time.process_time_ns()
            if now - wall >= POLL_S * 0.9e9:
                self.alive = self.alive or used - cpu >= BUSY_SHARE * (now - wall)
                wall, cpu = now, used

    def _converse(self) -> Optional[float]:
        """One connection, from hello to its end: 0 after a welcome, seconds to stay away, None without an agent."""
        welcomed, channel = False, None
        self.told: Set[str] = set()  # keys of the graph logs that this agent has
        try:
            self.said = time.monotonic()
            channel = self.channel = _connect(protocol.socket_path())
            channel.send(dict(self.describe(), type=protocol.HELLO))
            while True:
                for message, _ in channel.receive():
                    if message["type"] == protocol.REJECTED:
                        return RETRY_MOST_S
                    welcomed = welcomed or message["type"] == protocol.WELCOME
                    if message["type"] == protocol.TAKE_WINDOW:
                        if self.changed():
                            return 0.0
                        self._answer(channel, message)
        except (OSError, protocol.Closed, protocol.ProtocolError) as error:
            log("no agent: %s" % (error or type(error).__name__), once=True)
        finally:
            if channel is not None:
                channel.close()
                self.channel = None if self.channel is channel else self.channel
        return 0.0 if welcomed else None

    def gone(self) -> bool:
        """Whether nobody waits for a window any more."""
        channel = self.channel
        return channel is None or channel.hung_up()

    def _answer(self, channel: JobChannel, request: Dict[str, Any]) -> None:
        answer: Dict[str, Any] = {"type": protocol.REFUSED, "request": request.get("request")}
        try:
            taken = self.taker.take(request)
        except Refused as refusal:
            answer.update(reason=refusal.reason, detail=refusal.detail, steps_seen=self.taker.steps.count)
            answer.update(opened=refusal.opened)
        except Exception as error:
            failure("window", error)
            answer.update(reason=protocol.ERROR, detail=type(error).__name__)
        else:
            try:
                for logs in self.taker.captures.graphs.messages(taken.message.get("replays"), self.told):
                    channel.send(logs)
                channel.send(dict(taken.message, size=taken.size()), taken.fd)
            finally:
                taken.close()
            return
        channel.send(answer)

    def stop(self) -> None:
        """End the thread where it only waits, so that the process has the threads that it has without us."""
        self.running, self.again = None, False
        self.taker.hurry = True
        self._wake()
        channel, over = self.channel, self.over
        if channel is not None:
            try:
                channel.end()
            except (OSError, protocol.Closed):
                pass
        if over.acquire(True, 1.0):
            over.release()
        for _ in range(50):  # its last instructions are the interpreter's
            if len(threads()) == 1:
                break
            time.sleep(0.001)


def _connect(path: str) -> JobChannel:
    """A connection to the agent. Raises OSError where there is none, or where somebody else's program listens."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(CONNECT_S)
        sock.connect(path)
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        uid = _CREDENTIALS.unpack(credentials)[1]
        if uid not in (0, os.geteuid()) and not os.environ.get("ROOFWATCH_SOCKET"):
            raise OSError("the socket at %s belongs to uid %d" % (path, uid))
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=lifted(sock.detach()))
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(CONNECT_S), 0))
    except BaseException:
        sock.close()
        raise
    return JobChannel(sock)
