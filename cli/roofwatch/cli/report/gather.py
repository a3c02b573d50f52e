"""What a report needs beside its own answer: padding where jobs told lengths, and the two sides that were said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from roofwatch.cli import asking
from roofwatch.cli.report.asked import Asked
from roofwatch.cli.sides import empty_side, one_sided, two_sides
from roofwatch.model.errors import IncompleteError
from roofwatch.model.regression import Limits
from roofwatch.store.filter import Filter

ROWS = 30  # of a comparison, and of regressions
OTHERS = {"left": "right", "right": "left", "before": "after", "after": "before"}


@dataclass(frozen=True, slots=True)
class Where:
    """The store or the database that is asked."""

    store: str | None
    db: str | None

    def ask(
        self,
        query: str,
        given: Filter,
        limit: int,
        other: Filter | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> asking.Answer:
        """The answer; raises as ``asking.ask``."""
        return asking.ask(query, given, limit, store=self.store, db=self.db, other=other, options=options)


def sides(words: Mapping[str, Sequence[str]], shared: Filter, where: Where) -> dict[str, Filter]:
    """The sides that were said: left, right, before, after.

    Raises:
        click.UsageError: one side of two is missing, says nothing that could be meant, or the same as the other.
    """
    for name, other in OTHERS.items():
        if words[name] and not words[other]:
            raise click.UsageError(one_sided(f"--{other}", shared, store=where.store, db=where.db))
    found: dict[str, Filter] = {}
    for pair in (("left", "right"), ("before", "after")):
        if words[pair[0]]:
            options = (f"--{pair[0]}", f"--{pair[1]}")
            found |= zip(pair, two_sides(options, (words[pair[0]], words[pair[1]]), shared), strict=True)
    return found


def asked(
    answer: Mapping[str, Any],
    title: Sequence[str],
    shared: Filter,
    said: tuple[Mapping[str, Sequence[str]], Mapping[str, Filter]],
    where: Where,
) -> Asked:
    """The other answers that go into the page of a report's ``answer``; ``said`` are the sides in words and as filters.

    Raises:
        IncompleteError: a side that was said has no windows; says what there is.
    """
    words, chosen = said
    return Asked(
        padding=where.ask("padding", shared, 0) if answer["ledger"]["padding_batches"] else None,
        comparison=_compared(chosen, where) if "left" in chosen else None,
        regressions=_regressed(chosen, where) if "before" in chosen else None,
        shared=title,
        words=words,
    )


def notes(answer: Mapping[str, Any]) -> list[str]:
    """What is to be known of what a page adds up: devices that are not alike."""
    models = sorted({device["model"] or "unnamed device" for device in answer["devices"]})
    if len(models) < 2:
        return []
    named = ", ".join(models[:4]) + (f" and {len(models) - 4} more" if len(models) > 4 else "")
    told = f"{len(models)} device models are in this, {named}: shares, MFU and the verdict are of all of them together."
    return [f"{told} --device takes one."]


def _compared(chosen: Mapping[str, Filter], where: Where) -> asking.Answer:
    options = {"per": None, "normalise": False}
    answer = where.ask("compare", chosen["left"], ROWS, chosen["right"], options)
    if answer["problem"] is not None:
        raise IncompleteError(answer["problem"])
    if answer["empty"]:
        raise _empty(answer["empty"][0], chosen, where)
    if answer["summary"] is None:
        raise IncompleteError("--left and --right hold no time that could be compared.")
    return answer


def _regressed(chosen: Mapping[str, Filter], where: Where) -> asking.Answer:
    limits = Limits()
    options = {"tolerance": limits.tolerance, "find": limits.find, "least_share": limits.least_share}
    answer = where.ask("regressions", chosen["before"], ROWS, chosen["after"], options)
    for name in ("before", "after"):
        if not answer["sides"][name]["windows"]:
            raise _empty(name, chosen, where)
    if not answer["devices"]:
        raise IncompleteError("--before and --after share no device model, or hold no kernels: nothing to compare.")
    return answer


def _empty(name: str, chosen: Mapping[str, Filter], where: Where) -> IncompleteError:
    return IncompleteError(empty_side(f"--{name}", chosen[name], store=where.store, db=where.db))
