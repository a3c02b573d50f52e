"""Dictionaries of segments, checked and resolved; one that comes again is recognised by the hash of its bytes.

Only what has come twice is kept, and no longer than it is of use: jobs come and go, and most of what a small site sends
never comes again, so that to keep it all would be to grow for weeks.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
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
UNUSED_S = 3600.0  # after which one is forgotten: its processes are gone, or run other kernels now
ONCE = 1 << 16  # marks of dictionaries that came once: in an hour from a thousand agents
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


class Once:
    """What came once, as marks in a table that never grows: a newer one takes the place of an older."""

    def __init__(self, size: int = ONCE) -> None:
        self._marks = np.ones(size, np.uint64)

    def again(self, digest: bytes) -> bool:
        """Whether it came before, as far as that is remembered; from now on it has."""
        mark = np.uint64(int.from_bytes(digest[:8], "little"))
        place = int.from_bytes(digest[8:16], "little") % len(self._marks)
        came = bool(self._marks[place] == mark)
        self._marks[place] = mark
        return came


class Dictionaries:
    """The dictionaries that come again; may be used by several threads. ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.catalog = Catalog()
        self._clock = clock
        self._lock = threading.Lock()
        # With when each came last, the oldest first.
        self._known: OrderedDict[bytes, tuple[Resolved, float]] = OrderedDict()
        self._once = Once()
        self._cells = 0

    def __len__(self) -> int:
        return len(self._known)

    def resolved(self, data: bytes) -> Resolved:
        """A dictionary from its bytes, checked now or before.

        Raises:
            ValueError, IndexError: it cannot be stored.
        """
        key = hashlib.sha256(data).digest()
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known[key] = found[0], self._clock()
                self._known.move_to_end(key)
                return found[0]
            if self.catalog.full:
                self.catalog = Catalog()
                self._known.clear()  # each keeps the catalog that it was resolved with
                self._cells = 0
            catalog = self.catalog
        made = resolve(_parsed(data), catalog)
        with self._lock:
            if self._once.again(key) and key not in self._known and catalog is self.catalog:
                self._known[key] = made, self._clock()
                self._cells += made.cells
            self._forget()
        return made

    def _forget(self) -> None:
        """What nobody sends any more, and the oldest where there are too many."""
        unused = self._clock() - UNUSED_S
        while self._known and (self._cells > MAX_CELLS or next(iter(self._known.values()))[1] < unused):
            _, (gone, _) = self._known.popitem(last=False)
            self._cells -= gone.cells
