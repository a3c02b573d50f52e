"""What helper files of a capture tell: rank, world size, chip, and what collectives move among whom.

Everything in them is optional, of any type, and believed only where it is plausible.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from roofwatch.collectors.ascend.common import Message
from roofwatch.collectors.ascend.folder import open_inside
from roofwatch.collectors.ascend.text_profile import Facts
from roofwatch.collectors.ascend.values import collective_word
from roofwatch.collectors.kineto.events import DECODE_ERRORS
from roofwatch.collectors.kineto.messages import group_of, ranks_of

MAX_BYTES = 64 << 20  # of one helper; communication.json has a kilobyte a collective
MAX_MESSAGES = 100_000
MAX_RANKS = 1 << 31
_MAX_CORES, _MAX_MHZ = 1024, 100_000
_FOLDER = re.compile(r".*_(\d{1,9})_\d{17,20}_ascend_pt")  # {worker}_{pid}_{time}
_INFO = re.compile(r"profiler_info_(\d{1,9})\.json")
_PRIMES = (29, 131)


def facts_of(root: Path, helpers: Iterable[Path]) -> Facts:
    """All that the helpers of a capture tell."""
    rank = world_size = cores = clock = None
    groups: Mapping[str, Any] = {}
    calls: dict[str, str] = {}
    for path in helpers:
        document = _document(path)
        if path.name.startswith("profiler_info"):
            rank = _rank(path, document)
        elif path.name == "profiler_metadata.json":
            told = _part(document, "distributed_args")
            world_size = _count(told.get("world_size"), MAX_RANKS) or None
            groups = _part(document, "parallel_group_info")
        elif path.name == "communication.json":
            calls |= _groups_of_calls(document)
        elif path.name.startswith("info.json"):
            cores, clock = _chip(document, cores, clock)
    world_size = world_size or _world_size(groups)
    known = _known(groups)
    named = _FOLDER.fullmatch(root.name)
    return Facts(
        rank=rank, world_size=world_size, pid=int(named[1]) if named else None, cores=cores, clock_hz=clock,
        messages={
            call: Message(collective_word(call), *known.get(group, (group, None))) for call, group in calls.items()
        },
        groups=known,
    )  # fmt: skip


def hashed(group: str) -> str:
    """The text by which CANN's tables name a group: two polynomials of its name, 32 bits each, in one number.

    Found on real data: "group_name_5" of a capture's metadata is 5862276114690318097 in its tables.
    """
    halves = [0, 0]
    for char in group:
        for i, prime in enumerate(_PRIMES):
            halves[i] = (halves[i] * prime + ord(char)) & 0xFFFFFFFF
    return str(halves[0] << 32 | halves[1])


def _document(path: Path) -> Any:
    """The JSON of a file; None where it is too large, or none."""
    try:
        with open_inside(path) as file:
            text = file.read(MAX_BYTES + 1)
        return msgspec.json.decode(text) if len(text) <= MAX_BYTES else None
    except (OSError, *DECODE_ERRORS):
        return None


def _rank(path: Path, document: Any) -> int | None:
    """By the file's name, else by what is in it: a number once, a text since."""
    named = _INFO.fullmatch(path.name)
    told = document.get("rank_id") if isinstance(document, dict) else None
    return int(named[1]) if named else _count(told, MAX_RANKS)


def _chip(document: Any, cores: int | None, clock: float | None) -> tuple[int | None, float | None]:
    """Cube cores and their clock in Hz; what was found before where this does not tell."""
    devices = document.get("DeviceInfo") if isinstance(document, dict) else None
    if not isinstance(devices, list) or not devices or not isinstance(devices[0], dict):
        return cores, clock
    found = _count(devices[0].get("ai_core_num"), _MAX_CORES)
    told = str(devices[0].get("aic_frequency"))
    mhz = float(told) if re.fullmatch(r"\d{1,6}(?:\.\d{1,6})?", told) else 0.0
    return found or cores, mhz * 1e6 if 0 < mhz < _MAX_MHZ else clock


def _groups_of_calls(document: Any) -> dict[str, str]:
    """Call → group: ``hcom_allReduce__586_0_1@17522688603477080586`` in each step."""
    found: dict[str, str] = {}
    for step in document.values() if isinstance(document, dict) else ():
        for sort in ("p2p", "collective"):
            for key in _part(step, sort):
                call, at, group = key.rpartition("@")
                if at and len(found) < MAX_MESSAGES and len(key) < 512:
                    found[call] = group
    return found


def _known(groups: Mapping[str, Any]) -> dict[str, tuple[str, int | None]]:
    """A group by what tables call it → by what it is for and its ranks, and its size."""
    known: dict[str, tuple[str, int | None]] = {}
    for name, told in list(groups.items())[:MAX_MESSAGES]:
        ranks = ranks_of(told.get("global_ranks")) if isinstance(told, dict) else None
        label = told.get("group_name") if isinstance(told, dict) else None
        found = group_of(label if isinstance(label, str) and label else name, None, ranks, _size(told))
        known[hashed(name)] = known[name] = (found.identity or name, found.size)
    return known


def _size(told: Any) -> int | None:
    """The number of a group's ranks."""
    ranks = told.get("global_ranks") if isinstance(told, dict) else None
    return len(ranks) if isinstance(ranks, list) and ranks else None


def _world_size(groups: Mapping[str, Any]) -> int | None:
    """The size of the group of all ranks."""
    for told in groups.values():
        if isinstance(told, dict) and told.get("group_name") == "default_group":
            return _size(told)
    return None


def _part(document: Any, key: str) -> Mapping[str, Any]:
    found = document.get(key) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def _count(value: Any, most: int) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < most:
        return None
    return value
