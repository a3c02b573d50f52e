"""From one raw profile to one window: devices joined, signatures made, verdicts given, the ledger filled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from roofwatch.collectors import ascend_kernels
from roofwatch.collectors.base import BORROWED, RawDevice, RawGroup, RawProfile, WindowContext
from roofwatch.collectors.classify import classify
from roofwatch.collectors.normalize import normalize
from roofwatch.collectors.storable import storable
from roofwatch.model.devices import calibration_file, identify, merged_peaks, with_measured
from roofwatch.model.record import Device, DeviceState, DeviceWindow, Ledger, Process, Trigger, Vendor, Window


def window_of(raw: RawProfile, context: WindowContext) -> Window:
    """One window of the model from a reader's profile and what the agent knows beside it.

    Measured peaks come from ``context.peaks_files``, without any from the user's own calibration file.
    """
    raw = storable(_of_registered(raw, context.devices))
    steps = raw.steps if raw.steps is not None else context.steps
    if steps is None:
        raw = replace(raw, groups=[replace(group, step_calls=0, step_ns=0) for group in raw.groups])
    if _starting(raw, context):
        raw = replace(raw, devices=[_all_startup(device) for device in raw.devices])
    paths = context.peaks_files or (str(calibration_file()),)
    devices = [with_measured(device, paths) for device in join_devices(raw.devices, context.devices, raw.groups)]
    kernels, sums = classify(normalize(raw, devices), devices, borrowed=raw.borrowed == BORROWED)
    return Window(
        uid=context.uid,
        process=_process(context.process, raw),
        start_unix_ns=raw.start_unix_ns,
        duration_ns=raw.duration_ns,
        trigger=context.trigger,
        collector=raw.collector,
        devices=tuple(_device_window(d, r) for d, r in zip(devices, raw.devices, strict=True)),
        kernels=tuple(kernels),
        ledger=_ledger(raw, sums),
        steps=steps,
        represents_ns=context.represents_ns,
        shapes_recorded=raw.shapes_recorded,
        cost=context.cost,
        padding=context.padding,
        first_step=context.first_step,
        collectives=tuple(replace(c, start_unix_ns=raw.start_unix_ns + c.start_unix_ns) for c in raw.collectives),
        graphs=tuple(raw.graphs),
    )


def _of_registered(raw: RawProfile, registered: Sequence[Device]) -> RawProfile:
    """Where a process that registered accelerators launched nothing: each of them idle, and no record.

    The ops of such a window ran on the host, which is not the device that this process is here for.
    """
    accelerators = [device for device in registered if device.vendor is not Vendor.CPU]
    if raw.unused is None or not accelerators:
        return raw
    idle = [replace(raw.unused, vendor=d.vendor, name=d.model, index=d.index) for d in accelerators]
    return replace(raw, devices=idle, groups=[])


def _starting(raw: RawProfile, context: WindowContext) -> bool:
    """Whether a window saw a process before it began to work: its first one, live, without a record, an op or a step.

    A job imports, builds its model and reads its data for seconds after it is attached to, and none of that comes back.
    """
    live_and_first = context.trigger is not Trigger.IMPORTED and context.represents_ns is None
    nothing = not raw.groups and not raw.has_host_events and not raw.steps and not context.steps
    return live_and_first and nothing and context.first_step is None


def _all_startup(device: RawDevice) -> RawDevice:
    """The same device, all of its idle time start-up: told, and left out of what steady work waited for."""
    causes = tuple(
        replace(one, startup_ns=one.total_ns, startup_count=one.count, steady_longest_ns=0, steady_example=None)
        for one in device.causes
    )
    return replace(device, causes=causes)


def join_devices(
    seen: Sequence[RawDevice], registered: Sequence[Device], groups: Sequence[RawGroup] = ()
) -> list[Device]:
    """The trace's devices with what the hook registered about them (uuid, driver, name) and their peaks.

    ``groups``: what ran on them, which tells how many cores there are at least.
    """
    least = ascend_kernels.cores_at_work(groups)
    return [_joined(device, _registered(device, seen, registered), least.get(i)) for i, device in enumerate(seen)]


def _registered(device: RawDevice, seen: Sequence[RawDevice], registered: Sequence[Device]) -> Device | None:
    """The registered device that a trace's device is: the same index, or the only one of its sort on both sides."""
    cpu = device.vendor == Vendor.CPU
    fitting = [d for d in registered if (d.vendor is Vendor.CPU) == cpu]
    if device.vendor and not cpu:
        fitting = [d for d in fitting if d.vendor == device.vendor]
    alone = sum((d.vendor == Vendor.CPU) == cpu for d in seen) == 1
    if len(fitting) == 1 and alone:
        return fitting[0]
    same = [d for d in fitting if d.index is not None and d.index == device.index]
    return same[0] if len(same) == 1 else None


def _joined(device: RawDevice, known: Device | None, least: int | None) -> Device:
    index = device.index if known is None or known.index is None else known.index
    told = "" if known is None else known.model
    # An Ascend database names a family (Ascend910B), the process's own runtime the chip (Ascend910B2).
    name = told or device.name if device.vendor == Vendor.ASCEND else device.name or told
    units = device.units or (None if known is None else known.units)
    memory = device.memory_bytes or (None if known is None else known.memory_bytes)
    vendor = device.vendor or (None if known is None else known.vendor)
    found = identify(vendor, name, units, memory, index, device.clock_hz, least)
    if known is None:
        return found
    return replace(
        found,
        uuid=known.uuid,
        driver=known.driver,
        peaks=merged_peaks(known.peaks, found.peaks),
        vector_units=known.vector_units,
    )


def _device_window(device: Device, raw: RawDevice) -> DeviceWindow:
    # An Ascend profile tells the clock that its cores ran at; of others only the highest they may run at is told.
    ran = raw.clock_hz if device.vendor is Vendor.ASCEND else None
    return DeviceWindow(
        device, raw.span_ns, raw.busy_ns, raw.causes, raw.exposed_copy_ns, raw.exposed_communication_ns,
        state=None if ran is None else DeviceState(clock_hz=ran),
    )  # fmt: skip


def _process(process: Process, raw: RawProfile) -> Process:
    """Rank and world size from the trace where the hook did not tell them."""
    return replace(
        process,
        rank=raw.rank if process.rank is None else process.rank,
        world_size=raw.world_size if process.world_size is None else process.world_size,
    )


def _ledger(raw: RawProfile, sums: Ledger) -> Ledger:
    waits, total, longest = raw.waits or (None, None, None)
    return replace(
        sums,
        events_read=raw.events_read,
        device_records=sum(g.calls for g in raw.groups),
        has_host_events=raw.has_host_events,
        dropped=dict(raw.dropped),
        python_events=raw.python_events,
        waits=waits,
        wait_ns=total,
        longest_wait_ns=longest,
    )
