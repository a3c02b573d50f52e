"""What a query is limited to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from roofwatch.model.errors import UsageError

if TYPE_CHECKING:
    from roofwatch.proto.v1 import roofwatch_pb2 as pb


MOST_LABELS = 100


@dataclass(frozen=True, slots=True)
class Filter:
    """Windows by when they started (Unix ns, since ≤ start < until) and whose they are; None and {} do not limit.

    ``process`` is a pid or the 16 hex digits of a process id; ``device`` is a part of a device model, in any case;
    ``vendor`` is nvidia, ascend, amd or cpu.

    Raises:
        UsageError: a text is none that a store could hold, or there are too many labels.
    """

    since_unix_ns: int | None = None
    until_unix_ns: int | None = None
    node: str | None = None
    process: str | None = None
    model: str | None = None
    device: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    vendor: str | None = None
    job: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no statement takes: an argument of bytes that are no UTF-8, say."""
        if len(self.labels) > MOST_LABELS:
            raise UsageError(f"{len(self.labels)} labels to look for are too many: give at most {MOST_LABELS}")
        words = (self.node, self.process, self.model, self.device, self.vendor, self.job)
        for word in (*words, *self.labels, *self.labels.values()):
            if word and not word.isascii() and word.encode(errors="replace").decode() != word:
                raise UsageError(f"{word!a} is no text that anything here could be named: give UTF-8")

    def as_json(self) -> dict[str, Any]:
        """The part of an answer's ``query`` that says what was left out."""
        return {
            "since_unix_ns": self.since_unix_ns,
            "until_unix_ns": self.until_unix_ns,
            "node": self.node,
            "process": self.process,
            "model": self.model,
            "device": self.device,
            "vendor": self.vendor,
            "job": self.job,
            "labels": dict(self.labels),
        }

    def message(self) -> pb.Filter:
        """As sent to a store."""
        from roofwatch.proto.v1 import roofwatch_pb2 as pb  # noqa: PLC0415  # 30 ms that a database opened here needs not

        return pb.Filter(
            since_unix_ns=self.since_unix_ns or 0,
            until_unix_ns=self.until_unix_ns or 0,
            node=self.node or "",
            process=self.process or "",
            model=self.model or "",
            device=self.device or "",
            vendor=self.vendor or "",
            job=self.job or "",
            labels=dict(self.labels),
        )

    @staticmethod
    def from_message(m: pb.Filter) -> Filter:
        """As received by a store."""
        return Filter(
            since_unix_ns=m.since_unix_ns or None,
            until_unix_ns=m.until_unix_ns or None,
            node=m.node or None,
            process=m.process or None,
            model=m.model or None,
            device=m.device or None,
            vendor=m.vendor or None,
            job=m.job or None,
            labels=dict(m.labels),
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """All that a query is asked with: ``other`` is the second side of what compares two, ``options`` its own."""

    scope: Filter
    limit: int = 0  # 0: all rows
    other: Filter | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """An answer's ``query``, without its name."""
        other = {} if self.other is None else {"other": self.other.as_json()}
        told = {**self.scope.as_json(), "limit": self.limit, **other}
        return {**told, **{name: value for name, value in self.options.items() if name not in (*told, "name")}}
