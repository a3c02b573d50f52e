"""Messages → records. Raises IndexError, KeyError or ValueError on anything that does not fit; the codec wraps them."""

from __future__ import annotations

import math
from dataclasses import fields

from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import (
    Bound,
    BudgetState,
    Cause,
    Collective,
    Cost,
    Device,
    DeviceState,
    DeviceWindow,
    Evidence,
    Graph,
    IdleCause,
    KernelStat,
    Ledger,
    Node,
    Padding,
    Peak,
    Peaks,
    Phase,
    Process,
    ProcessState,
    Signature,
    Trigger,
    Vendor,
    Window,
)
from roofwatch.proto.v1 import roofwatch_pb2 as pb


def _known(value: int) -> int | None:
    return None if value == -1 else value


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


Content = tuple[str, str, str, str, str, str, str, str, str, str, str, int, int, int]  # of a signature, as on the wire
TEXTS = ("kernel", "kind", "op", "phase", "module", "shapes", "dtypes", "arguments", "formula", "precision", "unit")


class Decoder:
    """Resolves one segment's dictionary, then its windows.

    Who has looked at the strings and signatures already gives the strings: then windows are without kernels.
    """

    def __init__(self, dictionary: pb.Dictionary, *, strings: list[str] | None = None) -> None:
        self._strings = list(dictionary.strings) if strings is None else strings
        if not self._strings or self._strings[0] != "":
            raise ValueError("the dictionary's first string is not empty")
        self._nodes = [Node(n.host, n.boot_id, dict(n.labels)) for n in dictionary.nodes]
        self.devices = [_device(d) for d in dictionary.devices]
        self.processes = [self._process(p) for p in dictionary.processes]
        self._signatures = self._checked(dictionary.signatures) if strings is None else []

    def windows(self, message: pb.Segment) -> list[Window]:
        """The windows as records."""
        return [self.window(w) for w in message.windows]

    def states(self, message: pb.Segment) -> list[ProcessState]:
        """How processes stand with their agent."""
        return [
            ProcessState(self.processes[s.process], s.unix_ns, s.since_unix_ns, _budget(s.budget), dict(s.skipped))
            for s in message.states
        ]

    def _process(self, p: pb.Process) -> Process:
        return Process(
            node=self._nodes[p.node],
            pid=p.pid,
            start_unix_ns=_known(p.start_unix_ns),
            user=p.user or None,
            job=p.job or None,
            container=p.container or None,
            rank=_known(p.rank),
            local_rank=_known(p.local_rank),
            world_size=_known(p.world_size),
            model=p.model or None,
            versions=dict(p.versions),
            labels=dict(p.labels),
        )

    def _checked(self, columns: pb.Signatures) -> list[Signature]:
        strings = self._strings
        highest = columns.flops_max or [-1] * len(columns.flops)  # not sent by the first version
        texts = ([strings[i] for i in getattr(columns, name)] for name in TEXTS)
        contents = zip(*texts, columns.flops, columns.bytes, highest, strict=True)
        return [checked_signature(i, content) for i, content in zip(columns.id, contents, strict=True)]

    def window(self, w: pb.Window, *, kernels: bool = True) -> Window:
        """One window as a record, with or without its kernels."""
        if len(w.uid) != 16:
            raise ValueError(f"a window uid of {len(w.uid)} bytes")
        devices = tuple([self._device_window(d) for d in w.devices])
        return Window(
            uid=w.uid.hex(),
            process=self.processes[w.process],
            start_unix_ns=w.start_unix_ns,
            duration_ns=w.duration_ns,
            trigger=Trigger(w.trigger),
            collector=w.collector,
            devices=devices,
            kernels=self._kernels(w.kernels, len(devices)) if kernels else (),
            ledger=_ledger(w.ledger),
            steps=_known(w.steps),
            represents_ns=_known(w.represents_ns),
            shapes_recorded=w.shapes_recorded,
            cost=_cost(w.cost) if w.HasField("cost") else None,
            padding=_padding(w.padding) if w.HasField("padding") else None,
            first_step=w.first_step if w.HasField("first_step") else None,
            collectives=self._collectives(w.collectives, len(devices)) if w.HasField("collectives") else (),
            graphs=tuple([_graph(graph, len(devices)) for graph in w.graphs]),
            budget=_budget(w.budget) if w.HasField("budget") else None,
        )

    def _collectives(self, c: pb.Collectives, devices: int) -> tuple[Collective, ...]:
        names = ([self._strings[i] for i in column] for column in (c.name, c.group))
        numbers = ([_known(value) for value in column] for column in (c.group_size, c.sequence, c.bytes))
        if c.device and max(c.device) >= devices:
            raise ValueError(f"device {max(c.device)} of {devices}")
        rows = zip(c.device, *names, c.start_unix_ns, c.duration_ns, *numbers, strict=True)
        return tuple(Collective(*row) for row in rows)

    def _device_window(self, d: pb.DeviceWindow) -> DeviceWindow:
        return DeviceWindow(
            device=self.devices[d.device],
            span_ns=d.span_ns,
            busy_ns=d.busy_ns,
            causes=tuple([_cause(c) for c in d.causes]),
            exposed_copy_ns=d.exposed_copy_ns,
            exposed_communication_ns=d.exposed_communication_ns,
            memory_used_bytes=_known(d.memory_used_bytes),
            memory_peak_bytes=_known(d.memory_peak_bytes),
            state=_state(d.state) if d.HasField("state") else None,
        )

    def _kernels(self, columns: pb.KernelStats, devices: int) -> tuple[KernelStat, ...]:
        fields = (
            columns.device, columns.calls, columns.total_ns, columns.min_ns, columns.max_ns, columns.bound,
            columns.evidence, columns.roof_ns, columns.ridge, columns.step_calls, columns.step_ns,
            columns.histogram_low, columns.histogram_length, columns.formula_bound or [0] * len(columns.signature),
        )  # fmt: skip
        counts = list(columns.histogram_counts)
        stats, at = [], 0
        for signature, *row in zip(columns.signature, *fields, strict=True):
            device, calls, total, low, high, bound, evidence, roof, ridge, step_calls, step, bucket, length, other = row
            if device >= devices:
                raise ValueError(f"device {device} of {devices}")
            if at + length > len(counts):
                raise ValueError("the histogram column is too short")
            stats.append(
                KernelStat(
                    signature=self._signatures[signature],
                    device=device,
                    calls=calls,
                    total_ns=total,
                    min_ns=low,
                    max_ns=high,
                    histogram=Histogram(bucket, tuple(counts[at : at + length])),
                    bound=Bound(self._strings[bound]),
                    evidence=Evidence(self._strings[evidence]),
                    roof_ns=_number(roof),
                    ridge=_number(ridge),
                    step_calls=step_calls,
                    step_ns=step,
                    formula_bound=Bound(self._strings[other]) if other else None,
                )
            )
            at += length
        return tuple(stats)


def checked_signature(announced: int, content: Content) -> Signature:
    """A signature from its content.

    Raises:
        ValueError: its id is not the hash of its content.
    """
    signature = _signature(*content)
    if signature.id != announced:
        raise ValueError(f"signature id {announced:x} is not the hash of its content")
    return signature


def _signature(  # noqa: PLR0913, PLR0917 - one argument a column of the wire, in its order
    kernel: str,
    kind: str,
    op: str,
    phase: str,
    module: str,
    shapes: str,
    dtypes: str,
    arguments: str,
    formula: str,
    precision: str,
    unit: str,
    flops: int,
    size: int,
    flops_max: int,
) -> Signature:
    return Signature(
        kernel=kernel,
        kind=Kind(kind),
        op=op or None,
        phase=Phase(phase),
        module=module or None,
        shapes=shapes or None,
        dtypes=dtypes or None,
        arguments=arguments or None,
        flops=_known(flops),
        bytes=_known(size),
        formula=formula or None,
        precision=precision or None,
        unit=unit or None,
        flops_max=_known(flops_max),
    )


def _graph(m: pb.Graph, devices: int) -> Graph:
    if m.device >= devices:
        raise ValueError(f"device {m.device} of {devices}")
    return Graph(
        m.device, m.name, m.launches, m.records, m.total_ns, m.attributed_ns, m.source or None, _number(m.confidence)
    )


def _device(d: pb.Device) -> Device:
    return Device(
        vendor=Vendor(d.vendor),
        model=d.model,
        uuid=d.uuid or None,
        index=_known(d.index),
        memory_bytes=_known(d.memory_bytes),
        units=_known(d.units),
        driver=d.driver or None,
        inferred=d.inferred,
        peaks=Peaks(
            flops={(p.precision, p.unit): Peak(p.value, p.source) for p in d.flops},
            bandwidth=Peak(d.bandwidth.value, d.bandwidth.source) if d.HasField("bandwidth") else None,
        ),
    )


def _cause(c: pb.IdleCause) -> IdleCause:
    return IdleCause(
        Cause(c.cause),
        c.total_ns,
        c.count,
        c.longest_ns,
        c.example or None,
        startup_ns=c.startup_ns,
        startup_count=c.startup_count,
        steady_longest_ns=c.steady_longest_ns if c.HasField("steady_longest_ns") else None,
        steady_example=c.steady_example or None,
    )


def _ledger(m: pb.Ledger) -> Ledger:
    def optional(name: str) -> int | None:
        return int(getattr(m, name)) if m.HasField(name) else None  # not sent by the first versions

    return Ledger(
        events_read=m.events_read,
        device_records=m.device_records,
        device_time_ns=m.device_time_ns,
        has_host_events=m.has_host_events,
        linked_ns=m.linked_ns,
        backlog_ns=m.backlog_ns,
        classifiable_ns=m.classifiable_ns,
        classified_ns=m.classified_ns,
        named_ns=m.named_ns,
        dropped=dict(m.dropped),
        model_ns=m.model_ns,
        model_known_ns=m.model_known_ns,
        model_flops=m.model_flops,
        model_peak_ns=m.model_peak_ns,
        compared_ns=m.compared_ns,
        disagreed_ns=m.disagreed_ns,
        layout_ns=optional("layout_ns"),
        python_events=optional("python_events"),
        waits=optional("waits"),
        wait_ns=optional("wait_ns"),
        longest_wait_ns=optional("longest_wait_ns"),
    )


def _cost(m: pb.Cost) -> Cost:
    def optional(name: str) -> int | None:
        return int(getattr(m, name)) if m.HasField(name) else None

    return Cost(
        close_path=m.close_path,
        open_ns=m.open_ns,
        quiesce_ns=m.quiesce_ns,
        close_ns=m.close_ns,
        save_ns=m.save_ns,
        free_ns=m.free_ns,
        base_step_ns=optional("base_step_ns"),
        longest_step_ns=optional("longest_step_ns"),
        lost_in_ns=optional("lost_in_ns"),
        lost_after_ns=optional("lost_after_ns"),
        parse_cpu_ns=optional("parse_cpu_ns"),
    )


def _budget(m: pb.BudgetState) -> BudgetState:
    later = fields(BudgetState)[1:]
    return BudgetState(m.reason, **{f.name: getattr(m, f.name) if m.HasField(f.name) else None for f in later})


def _padding(m: pb.Padding) -> Padding:
    lengths = tuple(zip(m.lengths, m.counts, strict=True))
    shapes = tuple(zip(m.shape_sequences, m.shape_lengths, m.shape_batches, strict=True))
    sums = (m.batches, m.real_tokens, m.padded_tokens, m.real_squared, m.padded_squared)
    return Padding(*sums, lengths, shapes, m.coarsened, m.unread)


def _state(m: pb.DeviceState) -> DeviceState:
    return DeviceState(**{f.name: getattr(m, f.name) if m.HasField(f.name) else None for f in fields(DeviceState)})
