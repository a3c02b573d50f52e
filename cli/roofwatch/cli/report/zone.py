"""The reporter's time zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

MS = 1_000_000  # ns
MINUTE_NS = 60_000_000_000
MINUTES_SAY_NS = 600_000_000_000  # a time so long is told in minutes, a shorter one in seconds


@dataclass(frozen=True, slots=True)
class Zone:
    """A fixed distance from UTC: a page that is passed on shows the same hours everywhere."""

    offset: timedelta

    @property
    def name(self) -> str:
        """As in "UTC+02:00"."""
        minutes = round(self.offset.total_seconds() / 60)
        sign = "-" if minutes < 0 else "+"
        return f"UTC{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}" if minutes else "UTC"

    def ms(self, unix_ns: int) -> float:
        """Milliseconds that Vega, told to count in UTC, shows as local time."""
        return unix_ns / MS + self.offset.total_seconds() * 1000

    def local(self, unix_ns: int) -> datetime:
        """The local time."""
        return datetime.fromtimestamp(unix_ns / 1e9, tz=UTC) + self.offset

    def moment(self, unix_ns: int, length_ns: int) -> str:
        """The beginning of a stretch of time: with seconds where it is shorter than a minute."""
        return f"{self.local(unix_ns):%Y-%m-%d %H:%M{':%S' if length_ns < MINUTE_NS else ''}}"

    def range(self, first_ns: int | None, last_ns: int | None) -> str:
        """As in "2026-01-31 00:00 to 2026-02-01 00:00 (UTC)"; "" where it is unknown."""
        if first_ns is None or last_ns is None:
            return ""
        seconds = ":%S" if last_ns - first_ns < MINUTES_SAY_NS else ""
        first, last = (f"{self.local(one):%Y-%m-%d %H:%M{seconds}}" for one in (first_ns, last_ns))
        return f"{first} ({self.name})" if first == last else f"{first} to {last} ({self.name})"


def here(unix_ns: int) -> Zone:
    """The zone of this machine at that time."""
    return Zone(datetime.fromtimestamp(unix_ns / 1e9).astimezone().utcoffset() or timedelta())
