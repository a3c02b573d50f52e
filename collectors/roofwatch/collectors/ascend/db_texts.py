"""Ids of texts in a database → what the texts say. Only those that are asked for are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.ascend import values
from roofwatch.collectors.ascend.common import What
from roofwatch.collectors.ascend.db_file import LONGEST_TEXT, Database

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_AT_ONCE = 5000  # ids in one query
MAX_TEXT_BYTES = 96 << 20  # of all texts
_ABSENT = 4_294_967_295  # instead of an id
_HALF = 32  # bits of an id
LONGEST_NAME = 4096  # characters
NO_NAME = "(no name)"
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xFF51AFD7ED558CCD,
                 0xA24BAED4963EE407], dtype=np.uint64)  # fmt: skip
# What the device tells, where the host does not tell which cores a kernel was for. A plain AI core may be a mixed one.
_RAW_CORES = {"KERNEL_AIVEC": "AI_VECTOR_CORE", "KERNEL_AICPU": "AI_CPU", "KERNEL_MIX_AIC": "MIX_AIC",
              "KERNEL_MIX_AIV": "MIX_AIV", "MIX_AIC": "MIX_AIC", "MIX_AIV": "MIX_AIV"}  # fmt: skip


class Texts(dict[int, str]):
    """Id → text, of those that were asked for; without what stands for nothing."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.overflown = 0
        self._database = database
        self._asked: set[int] = set()
        self._bytes = 0

    def read(self, ids: Iterable[int]) -> None:
        """Reads the texts of ids."""
        wanted = sorted({one for one in ids if 0 <= one < _ABSENT} - self._asked)
        self._asked.update(wanted)
        if not self._database.has("STRING_IDS", "id", "value"):
            return
        for at in range(0, len(wanted), _AT_ONCE):
            part = wanted[at : at + _AT_ONCE]
            marks = ",".join("?" * len(part))
            sql = f"select id, substr(value,1,{LONGEST_TEXT:d}) from STRING_IDS where id in ({marks})"  # noqa: S608 - marks
            for one, text in self._database.values(sql, _AT_ONCE, part):
                self._keep(one, text)

    def _keep(self, one: object, text: object) -> None:
        if not isinstance(one, int) or not isinstance(text, str):
            return
        self._bytes += len(text) + 128
        if self._bytes > MAX_TEXT_BYTES:
            self.overflown += 1
            return
        self[one] = text

    def name(self, one: int) -> str:
        """The text of an id, cut to the longest name; "" where there is none."""
        return self.get(one, "")[:LONGEST_NAME]

    def ids_like(self, pattern: str, limit: int) -> list[int]:
        """The ids of texts that begin with a pattern (of letters, dots and colons)."""
        if not self._database.has("STRING_IDS", "id", "value"):
            return []
        sql = f"select id from STRING_IDS where substr(value,1,{len(pattern):d})='{pattern}'"  # noqa: S608 - our own
        return [one for (one,) in self._database.values(sql, limit) if isinstance(one, int)]


class Kinds:
    """Rows of ten or twelve ids, two packed in each of their numbers → one small id for each different row."""

    def __init__(self) -> None:
        self._ids: dict[tuple[int, ...], int] = {}

    def of(self, packed: Ints) -> NDArray[np.int32]:
        """The small ids of a block of rows [row, 5 or 6]."""
        mixed = (packed.astype(np.uint64) * _MIX[: packed.shape[1]]).sum(axis=1, dtype=np.uint64)
        _, first, which = np.unique(mixed, return_index=True, return_inverse=True)
        if not (packed[first][which] == packed).all():  # two that mix to the same
            _, first, which = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        ids = self._ids
        small = [ids.setdefault(key, len(ids)) for key in map(tuple, packed[first].tolist())]
        found: NDArray[np.int32] = np.array(small, dtype=np.int32)[which.reshape(-1)]
        return found

    def whats(self, texts: Texts) -> tuple[list[What], NDArray[np.int32]]:
        """What the rows are: each different one once, and for each small id which it is."""
        keys = [_unpacked(key) for key in self._ids]
        texts.read({one for key in keys for one in key})
        known: dict[What, int] = {}
        place = [known.setdefault(_what(key, texts), len(known)) for key in keys]
        return list(known), np.array(place, dtype=np.int32)


def packed(left: str, right: str) -> str:
    """SQL for two ids, of which a column's name or a number is given, in one number."""
    least, most = (
        f"case when {one} between 0 and {_ABSENT - 1} then {one} else {_ABSENT} end" for one in (left, right)
    )
    return f"(({least})<<{_HALF})|({most})"


def _unpacked(key: Sequence[int]) -> tuple[int, ...]:
    low = (1 << _HALF) - 1
    return tuple(half for both in key for half in ((both >> _HALF) & low, both & low))


def _what(key: Sequence[int], texts: Texts) -> What:
    name, op_type, core, formats, dtypes, shapes, out_formats, out_dtypes, out_shapes, raw, *more = (
        texts.get(one, "") for one in key
    )
    place = core if values.word(core) else _RAW_CORES.get(raw, "")
    kind = values.kernel_type(op_type[:LONGEST_NAME]) or ""
    inputs, outs = (shapes, dtypes, formats), (out_shapes, out_dtypes, out_formats)
    hf32 = more[0] if more else ""
    found = values.what_of(name[:LONGEST_NAME], kind, place, inputs, outs, hf32=hf32)
    return found if found.kernel else found._replace(kernel=NO_NAME)
