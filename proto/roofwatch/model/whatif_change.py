"""A change as a user names it: bits, factors, a device of the data file; for the command line and a store alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from roofwatch.model.devices import Entry, entries
from roofwatch.model.errors import UsageError
from roofwatch.model.whatif import BITS, Change

MOST = 1e6  # a factor beyond that, or its inverse, is a typing error
_FACTOR = re.compile(r"(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})\s*[x×]?", re.IGNORECASE)
OPTIONS = ("weights", "kv", "peak_compute", "bandwidth", "to_device")


def factor(text: str) -> float:
    """A factor like "2x", "1.4x" or "0.5".

    Raises:
        UsageError: it is none.
    """
    found = _FACTOR.fullmatch(text.strip())
    value = float(found[1]) if found else 0.0
    if not 1 / MOST <= value <= MOST:
        raise UsageError(f"{text!r} is no factor: write it as 2x or 1.4x.")
    return value


def change_of(options: Mapping[str, Any]) -> Change:
    """The change that options ask for.

    Raises:
        UsageError: one of them says nothing that could be meant, or there is none.
    """
    weights, kv = (_bits(options.get(name), name) for name in ("weights", "kv"))
    compute, bandwidth = (_number(options.get(name), name) for name in ("peak_compute", "bandwidth"))
    name = options.get("to_device")
    if name is not None:
        entry = device(str(name))
        return Change(weights, kv, compute, bandwidth, entry.model, entry.peaks)
    found = Change(weights, kv, compute, bandwidth)
    if found == Change():
        raise UsageError("nothing is to change: give --weights, --kv, --peak-compute, --bandwidth or --device.")
    return found


def _bits(value: Any, name: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or value not in BITS:
        raise UsageError(f"{name} of {value!r} are not known: {', '.join(BITS)} are.")
    return value


def _number(value: Any, name: str) -> float:
    if value is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 / MOST <= value <= MOST:
        raise UsageError(f"{name} {value!r} is no factor: write it as 2x or 1.4x.")
    return float(value)


def device(name: str) -> Entry:
    """The device of the data file that a name means: by what drivers call it, by its own name, or by a part of that.

    Raises:
        UsageError: none or several; names those that are near.
    """
    known = entries()
    clean = " ".join(name.lower().split())
    exact = [e for e in known if clean == e.model.lower() or any(p.fullmatch(clean) for p in e.names)]
    part = [e for e in known if _compact(clean) in _compact(e.model.lower())]
    found = exact or part
    if len(found) == 1 or (found and all(e.peaks == found[0].peaks for e in found)):
        return found[0]
    if found:
        raise UsageError(f"'{name}' may be {_listed([e.model for e in found])}: say which.")
    raise UsageError(f"'{name}' is no device whose peaks are known{_near(clean, known)}")


def _compact(text: str) -> str:
    return re.sub(r"[\s_-]", "", text)


def _near(clean: str, known: tuple[Entry, ...]) -> str:
    names = {e.model.lower(): e.model for e in known}
    words = {word: e.model for e in known for word in e.model.lower().split() if any(c.isdigit() for c in word)}
    near = get_close_matches(clean, [*names, *words], n=3, cutoff=0.6)
    models = list(dict.fromkeys(names.get(text) or words[text] for text in near))
    see = "'roofwatch devices list' shows them."
    return f": did you mean {_listed(models)}? {see}" if models else f": {see}"


def _listed(names: list[str]) -> str:
    shown = names[:6]
    more = f" or {len(names) - 6} more" if len(names) > 6 else ""
    return (", ".join(shown[:-1]) + " or " + shown[-1] if len(shown) > 1 and not more else ", ".join(shown)) + more
