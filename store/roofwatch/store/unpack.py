"""From a sealed segment to rows, checked: whatever passes here can be stored and asked for without trouble later.

Kernels stay columns all the way; turning each into an object would cost more than storing it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roofwatch.model.record import Device, ProcessState, Signature, Window
from roofwatch.proto import codec
from roofwatch.proto.codec import WireError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import wire
from roofwatch.store.blocks import Ints
from roofwatch.store.checks import MAX_COUNT, check_state, check_texts, check_window, in_range
from roofwatch.store.dictionary import Dictionaries, Resolved
from roofwatch.store.facts import Facts, Kernels, Roofs, of_segment
from roofwatch.store.identity import devices_id

__all__ = ["MAX_ROWS", "Facts", "Unpacked", "UnpackedWindow", "Unpacker"]

MAX_ROWS = 1_000_000  # kernels in one segment: about 250 MB while it is unpacked
MAX_WINDOWS = 10_000  # in one segment: a second of the writer's time, whatever they hold
MAX_STATES = 10_000  # of processes told of in one segment: those of a node are some hundreds
MAX_SETS = 1_000  # of devices, remembered with a dictionary


@dataclass(frozen=True, slots=True)
class UnpackedWindow:
    """A window without kernels, the ids of its devices by position, and its kernels among its segment's."""

    window: Window
    devices: tuple[int, ...]
    process_id: int
    devices_id: int
    kernels: Kernels
    place: int

    @property
    def facts(self) -> Facts:
        """Its kernels."""
        return self.kernels.facts(self.place)

    @property
    def rows(self) -> int:
        """How many these are."""
        return self.kernels.count(self.place)


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A checked segment."""

    agent: str
    boot: str
    sequence: int
    crc32: int
    windows: list[UnpackedWindow]
    dictionary: Resolved
    told: Roofs
    drops: dict[str, int]
    rows: int
    states: list[tuple[int, ProcessState]] = field(default_factory=list)  # with the ids of their processes
    envelope: pb.SegmentEnvelope | None = None  # as it came: what a journal keeps

    @property
    def devices(self) -> dict[int, tuple[Device, int]]:
        """Devices by id, with the id of their peaks."""
        return self.dictionary.devices

    @property
    def signatures(self) -> dict[int, Signature]:
        """Signatures by id."""
        of = self.dictionary.catalog.signatures
        numbers = self.dictionary.signatures.tolist()
        return {i: of[number] for i, number in zip(self.dictionary.ids.tolist(), numbers, strict=True)}

    @property
    def roofs(self) -> dict[tuple[int, int], tuple[float | None, float | None]]:
        """``roof_ns`` and ridge by the ids of signature and peaks."""
        return self.roofs_of(np.arange(len(self.told.signatures)))

    def roofs_of(self, some: Ints) -> dict[tuple[int, int], tuple[float | None, float | None]]:
        """Some of the roofs, by their places."""
        if not len(some):
            return {}
        told, peaks = self.told, self.dictionary.peaks_ids
        ids = self.dictionary.catalog.ids[told.signatures[some]].tolist()
        pairs = ((i, peaks[place]) for i, place in zip(ids, told.peaks[some].tolist(), strict=True))
        values = (map(_known, column[some].tolist()) for column in (told.roof_ns, told.ridge))
        return dict(zip(pairs, zip(*values, strict=True), strict=True))


@dataclass(slots=True)
class Unpacker:
    """Remembers what it has checked; may be used by several threads."""

    dictionaries: Dictionaries = field(default_factory=Dictionaries)

    def unpack(self, envelope: pb.SegmentEnvelope) -> Unpacked:
        """Check a segment and lay out its rows.

        Raises:
            WireError: it cannot be what an agent sealed; says why.
        """
        message = wire.read(envelope)
        if message.schema != codec.SEGMENT_SCHEMA:
            codec.windows(pb.Segment(schema=message.schema))  # raises, and says what to upgrade
        if len(message.windows) > MAX_WINDOWS:
            raise WireError(f"segment of {len(message.windows)} windows: the limit is {MAX_WINDOWS}")
        if len(message.states) > MAX_STATES:
            raise WireError(f"segment of the states of {len(message.states)} processes: the limit is {MAX_STATES}")
        counts = wire.counts([w.kernels.signature for w in message.windows])
        if sum(counts) > MAX_ROWS:
            raise WireError(f"segment of {sum(counts)} kernels: the limit is {MAX_ROWS}")
        try:
            return self._unpack(envelope, message, counts)
        except (IndexError, ValueError, KeyError, RecursionError, OverflowError) as error:
            raise WireError(f"damaged segment: {error}") from error

    def _unpack(self, envelope: pb.SegmentEnvelope, message: Any, counts: list[int]) -> Unpacked:
        segment_id = envelope.id
        if not segment_id.agent or not segment_id.boot or not 0 < segment_id.sequence < 1 << 63:
            raise ValueError("no agent, boot or sequence")
        check_texts(segment_id.agent, segment_id.boot, *message.agent_drops)
        in_range("agent_drops", message.agent_drops.values(), MAX_COUNT)
        dictionary = self.dictionaries.resolved(message.dictionary)
        kernels, roofs = of_segment(message.windows, counts, dictionary)
        return Unpacked(
            agent=segment_id.agent,
            boot=segment_id.boot,
            sequence=segment_id.sequence,
            crc32=envelope.crc32,
            windows=[_window(w, dictionary, kernels, place) for place, w in enumerate(message.windows)],
            dictionary=dictionary,
            told=roofs,
            drops=dict(message.agent_drops),
            rows=sum(counts),
            states=_states(message, dictionary),
            envelope=envelope,
        )


def _states(message: Any, dictionary: Resolved) -> list[tuple[int, ProcessState]]:
    found = dictionary.decoder.states(message)
    for state in found:
        check_state(state)
    return [(dictionary.process_ids[told.process], state) for told, state in zip(message.states, found, strict=True)]


def _window(message: Any, dictionary: Resolved, kernels: Kernels, place: int) -> UnpackedWindow:
    window = dictionary.decoder.window(message, kernels=False)
    check_window(window)
    of = tuple(dictionary.device_ids[d.device][0] for d in message.devices)
    identity = dictionary.sets.get(of)
    if identity is None:
        if len(dictionary.sets) >= MAX_SETS:
            dictionary.sets.clear()
        identity = dictionary.sets[of] = devices_id(of)
    return UnpackedWindow(window, of, dictionary.process_ids[message.process], identity, kernels, place)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
