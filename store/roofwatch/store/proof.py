"""Whether roofs follow from what they claim to be of: a kernel's FLOPs and bytes, and a device's peaks.

A signature's roof on one set of peaks is everybody's, and the first that came stands. An agent that may speak for its
own node only must not set it for others.
"""

from __future__ import annotations

import hashlib

import numpy as np

from roofwatch.model.record import Peaks, Signature
from roofwatch.model.roofline import MOST_ROOF_NS, ridge_of, roof_time_ns
from roofwatch.store.unpack import Unpacked

NEAR = 1e-6  # of a figure: the same division by another machine
REMEMBERED = 200_000  # roofs that were found right
NAME_MOST = 80  # characters of a kernel in a reason
Told = tuple[float | None, float | None]  # roof in ns, ridge


def follows(signature: Signature, peaks: Peaks) -> Told:
    """The roof and the ridge as every reader makes them; None where there can be none."""
    flops, moved = signature.flops, signature.bytes
    if flops is None or moved is None:
        return None, None
    if flops == 0 and moved == 0:
        return 0.0, None
    times = roof_time_ns(flops, moved, peaks, signature.precision, signature.unit)
    if times is None or max(times) >= MOST_ROOF_NS:
        return None, None
    return max(times), ridge_of(peaks, signature.precision, signature.unit) if flops else None


def proved(told: Told, signature: Signature, peaks: Peaks) -> bool:
    """Whether what is told of a kernel is what follows.

    Where only its name is known there is no roof, and the ridge is of a precision that the name tells: one of the
    device's.
    """
    roof, ridge = told
    right = follows(signature, peaks)
    if roof is None and right[0] is None:
        return ridge is None or any(_near(ridge, ridge_of(peaks, *of)) for of in peaks.flops)
    return _near(roof, right[0]) and _near(ridge, right[1])


def _near(told: float | None, right: float | None) -> bool:
    """Whether nothing was told, or what is right."""
    return told is None or (right is not None and abs(told - right) <= NEAR * max(abs(right), NEAR))


def _digest(unpacked: Unpacked) -> bytes:
    """What a segment tells of roofs, by the contents of signatures and peaks, in 16 bytes."""
    told, dictionary = unpacked.told, unpacked.dictionary
    ids = dictionary.catalog.ids[told.signatures], np.array(dictionary.peaks_ids, np.int64)[told.peaks]
    parts = (np.ascontiguousarray(part).tobytes() for part in (*ids, told.roof_ns, told.ridge))
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()


class Proofs:
    """Remembers which roofs were found right, and what segments told of them: a process tells the same each minute."""

    def __init__(self) -> None:
        self._right: set[tuple[tuple[int, int], Told]] = set()
        self._same: set[bytes] = set()  # digests of all that a segment told of roofs

    def doubt(self, unpacked: Unpacked) -> str | None:
        """Why a segment is not believed; None where all its roofs are right."""
        digest = _digest(unpacked)
        if digest in self._same:
            return None
        found = self._doubt(unpacked)
        if found is None:
            if len(self._same) >= REMEMBERED:
                self._same.clear()
            self._same.add(digest)
        return found

    def _doubt(self, unpacked: Unpacked) -> str | None:
        new = unpacked.roofs.items() - self._right
        if not new:
            return None
        peaks = {peaks: device.peaks for device, peaks in unpacked.devices.values()}
        signatures = unpacked.signatures
        for (signature, of), told in new:
            if not proved(told, signatures[signature], peaks[of]):
                name = signatures[signature].kernel[:NAME_MOST]
                return f"the roof of kernel '{name}' is not what its FLOPs, its bytes and the device's peaks give"
        if len(self._right) + len(new) > REMEMBERED:
            self._right.clear()
        self._right |= new
        return None
