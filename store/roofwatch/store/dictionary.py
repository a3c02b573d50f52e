"""Dictionaries of segments, checked and resolved; one that comes again is recognised by the hash of its bytes."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
from google.protobuf.message import DecodeError

from roofwatch.model.record import Device
from roofwatch.proto.decode import Decoder
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.blocks import Ints
from roofwatch.store.catalog import Catalog
from roofwatch.store.checks import check_device, check_process, fail
from roofwatch.store.identity import device_id, peaks_id

MAX_CELLS = 6_000_000  # of dictionaries remembered: 8 to 30 bytes each
_EACH = 200  # cells that a dictionary takes at least, and those of a signature, a process or a device
_SIGNATURE, _RECORD = 3, 100


@dataclass(frozen=True, slots=True)
class Resolved:
    """A dictionary whose every part can be stored."""

    decoder: Decoder  # for all but kernels
    catalog: Catalog
    signatures: Ints  # their numbers in the catalog
    ids: Ints  # and their ids
    names: Ints  # of their kernels, by place among the strings
    strings: int
    bounds: Ints  # by place among the strings, their codes
    evidences: Ints
    process_ids: list[int]
    device_ids: list[tuple[int, int]]  # of devices and their peaks
    peaks: Ints  # of devices, by place among ``peaks_ids``
    peaks_ids: list[int]
    sets: dict[tuple[int, ...], int] = field(default_factory=dict)  # ids of sets of devices

    @property
    def devices(self) -> dict[int, tuple[Device, int]]:
        """By id, with the id of the peaks."""
        return {i: (d, peaks) for d, (i, peaks) in zip(self.decoder.devices, self.device_ids, strict=True)}

    @property
    def cells(self) -> int:
        """How much it takes to remember it."""
        records = len(self.process_ids) + len(self.device_ids)
        return _EACH + self.strings + _SIGNATURE * len(self.ids) + _RECORD * records


def resolve(message: pb.Dictionary, catalog: Catalog) -> Resolved:
    """Check a dictionary.

    Raises:
        ValueError, IndexError: it cannot be stored.
    """
    texts, strings = catalog.texts(message.strings)
    decoder = Decoder(message, strings=strings)
    for process in decoder.processes:
        check_process(process)
    for device in decoder.devices:
        check_device(device)
    signatures = catalog.numbers(message.signatures, texts)
    devices = [(device_id(d), peaks_id(d)) for d in decoder.devices]
    peaks = {peaks: i for i, peaks in enumerate(dict.fromkeys(peaks for _, peaks in devices))}
    return Resolved(
        decoder=decoder,
        catalog=catalog,
        signatures=signatures,
        ids=catalog.ids[signatures],
        names=np.asarray(message.signatures.kernel).astype(np.int64),
        strings=len(strings),
        bounds=catalog.bounds(texts),
        evidences=catalog.evidences(texts),
        process_ids=[process.id for process in decoder.processes],
        device_ids=devices,
        peaks=np.array([peaks[of] for _, of in devices], np.int64),
        peaks_ids=list(peaks),
    )


def _parsed(data: bytes) -> pb.Dictionary:
    message = pb.Dictionary()
    try:
        message.ParseFromString(data)
    except DecodeError:
        fail("not a protobuf message")
    return message


class Dictionaries:
    """The dictionaries that came last; may be used by several threads."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, Resolved] = OrderedDict()
        self._cells = 0

    def resolved(self, data: bytes) -> Resolved:
        """A dictionary from its bytes, checked now or before.

        Raises:
            ValueError, IndexError: it cannot be stored.
        """
        key = hashlib.sha256(data).digest()
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                return found
            if self.catalog.full:
                self.catalog = Catalog()
                self._known.clear()  # each keeps the catalog that it was resolved with
                self._cells = 0
            catalog = self.catalog
        made = resolve(_parsed(data), catalog)
        with self._lock:
            if key not in self._known and catalog is self.catalog:
                self._known[key] = made
                self._cells += made.cells
            while self._cells > MAX_CELLS:
                _, gone = self._known.popitem(last=False)
                self._cells -= gone.cells
        return made
