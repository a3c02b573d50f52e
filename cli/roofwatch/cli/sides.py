"""The two sides of ``compare`` and ``regressions``: ``--left vendor=nvidia``, ``--before image=v1``, as filters.

A side is any number of texts ``k=v`` that all have to hold. ``k`` is a selector: ``vendor, device, model, node,
process, job, since, until``, as the options of the same names. Any other ``k`` is a label of a process or its node, and
so is ``label.K=v`` (and ``label=K=v``, as one types ``--label K=v``) for a label that is named like a selector.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import click

from roofwatch.cli.asking import LONGEST, LOOKED_AT, NAMED, ask, next_command, nothing
from roofwatch.cli.options import NAMEABLE_TEXT, VENDORS, moment
from roofwatch.cli.render.text import cut_middle
from roofwatch.store.filter import Filter

TIMES = {"since": "since_unix_ns", "until": "until_unix_ns"}
SELECTORS = ("vendor", "device", "model", "node", "process", "job", *TIMES)
KNOWN = f"a side is chosen by {', '.join(SELECTORS)}, or any label k=v (label.K=v where K is one of these words)"


def side(texts: Sequence[str], base: Filter) -> Filter:
    """What one side means: the shared filter, and what the side's own texts say.

    The side's own times replace the shared ones; anything else that is said twice must be said alike.

    Raises:
        click.UsageError: a text is no ``k=v``, its value cannot be meant, or it contradicts another or the shared
            filter; the sentence names what there is.
    """
    now_ns = time.time_ns()
    said: dict[str, Any] = {}
    labels = dict(base.labels)
    for text in texts:
        key, value = _parted(text)
        if key in SELECTORS:
            name, found = TIMES.get(key, key), _value(key, value, text, now_ns)
            _agree(said.setdefault(name, found), found, text)
            if key not in TIMES:
                _agree(getattr(base, name) or found, found, text)
        else:
            key = key.removeprefix("label.")
            _agree(labels.setdefault(key, value), value, text)
    result = replace(base, labels=labels, **said)
    if result.since_unix_ns and result.until_unix_ns and result.since_unix_ns >= result.until_unix_ns:
        raise click.UsageError(f"{' '.join(texts)!r}: its since is not before its until: nothing can lie between them.")
    return result


def two_sides(
    options: tuple[str, str], texts: tuple[Sequence[str], Sequence[str]], base: Filter
) -> tuple[Filter, Filter]:
    """What both sides mean.

    Raises:
        click.UsageError: as ``side``, or both mean the same.
    """
    one, other = (side(own, base) for own in texts)
    if one == other:
        raise click.UsageError(f"{options[0]} and {options[1]} mean the same windows: say what tells them apart.")
    return one, other


def _parted(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if key == "label" and "=" in value:
        key, _, value = value.partition("=")
        key = f"label.{key}"
    if not separator or not key or not value or key == "label.":
        raise click.UsageError(f"{text!r} chooses nothing: write k=v; {KNOWN}.")
    return key, value


def _value(key: str, value: str, text: str, now_ns: int) -> Any:
    if key == "vendor" and value not in VENDORS:
        raise click.UsageError(f"{text!r}: there is no such vendor, only {', '.join(VENDORS)}.")
    if key not in TIMES:
        return value
    try:
        return moment(value, now_ns) or None
    except OverflowError:
        raise click.UsageError(f"{text!r} is out of range: times {NAMEABLE_TEXT} can be named.") from None
    except ValueError:
        raise click.UsageError(
            f"{text!r} is neither a duration like 30m or 2d nor a time like 2026-01-31T12:00."
        ) from None


def _agree(one: Any, other: Any, text: str) -> None:
    if one != other:
        raise click.UsageError(
            f"{text!r} contradicts {one!r}, which was said of the same thing: leave one of them out."
        )


def empty_side(option: str, given: Filter, *, store: str | None, db: str | None) -> str:
    """Why a side has no windows, in a sentence that begins with its option and names what there is instead."""
    if given.since_unix_ns or given.until_unix_ns:
        ever = ask("windows", replace(given, since_unix_ns=None, until_unix_ns=None), 1, store=store, db=db)["rows"]
        if ever:
            last = f"{datetime.fromtimestamp(ever[0]['start_unix_ns'] / 1e9).astimezone():%Y-%m-%d %H:%M}"
            return (
                f"{option}: no window of the time asked for matches, the latest one is of {last}: widen the time with "
                "--since all."
            )
    rows = ask("processes", Filter(model=given.model), LOOKED_AT, store=store, db=db)["rows"]
    there = sorted({pair for row in rows for pair in row["labels"].items()})
    for key, value in sorted(given.labels.items()):
        if rows and (key, value) not in there:
            values = [f"{k}={v}" for k, v in there if k == key] or [f"{k}={v}" for k, v in there]
            named = f"there is {_listed(values)}" if values else "no process has a label"
            return f"{option}: no window has the label {key}={value}: {named}."
    for wanted, key, said in (
        (given.vendor, "device", f"vendor={given.vendor}"),
        (given.device, "device", f"device={given.device}"),
        (given.job, "job", f"job={given.job}"),
    ):
        names = sorted(_devices(rows) if key == "device" else {row[key] for row in rows if row[key]})
        if wanted and rows and (given.vendor or not any(wanted.lower() in name.lower() for name in names)):
            named = f"there is {_listed(names)}" if names else f"no process has a {key}"
            return f"{option}: no window matches {said}: {named}."
    return f"{option}: {nothing(given, store=store, db=db)}"


def one_sided(option: str, shared: Filter, *, store: str | None, db: str | None) -> str:
    """That a side was not said, in a sentence that names what it could be."""
    rows = ask("processes", Filter(model=shared.model), LOOKED_AT, store=store, db=db)["rows"]
    devices = [f"device={name}" for name in sorted(_devices(rows))]
    others = [
        *(f"{k}={v}" for k, v in sorted({pair for row in rows for pair in row["labels"].items()})),
        *(f"node={name}" for name in sorted({row["node"] for row in rows if row["node"]})),
    ]
    there = [*devices[:2], *others] if len(devices) > 1 else others
    seen = f"see what there is with '{next_command('processes', '--since', 'all')}'"
    named = f"there is {_listed(there)}" if there else seen
    return f"there are two sides to say, and {option} is missing: {named}."


def _devices(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """The device models of processes; one may have several, with commas between."""
    return {name for row in rows for name in (row["device"] or "").split(", ") if name}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(cut_middle(name, LONGEST) for name in names[:NAMED]) + (" and more" if len(names) > NAMED else "")
