"""Where an answer comes from: a store on the wire, or a database opened here. Both give the same object."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import click
from click.core import ParameterSource

from roofwatch.cli.render.text import cut_middle
from roofwatch.model.errors import UsageError
from roofwatch.store.config import DEFAULT_ADDRESS
from roofwatch.store.filter import Asked, Filter

DEADLINE_S = 30
LOOKED_AT = 1000  # processes or nodes, for the names that there are
NAMED = 5  # of them
LONGEST = 120  # columns of each

Answer = dict[str, Any]


def ask(
    query: str,
    given: Filter,
    limit: int,
    *,
    store: str | None,
    db: str | None,
    other: Filter | None = None,
    options: Mapping[str, Any] | None = None,
) -> Answer:
    """The answer to a query; ``other`` is the second side of what compares two, ``options`` are the query's own.

    Raises:
        UnreachableError: no store or database answers.
        UsageError: both were named on the command line, or an address is none.
        RoofwatchError: the store or the database could not answer.
    """
    asked = Asked(given, limit, other, options or {})
    if uses_database(store, db):
        return _from_database(str(db), query, asked)
    return _from_store(store or DEFAULT_ADDRESS, query, asked)


def nothing(given: Filter, *, store: str | None, db: str | None) -> str:
    """Why nothing matches, in a sentence: what was named is not there, and what is; else what to try."""
    for query, key, wanted in (
        ("processes", "model", given.model), ("nodes", "node", given.node), ("processes", "job", given.job),
    ):  # fmt: skip
        if not wanted:
            continue
        rows = ask(query, Filter(), LOOKED_AT, store=store, db=db)["rows"]
        there = list(dict.fromkeys(row[key] for row in rows if row[key]))
        if there and wanted not in there:
            near = get_close_matches(wanted, there, NAMED)
            named = [*near, *(name for name in there if name not in near)]
            more = f" and more ('{next_command(query, '--since', 'all')}')" if len(named) > NAMED else ""
            listed = ", ".join(cut_middle(name, LONGEST) for name in named[:NAMED])
            return f"no {key} '{wanted}' here: there is {listed}{more}."
    return (
        f"nothing matches: widen the time with --since all, or see what there is with '{next_command('nodes')}' and "
        f"'{next_command('processes', '--since', 'all')}'."
    )


def next_command(*words: str) -> str:
    """A next command, of the store or the database that this one was given."""
    from roofwatch.cli import showing  # noqa: PLC0415  # which renders tables

    return shlex.join(["roofwatch", *words, *showing.typed_source()[0]])


def filter_of(given: dict[str, Any]) -> Filter:
    """Take the filter's options out of a command's keyword arguments.

    Raises:
        click.UsageError: the time range is empty.
    """
    since, until = given.pop("since"), given.pop("until")
    if since and until and since >= until:
        raise click.UsageError("--since is not before --until: nothing can lie between them.")
    words = {name: given.pop(name) or None for name in ("node", "process", "model", "device", "vendor", "job")}
    return Filter(since or None, until or None, **words, labels=dict(given.pop("labels")))


def uses_database(store: str | None, db: str | None) -> bool:
    """Whether the database is meant: what is typed wins over the environment; of the environment's two, the database.

    Raises:
        UsageError: both are typed.
    """
    ctx = click.get_current_context(silent=True)
    if not store or not db or ctx is None:
        return bool(db)
    typed = {name for name in ("store", "db") if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if typed == {"store", "db"}:
        raise UsageError("--store and --db exclude each other: name one of them.")
    return typed != {"store"}


def _from_database(url: str, query: str, asked: Asked) -> Answer:
    from roofwatch.store import database  # noqa: PLC0415  # SQLAlchemy takes 0.3 s
    from roofwatch.store.queries import Queries  # noqa: PLC0415

    opened = database.open(url, migrate=False)
    try:
        return Queries(opened).run(query, asked.scope, asked.limit, asked.other, asked.options)
    finally:
        opened.close()


def _from_store(address: str, query: str, asked: Asked) -> Answer:
    from roofwatch.cli import wire  # noqa: PLC0415  # grpc takes 0.08 s
    from roofwatch.proto.v1 import roofwatch_pb2 as pb  # noqa: PLC0415

    request = pb.QueryRequest(
        query=query,
        filter=asked.scope.message(),
        limit=asked.limit,
        other=None if asked.other is None else asked.other.message(),
        options=json.dumps(asked.options) if asked.options else "",
    )
    with wire.channel(address) as channel:
        response = wire.answer(channel, request, DEADLINE_S)
    answer: Answer = json.loads(response.answer)
    return answer
