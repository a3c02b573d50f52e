"""``records``: what an export holds adds up to what ``top`` says, under any filter."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from rollup_builders import processes, scope, window
from store_builders import segment_of

from roofwatch.model.records import KEYS, values
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.queries import Queries, records
from roofwatch.store.queries.plan import raw_only
from roofwatch.store.unpack import Unpacker

TOLD = ("kernel", "op", "phase", "module", "device", "flops")


def exported(queries: Queries, f: Filter) -> list[dict[str, Any]]:
    """All pages."""
    found, options = [], {}
    while True:
        page = json.loads(json.dumps(queries.run("records", f, options=options)))
        found += [dict(zip(KEYS, row, strict=True)) for row in values(page)]
        if page["next"] is None:
            return found
        options = {"after": page["next"], "upto": page["upto"]}


def test_records_add_up_to_top(db: Database, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of random windows, a few a page: calls, times and estimates of each row of ``top``, and no record twice."""
    monkeypatch.setattr(records, "PAGE_WINDOWS", 7)
    draw = random.Random(7)
    of = processes(draw)
    windows = [window(draw, f"{i}", draw.choice(of)) for i in range(40)]
    assert writer.submit(Unpacker().unpack(segment_of(windows, 1))).result(30).reason == ""
    queries, seen = Queries(db), 0
    for f in [Filter(), *(scope(draw) for _ in range(6))]:
        found = exported(queries, f)
        names = [(row["window"], row["uuid"], row["index"], row["shapes"], row["evidence"], *(row[key] for key in TOLD))
                 for row in found]  # fmt: skip
        assert len(set(names)) == len(names)
        sums: Counter[tuple[Any, ...]] = Counter()
        for row in found:
            for figure in ("calls", "total_ns", "est_ns"):
                sums[(figure, row["shapes"], *(row[key] for key in TOLD))] += row[figure]
            assert sum(row["histogram_counts"]) == row["calls"]
        with raw_only():
            top = queries.run("top", f)["rows"]
        expected = {
            (
                figure,
                row["shapes"] and json.dumps(row["shapes"], separators=(",", ":")),
                *(row[key] for key in TOLD),
            ): row[figure]
            for row in top
            for figure in ("calls", "total_ns", "est_ns")
        }
        assert sums == expected
        assert [row["start_unix_ns"] for row in found] == sorted(row["start_unix_ns"] for row in found)
        seen += len(found)
    assert seen > 150
