"""Signatures by id. An id is the hash of what a signature says, so what was looked up once is remembered."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Collection
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, select

from roofwatch.model.kinds import Kind
from roofwatch.model.record import Phase, Signature
from roofwatch.store.queries.scope import IN_LIST
from roofwatch.store.schema import signatures, texts

MOST = 20_000  # signatures remembered: about 20 MB
# Columns of a signature that are fields of the record as they are.
PLAIN = ("shapes", "dtypes", "arguments", "formula", "precision", "unit", "flops", "bytes", "flops_max")


class _Known:
    """The signatures that were asked for last; may be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[int, Signature] = OrderedDict()

    def among(self, wanted: Collection[int]) -> dict[int, Signature]:
        """Those that are known."""
        with self._lock:
            found = {i: one for i in wanted if (one := self._found.get(i)) is not None}
            deque(map(self._found.move_to_end, found), maxlen=0)
        return found

    def add(self, more: dict[int, Signature]) -> None:
        """Remember more, and forget what was not asked for longest."""
        with self._lock:
            self._found.update(more)
            while len(self._found) > MOST:
                self._found.popitem(last=False)


_lock = threading.Lock()
_known: WeakKeyDictionary[Engine, _Known] = WeakKeyDictionary()


def described(connection: Connection, wanted: Collection[int]) -> dict[int, Signature]:
    """Signatures by id."""
    with _lock:
        known = _known.setdefault(connection.engine, _Known())
    found = known.among(wanted)
    if len(found) < len(wanted):
        more = _looked_up(connection, [i for i in wanted if i not in found])
        known.add(more)
        found |= more
    return found


def _looked_up(connection: Connection, wanted: list[int]) -> dict[int, Signature]:
    kernel, op, module = texts.alias("kernel"), texts.alias("op"), texts.alias("module")
    s = signatures.c
    query = (
        select(s.id, kernel.c.value, op.c.value, module.c.value, s.kind, s.phase, *(s[name] for name in PLAIN))
        .join(kernel, kernel.c.id == s.kernel_id)
        .outerjoin(op, op.c.id == s.op_id)
        .outerjoin(module, module.c.id == s.module_id)
    )
    found = {}
    for low in range(0, len(wanted), IN_LIST):
        some = query.where(s.id.in_(wanted[low : low + IN_LIST]))
        for identity, name, op_name, module_name, kind, phase, *rest in connection.execute(some):
            plain = dict(zip(PLAIN, rest, strict=True))
            found[identity] = Signature(name, Kind(kind), op_name, Phase(phase), module_name, **plain)
    return found
