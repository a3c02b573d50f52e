"""What became of a segment."""

from __future__ import annotations

from dataclasses import dataclass

from roofwatch.proto.v1 import roofwatch_pb2 as pb


@dataclass(frozen=True, slots=True)
class Outcome:
    """The status of an acknowledgement, with the reason of a rejection."""

    status: pb.AckStatus
    reason: str = ""


STORED = Outcome(pb.STORED)
DUPLICATE = Outcome(pb.DUPLICATE)


def rejected(reason: str) -> Outcome:
    """Never send it again; the reason says why."""
    return Outcome(pb.REJECTED, reason)
