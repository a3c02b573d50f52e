"""Traces that were kept on request: files of the agent's own folder, bounded in bytes and age, the oldest go first.

Beside each lies a note (JSON) of whose it is. Both are readable by the agent's user only: a trace names ops and shapes.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from roofwatch.agent.counters import Counters

FOLDER = "traces"
_UID, _HASH = re.compile(r"[0-9a-f]{32}"), re.compile(r"(?:[0-9a-f]{64})?")
BYTES, AGE, ERROR = "dropped_bytes", "dropped_age", "dropped_error"  # as they are counted


@dataclass(frozen=True, slots=True)
class Note:
    """A kept trace."""

    window: str  # uid
    format: str
    bytes: int
    sha256: str
    kept_unix_ns: int
    start_unix_ns: int
    process: str
    pid: int
    job: str = ""
    model: str = ""
    user: str = ""
    rank: int = -1
    duration_ns: int | None = None  # these three of the window; older agents did not note them
    steps: int | None = None
    first_step: int | None = None

    def __post_init__(self) -> None:
        """ValueError where it was damaged: who lists it relies on it."""
        numbers = (self.bytes, self.kept_unix_ns, self.start_unix_ns, self.pid, self.rank)
        known = [n for n in (self.duration_ns, self.steps, self.first_step) if n is not None]
        if not all(type(number) is int for number in (*numbers, *known)) or not _HASH.fullmatch(self.sha256):
            raise ValueError("no note of a trace")


_NAMES = frozenset(field.name for field in fields(Note))


class Traces:
    """The folder of one agent."""

    def __init__(self, state: Path, most_bytes: int, most_age_s: float, count: Counters) -> None:
        self._folder = state / FOLDER
        self._counters = count
        self._kept: dict[str, Note] = {}
        self.limit(most_bytes, most_age_s)
        self._read()

    def limit(self, most_bytes: int, most_age_s: float) -> None:
        """Keep so much from now on; 0 bytes: nothing."""
        self.most_bytes, self._most_age_ns = most_bytes, int(most_age_s * 1e9)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size(self) -> int:
        """Bytes of all traces."""
        return sum(note.bytes for note in self._kept.values())

    def found(self, begin: str) -> Iterator[Note]:
        """Those whose window's uid begins so, the latest first."""
        yield from (note for note in reversed(self._kept.values()) if note.window.startswith(begin))

    def draft(self, uid: str) -> int:
        """A new, empty file for a trace; its descriptor.

        Raises:
            OSError: it cannot be made.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        return os.open(self._draft(uid), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def discard(self, uid: str) -> None:
        """Throw a draft away."""
        with suppress(OSError):
            self._draft(uid).unlink()

    def add(self, note: Note) -> None:
        """A draft is whole: keep it, and let the oldest go.

        Raises:
            OSError: it cannot be kept; the draft is gone.
        """
        draft = self._folder / f"{note.window}.note"
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:  # noqa: PTH123
                json.dump(asdict(note), file)
            self._draft(note.window).rename(self.path(note.window))
            draft.rename(self._note(note.window))  # last: what has a note is whole
        except OSError:
            self.discard(note.window)
            self.remove(note.window)
            with suppress(OSError):
                draft.unlink()
            raise
        self._kept[note.window] = note
        self._counters.traces["kept"] += 1
        self.tidy()

    def tidy(self) -> None:
        """Drop what is too old or too much; counted."""
        oldest = time.time_ns() - self._most_age_ns
        for uid, note in list(self._kept.items()):
            reason = AGE if note.kept_unix_ns < oldest else BYTES if self.size > self.most_bytes else ""
            if not reason:
                break
            self.remove(uid)
            self._counters.traces[reason] += 1

    def read(self, uid: str, offset: int, most: int) -> bytes:
        """A part of a trace.

        Raises:
            OSError: it is not there any more.
        """
        if uid not in self._kept:
            raise FileNotFoundError(uid)
        fd = os.open(self.path(uid), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return os.pread(fd, most, offset)
        finally:
            os.close(fd)

    def path(self, uid: str) -> Path:
        """Where a trace lies."""
        return self._folder / f"{uid}.gz"

    def _draft(self, uid: str) -> Path:
        return self._folder / f"{uid}.part"

    def _note(self, uid: str) -> Path:
        return self._folder / f"{uid}.json"

    def remove(self, uid: str) -> None:
        """Forget a trace; nothing is counted."""
        self._kept.pop(uid, None)
        for path in (self._note(uid), self.path(uid)):  # the note first: what has one is whole
            with suppress(OSError):
                path.unlink()

    def _read(self) -> None:
        """What lies there from before; what is not whole goes."""
        if not self._folder.is_dir():
            return
        notes = [note for path in self._folder.glob("*.json") if (note := self._noted(path)) is not None]
        self._kept = {note.window: note for note in sorted(notes, key=lambda note: note.kept_unix_ns)}
        for path in self._folder.iterdir():
            if path.stem not in self._kept or path.suffix not in {".gz", ".json"}:
                with suppress(OSError):
                    path.unlink()
        self.tidy()

    def _noted(self, path: Path) -> Note | None:
        try:
            found: dict[str, Any] = json.loads(path.read_text())
            note = Note(**{name: value for name, value in found.items() if name in _NAMES})  # a newer agent notes more
            whole = _UID.fullmatch(note.window) and note.window == path.stem
            return note if whole and self.path(note.window).stat().st_size == note.bytes else None
        except (OSError, ValueError, TypeError, AttributeError):
            return None
