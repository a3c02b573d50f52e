"""A window's way through the agent: asked, arrived, read, sealed; or lost, with a reason."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from roofwatch.agent import counters, link, messages, npu_smi, nvml, readings
from roofwatch.agent.config import MIB, Config
from roofwatch.agent.graphs import GraphLogs
from roofwatch.agent.keeping import Keeping
from roofwatch.agent.log import Log
from roofwatch.agent.parsing import Job, Parser
from roofwatch.agent.plan import Seen
from roofwatch.agent.registry import Member
from roofwatch.agent.scheduler import Scheduler
from roofwatch.agent.sealer import Sealer
from roofwatch.agent.slot import Ended, Open
from roofwatch.agent.traces import Traces
from roofwatch.collectors.base import CHANGED, WindowContext
from roofwatch.hook import protocol
from roofwatch.model.record import Cost, Device, DeviceWindow, Vendor, Window
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb

CLOCK_SLACK_NS = 600 * 10**9  # a window that claims to begin or end further from now than this tells the time wrongly
BYTES_AN_EVENT = 400  # of a Kineto trace with shapes (25 MB for 62,000 events): a guess for planning only


@dataclass(frozen=True, slots=True)
class Pending:
    """A window between its arrival and its verdict."""

    member: Member
    message: messages.WindowMessage
    uid: str
    asked: Open
    readings: list[readings.States]  # how its devices ran, when it was asked for and when it arrived


class Intake:
    """What the registry tells goes in, what the sealer keeps comes out. Runs in the event loop's thread."""

    def __init__(
        self, config: Config, sealer: Sealer, count: counters.Counters, log: Log, worker_command: Sequence[str]
    ) -> None:
        self._config = config
        self._sealer = sealer
        self._counters = count
        self._log = log
        self._graphs = GraphLogs()
        traces = Traces(Path(config.state), config.keep_traces_mb * MIB, config.keep_traces_hours * 3600, count)
        self.keeping = Keeping(config, traces, count, log)
        self.parser = Parser(config, count, self._parsed, worker_command)
        self.scheduler = Scheduler(config, count, lambda: self.parser.backlog, self._asked)
        self.books = self.scheduler.books
        sealer.states = self.books.states
        self._tools = {
            Vendor.NVIDIA: readings.Readings("nvml", nvml.begin, log),
            Vendor.ASCEND: readings.Readings("npu-smi", npu_smi.begin, log),
        }
        self._readings: dict[Member, list[readings.States]] = {}  # of the window that was asked for

    def configure(self, config: Config) -> None:
        """Take another configuration, from the next window on."""
        self.scheduler.configure(self._config, config)
        self.parser.configure(config)
        self.keeping.configure(config)
        self._config = config

    def registered(self, member: Member) -> None:
        """Schedule a new process."""
        self.scheduler.add(member)
        process = member.process
        self._log.info("registered", pid=process.pid, user=process.user, model=process.model, rank=process.rank)

    def gone(self, member: Member) -> None:
        """Forget a process."""
        self.scheduler.remove(member)
        self._graphs.forget(member)
        self._readings.pop(member, None)
        self._log.info("gone", pid=member.process.pid)

    def refused(self, member: Member, message: Mapping[str, Any]) -> None:
        """Count why a process took no window."""
        given = message.get("reason")
        reason = given if given in protocol.REASONS else protocol.ERROR
        request = messages.integer(message.get("request"))
        self.scheduler.stepped(member, messages.integer(message.get("steps_seen")), None)
        detail = messages.text(message.get("detail")) or ""
        if request is None:
            return
        answered = self.scheduler.answered(member, request, refused=str(reason), detail=detail)
        if answered is not None:
            if message.get("opened") is True:  # given up: it has cost its job what it cost until then
                self.scheduler.books.owes(member, answered)
            self._log.info("refused", pid=member.process.pid, reason=reason, detail=detail)

    def graph_logs(self, member: Member, message: Mapping[str, Any]) -> None:
        """Keep the ops that a process's graphs were captured from, for windows that replay them."""
        if new := self._graphs.keep(member, message):
            self._log.info("graph_logs", pid=member.process.pid, new=new)

    def window(self, member: Member, message: Mapping[str, Any], fd: int | None) -> None:
        """Queue an arrived window for reading, or count why not."""
        request = messages.integer(message.get("request"))
        answered = None if request is None else self.scheduler.answered(member, request)
        if answered is None:
            self._counters.refusals["late"] += 1  # or never asked for
            if (late := self.scheduler.late(member, request)) is not None:
                self._charge_unread(member, late, message)
            if fd is not None:
                link.close_quietly(fd)
            return
        try:
            arrived = messages.window_of(message)
        except messages.BadMessage as error:
            self._charge_unread(member, answered, message)
            self._lose(member, answered, counters.BAD_WINDOW, str(error), fd)
            return
        step_ns = arrived.cost.base_step_ns if arrived.cost is not None else None
        self.scheduler.stepped(member, arrived.steps_seen, step_ns)
        if fd is None or not _around_now(arrived):
            self._charge_unread(member, answered, message)
        if fd is None:
            self._lose(member, answered, counters.TRACE_MISSING, "a window without a descriptor", None)
        elif not _around_now(arrived):
            self._lose(member, answered, counters.BAD_WINDOW, "a window of another time", fd)
        else:
            self._read(member, arrived, answered, fd)

    def _read(self, member: Member, arrived: messages.WindowMessage, answered: Open, fd: int) -> None:
        """Have an arrived window read, and its trace kept where that was asked for."""
        read = self._readings.pop(member, [])
        self._read_devices(member, read)
        pending = Pending(member, arrived, uuid.uuid4().hex, answered, read)
        context = self._context(pending)
        borrows = bool(arrived.steps and not arrived.shapes)
        lent = self.books.lent(member, agreed=borrows) if borrows or context.lend else b""
        config = self._config
        task = link.Task(arrived.format, arrived.size, context, config.trace_mb * MIB, config.worker_seconds)
        if answered.asker is not None and answered.asker.keep:
            self.keeping.keep(pending.uid, fd, arrived, member)
        self.parser.submit(Job(task, fd, pending, self._graphs.beside(member, arrived.replays), lent))

    def _context(self, pending: Pending) -> WindowContext:
        """What its reader must know of a window, beside its trace."""
        member, arrived, answered = pending.member, pending.message, pending.asked
        return WindowContext(
            uid=pending.uid,
            process=member.process,
            trigger=answered.trigger,
            devices=member.hello.devices,
            steps=arrived.steps,
            represents_ns=_at_work(self.books.represents_ns(member, arrived.start_unix_ns), arrived.active_ns),
            cost=arrived.cost,
            padding=arrived.padding,
            first_step=arrived.first_step,
            bounds=(arrived.start_unix_ns, arrived.start_unix_ns + arrived.duration_ns),
            lend=bool(arrived.shapes and arrived.steps and self.books.lends(answered)),
        )

    def _asked(self, member: Member) -> None:
        """A window was asked for: how do the process's devices run?"""
        read = self._readings[member] = []
        self._read_devices(member, read)

    def _read_devices(self, member: Member, read: list[readings.States]) -> None:
        for vendor, tool in self._tools.items():
            devices = (d for d in member.hello.devices if d.vendor is vendor)
            tool.ask([name for d in devices if (name := readings.name_of(d))], read.append)  # on its thread

    def stop(self) -> None:
        """End what runs beside."""
        for tool in self._tools.values():
            tool.stop()

    def _charge_unread(self, member: Member, asked: Open, message: Mapping[str, Any]) -> None:
        """A window was taken, whatever becomes of it: by what it tells of its cost, else as much as others cost."""
        cost, after_steps = messages.cost_of(message)
        if cost is None:
            self.books.owes(member, asked)
            return
        size = messages.integer(message.get("size"), most=self._config.trace_mb * MIB) or 0
        self._charge(member, asked, cost, size // BYTES_AN_EVENT, after_steps)

    def _charge(self, member: Member, asked: Open, cost: Cost | None, events: int, after_steps: int | None) -> None:
        residue = self.books.paid(member, asked, cost, events, after_steps)
        if residue is not None:
            why = "steps stay slower after windows: none are taken for an hour"
            self._log.warning("left_alone", pid=member.process.pid, why=why, slower=f"{100 * residue:.0f} %")

    def _lose(
        self, member: Member, asked: Open, reason: str, detail: str, fd: int | None, seen: Seen | None = None
    ) -> None:
        if fd is not None:
            link.close_quietly(fd)
        self.scheduler.learned(member, seen)
        asked.end(Ended(reason, detail, taken=True))
        self._counters.drop(reason)
        self._log.warning("window_lost", pid=member.process.pid, reason=reason, detail=detail)

    def _shapes_read(self, pending: Pending, answer: link.Answer, *, told: bool) -> None:
        """What a window lends, or became of borrowing; one without shapes that could not borrow ends all lending."""
        if pending.message.shapes:
            self.books.shapes_read(pending.member, lent=answer.lent if told else None)
            return
        self.books.shapes_read(pending.member, borrowed=answer.borrowed or CHANGED)
        if answer.borrowed:
            self._counters.shapes[answer.borrowed] += 1

    def _parsed(self, job: Job, answer: link.Answer) -> None:
        """The parser's verdict."""
        pending: Pending = job.note
        message, reason, detail = pending.message, answer.reason, answer.detail
        window: Window | None = None
        if not reason:
            try:
                window = _only_window(answer.segment, pending)
            except codec.WireError as error:
                reason, detail = counters.PARSE_ERROR, str(error)
        events = window.ledger.events_read if window is not None else message.size // BYTES_AN_EVENT
        step_ns = message.cost.base_step_ns if message.cost is not None else None
        seen = Seen(message.duration_ns, events, message.steps, step_ns)
        cost = message.cost if window is None else window.cost  # the latter with what reading took
        self._charge(pending.member, pending.asked, cost, events, message.after_steps)
        self._shapes_read(pending, answer, told=job.task.context.lend and window is not None)
        if window is None:
            self._lose(pending.member, pending.asked, reason, detail, None, seen)
            return
        self.scheduler.learned(pending.member, seen)
        self._counters.windows["recorded"] += 1
        if window.cost is not None and window.cost.lost_ns is not None and window.represents_ns:
            self._counters.lost_ns += window.cost.lost_ns
            self._counters.represented_ns += window.represents_ns
        duration_ms = window.duration_ns // 1_000_000
        self._log.info("window", pid=window.process.pid, events=events, steps=window.steps, duration_ms=duration_ms)
        window = _with_states(window, pending.member.hello.devices, readings.together(pending.readings))
        window = replace(window, budget=self.books.state_of_window(pending.member, pending.asked))
        self._sealer.add(window, len(answer.segment))
        pending.asked.end(Ended(taken=True, window=window))


def _at_work(represents_ns: int | None, active_ns: int | None) -> int | None:
    """What a window stands for: one that waited for requests only for the time in which there were any."""
    return represents_ns if represents_ns is None or active_ns is None else min(represents_ns, active_ns)


def _with_states(window: Window, told: Sequence[Device], states: readings.States) -> Window:
    """A window whose devices tell how they ran, as far as their profile has not told it."""
    if not states:
        return window
    return replace(window, devices=tuple(_with_state(d, told, states) for d in window.devices))


def _with_state(found: DeviceWindow, told: Sequence[Device], states: readings.States) -> DeviceWindow:
    """A profile knows a device by uuid or by its number in the process; the only one of its sort is that one."""
    own = found.device
    alike = [d for d in told if d.vendor is own.vendor]
    same = [d for d in alike if (d.uuid, d.index) == (own.uuid, own.index)] or (alike if len(alike) == 1 else [])
    state = states.get(readings.name_of(same[0]) or "") if same else None
    return found if state is None else replace(found, state=readings.filled(found.state, state))


def _around_now(arrived: messages.WindowMessage) -> bool:
    """Whether a window began and ended at a time that can be: its bounds are taken for the device's span."""
    begun = arrived.start_unix_ns - time.time_ns()
    return begun > -CLOCK_SLACK_NS and 0 < arrived.duration_ns < CLOCK_SLACK_NS - begun


def _only_window(segment: bytes, pending: Pending) -> Window:
    """The worker's one window, checked: it has read hostile input, so it is believed only as far as it must be."""
    message = pb.Segment()
    try:
        message.ParseFromString(segment)
    except DecodeError as error:
        raise codec.WireError("the parse worker's answer is not a segment") from error
    windows = codec.windows(message)
    if len(windows) != 1 or windows[0].uid != pending.uid or windows[0].process.id != pending.member.process.id:
        raise codec.WireError("the parse worker answered for another window")
    return windows[0]
