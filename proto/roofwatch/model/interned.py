"""One object for equal values: where it is a key it is found by what it is, and no long value is hashed again."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from weakref import WeakValueDictionary


class Interned:
    """Stands for a value; two are the same where their values are, as long as anybody has them."""

    __slots__ = ("__weakref__",)


_lock = threading.Lock()
_all: WeakValueDictionary[Hashable, Interned] = WeakValueDictionary()


def interned(value: Hashable) -> Interned:
    """What stands for a value; threads may ask at once."""
    with _lock:
        return _all.setdefault(value, Interned())
