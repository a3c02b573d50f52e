"""Records → messages, with a dictionary for everything that repeats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from roofwatch.model.record import (
    BudgetState,
    Collective,
    Cost,
    Device,
    DeviceWindow,
    Graph,
    Ledger,
    Node,
    Process,
    ProcessState,
    Signature,
    Window,
)
from roofwatch.proto.v1 import roofwatch_pb2 as pb

UNKNOWN = -1


def _int(value: int | None) -> int:
    return UNKNOWN if value is None else value


class Encoder:
    """Builds one segment; indices are given in order of first use."""

    def __init__(self) -> None:
        self._message = pb.Segment()
        self._dictionary = self._message.dictionary
        self._strings: dict[str, int] = {}
        self._nodes: dict[bytes, int] = {}
        self._devices: dict[bytes, int] = {}
        self._processes: dict[bytes, int] = {}
        self._signatures: dict[int, int] = {}
        self._string(None)

    def segment(
        self,
        windows: Sequence[Window],
        schema: int,
        agent_drops: Mapping[str, int],
        states: Sequence[ProcessState] = (),
    ) -> pb.Segment:
        """Encode the windows and what else a segment tells; call once."""
        self._message.schema = schema
        for reason, count in agent_drops.items():
            self._message.agent_drops[reason] = count
        for window in windows:
            self._window(window, self._message.windows.add())
        for state in states:
            self._message.states.add(
                process=self._process(state.process),
                unix_ns=state.unix_ns,
                since_unix_ns=state.since_unix_ns,
                budget=_budget(state.budget),
                skipped=dict(state.skipped),
            )
        return self._message

    def _string(self, text: str | None) -> int:
        text = text or ""
        index = self._strings.get(text)
        if index is None:
            index = self._strings[text] = len(self._strings)
            self._dictionary.strings.append(text)
        return index

    def _node(self, node: Node) -> int:
        message = pb.Node(host=node.host, boot_id=node.boot_id, labels=dict(node.labels))
        key = message.SerializeToString(deterministic=True)
        if key not in self._nodes:
            self._nodes[key] = len(self._nodes)
            self._dictionary.nodes.append(message)
        return self._nodes[key]

    def _device(self, device: Device) -> int:
        message = pb.Device(
            vendor=str(device.vendor),
            model=device.model,
            uuid=device.uuid or "",
            index=_int(device.index),
            memory_bytes=_int(device.memory_bytes),
            units=_int(device.units),
            driver=device.driver or "",
            inferred=device.inferred,
        )
        for (precision, unit), peak in sorted(device.peaks.flops.items()):
            message.flops.add(precision=precision, unit=unit, value=peak.value, source=peak.source)
        if device.peaks.bandwidth is not None:
            message.bandwidth.value = device.peaks.bandwidth.value
            message.bandwidth.source = device.peaks.bandwidth.source
        key = message.SerializeToString(deterministic=True)
        if key not in self._devices:
            self._devices[key] = len(self._devices)
            self._dictionary.devices.append(message)
        return self._devices[key]

    def _process(self, process: Process) -> int:
        message = pb.Process(
            node=self._node(process.node),
            pid=process.pid,
            start_unix_ns=_int(process.start_unix_ns),
            user=process.user or "",
            job=process.job or "",
            container=process.container or "",
            rank=_int(process.rank),
            local_rank=_int(process.local_rank),
            world_size=_int(process.world_size),
            model=process.model or "",
            versions=dict(process.versions),
            labels=dict(process.labels),
        )
        key = message.SerializeToString(deterministic=True)
        if key not in self._processes:
            self._processes[key] = len(self._processes)
            self._dictionary.processes.append(message)
        return self._processes[key]

    def _signature(self, s: Signature) -> int:
        index = self._signatures.get(s.id)
        if index is not None:
            return index
        index = self._signatures[s.id] = len(self._signatures)
        columns = self._dictionary.signatures
        columns.id.append(s.id)
        columns.kernel.append(self._string(s.kernel))
        columns.kind.append(self._string(s.kind))
        columns.op.append(self._string(s.op))
        columns.phase.append(self._string(s.phase))
        columns.module.append(self._string(s.module))
        columns.shapes.append(self._string(s.shapes))
        columns.dtypes.append(self._string(s.dtypes))
        columns.arguments.append(self._string(s.arguments))
        columns.formula.append(self._string(s.formula))
        columns.precision.append(self._string(s.precision))
        columns.unit.append(self._string(s.unit))
        columns.flops.append(_int(s.flops))
        columns.bytes.append(_int(s.bytes))
        columns.flops_max.append(_int(s.flops_max))
        return index

    def _window(self, window: Window, message: pb.Window) -> None:
        message.uid = bytes.fromhex(window.uid)
        message.process = self._process(window.process)
        message.start_unix_ns = window.start_unix_ns
        message.duration_ns = window.duration_ns
        message.trigger = str(window.trigger)
        message.collector = window.collector
        message.steps = _int(window.steps)
        message.represents_ns = _int(window.represents_ns)
        message.shapes_recorded = window.shapes_recorded
        for device in window.devices:
            self._device_window(device, message.devices.add())
        message.ledger.CopyFrom(_ledger(window.ledger))
        if window.cost is not None:
            message.cost.CopyFrom(_cost(window.cost))
        if window.padding is not None:
            p = window.padding
            message.padding.CopyFrom(
                pb.Padding(
                    batches=p.batches,
                    real_tokens=p.real_tokens,
                    padded_tokens=p.padded_tokens,
                    real_squared=p.real_squared,
                    padded_squared=p.padded_squared,
                    lengths=[length for length, _ in p.lengths],
                    counts=[count for _, count in p.lengths],
                    shape_sequences=[shape[0] for shape in p.shapes],
                    shape_lengths=[shape[1] for shape in p.shapes],
                    shape_batches=[shape[2] for shape in p.shapes],
                    coarsened=p.coarsened,
                    unread=p.unread,
                )
            )
        if window.first_step is not None:
            message.first_step = window.first_step
        if window.budget is not None:
            message.budget.CopyFrom(_budget(window.budget))
        self._collectives(window.collectives, message.collectives)
        message.graphs.extend(_graph(graph) for graph in window.graphs)
        self._kernels(window, message.kernels)

    def _device_window(self, device: DeviceWindow, message: pb.DeviceWindow) -> None:
        message.device = self._device(device.device)
        message.span_ns = device.span_ns
        message.busy_ns = device.busy_ns
        message.exposed_copy_ns = device.exposed_copy_ns
        message.exposed_communication_ns = device.exposed_communication_ns
        message.memory_used_bytes = _int(device.memory_used_bytes)
        message.memory_peak_bytes = _int(device.memory_peak_bytes)
        if device.state is not None:
            known = {key: value for key, value in asdict(device.state).items() if value is not None}
            message.state.CopyFrom(pb.DeviceState(**known))
        for c in device.causes:
            found = message.causes.add(
                cause=str(c.cause),
                total_ns=c.total_ns,
                count=c.count,
                longest_ns=c.longest_ns,
                example=c.example or "",
                startup_ns=c.startup_ns,
                startup_count=c.startup_count,
                steady_example=c.steady_example or "",
            )
            if c.steady_longest_ns is not None:
                found.steady_longest_ns = c.steady_longest_ns

    def _collectives(self, found: Sequence[Collective], columns: pb.Collectives) -> None:
        columns.device.extend(c.device for c in found)
        columns.name.extend(self._string(c.name) for c in found)
        columns.group.extend(self._string(c.group) for c in found)
        columns.start_unix_ns.extend(c.start_unix_ns for c in found)
        columns.duration_ns.extend(c.duration_ns for c in found)
        columns.group_size.extend(_int(c.group_size) for c in found)
        columns.sequence.extend(_int(c.sequence) for c in found)
        columns.bytes.extend(_int(c.bytes) for c in found)

    def _kernels(self, window: Window, columns: pb.KernelStats) -> None:
        stats = window.kernels
        columns.signature.extend(self._signature(s.signature) for s in stats)
        columns.device.extend(s.device for s in stats)
        columns.calls.extend(s.calls for s in stats)
        columns.total_ns.extend(s.total_ns for s in stats)
        columns.min_ns.extend(s.min_ns for s in stats)
        columns.max_ns.extend(s.max_ns for s in stats)
        columns.bound.extend(self._string(s.bound) for s in stats)
        columns.evidence.extend(self._string(s.evidence) for s in stats)
        columns.roof_ns.extend(math.nan if s.roof_ns is None else s.roof_ns for s in stats)
        columns.ridge.extend(math.nan if s.ridge is None else s.ridge for s in stats)
        columns.step_calls.extend(s.step_calls for s in stats)
        columns.step_ns.extend(s.step_ns for s in stats)
        columns.histogram_low.extend(s.histogram.low for s in stats)
        columns.histogram_length.extend(len(s.histogram.counts) for s in stats)
        for s in stats:
            columns.histogram_counts.extend(s.histogram.counts)
        if any(s.formula_bound is not None for s in stats):
            columns.formula_bound.extend(self._string(s.formula_bound) for s in stats)


def _graph(graph: Graph) -> pb.Graph:
    return pb.Graph(
        device=graph.device,
        name=graph.name,
        launches=graph.launches,
        records=graph.records,
        total_ns=graph.total_ns,
        attributed_ns=graph.attributed_ns,
        source=graph.source or "",
        confidence=math.nan if graph.confidence is None else graph.confidence,
    )


def _ledger(ledger: Ledger) -> pb.Ledger:
    message = pb.Ledger(
        events_read=ledger.events_read,
        device_records=ledger.device_records,
        device_time_ns=ledger.device_time_ns,
        has_host_events=ledger.has_host_events,
        linked_ns=ledger.linked_ns,
        backlog_ns=ledger.backlog_ns,
        classifiable_ns=ledger.classifiable_ns,
        classified_ns=ledger.classified_ns,
        named_ns=ledger.named_ns,
        dropped=dict(ledger.dropped),
        model_ns=ledger.model_ns,
        model_known_ns=ledger.model_known_ns,
        model_flops=ledger.model_flops,
        model_peak_ns=ledger.model_peak_ns,
        compared_ns=ledger.compared_ns,
        disagreed_ns=ledger.disagreed_ns,
    )
    for name in ("layout_ns", "python_events", "waits", "wait_ns", "longest_wait_ns"):
        value = getattr(ledger, name)
        if value is not None:
            setattr(message, name, value)
    return message


def _budget(budget: BudgetState) -> pb.BudgetState:
    return pb.BudgetState(**{name: value for name, value in asdict(budget).items() if value is not None})


def _cost(cost: Cost) -> pb.Cost:
    message = pb.Cost(
        close_path=cost.close_path,
        open_ns=cost.open_ns,
        quiesce_ns=cost.quiesce_ns,
        close_ns=cost.close_ns,
        save_ns=cost.save_ns,
        free_ns=cost.free_ns,
    )
    for name in ("base_step_ns", "longest_step_ns", "lost_in_ns", "lost_after_ns", "parse_cpu_ns"):
        value = getattr(cost, name)
        if value is not None:
            setattr(message, name, value)
    return message
