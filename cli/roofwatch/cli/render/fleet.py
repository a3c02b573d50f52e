"""What a replay and a bench found, as a table of few lines."""

from __future__ import annotations

import json
from dataclasses import asdict

from roofwatch.cli.fleet.bench import Benched
from roofwatch.cli.fleet.replay import RANKS, Replayed
from roofwatch.cli.fleet.templates import LABEL
from roofwatch.cli.render import text
from roofwatch.cli.render.table import DEFAULT_COLUMNS, Column, table

SHOWN = 5  # problems


def replayed(result: Replayed) -> list[str]:
    """Lines for people."""
    found, plan = result.as_json(), result.plan
    acked, sent = found["windows_acknowledged"], found["windows_sent"]
    rows = [
        ("windows acknowledged", f"{acked:,} of {sent:,}, {found['windows_per_minute']:,.0f} a minute"),
        ("ack, median and p99", f"{_seconds(found['ack_p50_s'])} · {_seconds(found['ack_p99_s'])}"),
        (
            "visible to top, median and p95",
            f"{_seconds(found['freshness_p50_s'])} · {_seconds(found['freshness_p95_s'])}",
        ),
    ]
    if result.memory_bytes and result.store_cpu_s is not None:
        begin, end, most = (text.size(n) for n in result.memory_bytes)
        each = result.store_cpu_s / max(1, acked) * 1e9
        rows += [
            ("store: memory", f"{begin} at the start, {end} at the end, {most} at most"),
            ("store: processor", f"{_share(result.store_cpu_s, result)} of a core, {text.duration(each)} a window"),
        ]
    rows += [
        ("senders: processor", f"{_share(result.own_cpu_s, result)} of a core"),
        ("sent again, reconnections", f"{found['resent_windows']:,} · {found['reconnections']:,}"),
        ("stored exactly once", "yes" if not result.wrong else "NO"),
    ]
    head = (
        f"{plan.nodes:,} agents × {RANKS} devices · {plan.rate:g}x · {plan.seconds:g} s · seed {plan.seed} · "
        f"label {LABEL}={plan.run}"
    )
    width = max(len(name) for name, _ in rows)
    problems = [f"  {problem}" for problem in result.wrong[:SHOWN]]
    if len(result.wrong) > SHOWN:
        problems.append(f"  and {len(result.wrong) - SHOWN:,} more")
    return [head, "", *(f"{name:<{width}}  {value}" for name, value in rows), *problems]


def replayed_json(result: Replayed) -> str:
    """One object."""
    return json.dumps({"schema_version": 1, "replay": result.as_json()}, indent=2)


def benched(found: Benched) -> list[str]:
    """Lines for people: the store, SQLite alone, and the one as a share or a multiple of the other."""
    per_s = (found.rows / found.ingest_s, found.rows / found.raw_s)
    rows = [
        ("ingest, acknowledged", *(f"{rate:,.0f} rows/s" for rate in per_s), text.percent(found.share)),
        _times("top 20 of one node", found.node_s, found.raw_node_s),
        _times("top 20 of all nodes", found.all_s, found.raw_all_s),
        (
            "on disk",
            *(f"{size:.1f} B/row" for size in (found.row_bytes, found.raw_row_bytes)),
            f"{found.row_bytes / found.raw_row_bytes:.2f} ×",
        ),
        ("processor, known kernels", f"{found.cpu_s_per_row * 1e6:.2f} µs/row", text.UNKNOWN, text.UNKNOWN),
        ("processor, all kernels new", f"{found.first_cpu_s_per_row * 1e6:.2f} µs/row", text.UNKNOWN, text.UNKNOWN),
        ("ack, p99", _seconds(found.ack_p99_s), text.UNKNOWN, text.UNKNOWN),
        ("memory, at most", text.size(found.memory_bytes), text.UNKNOWN, text.UNKNOWN),
    ]
    columns = [Column(""), Column("store", right=True), Column("SQLite alone", right=True), Column("", right=True)]
    return [
        f"{found.rows:,} kernel rows over gRPC, and the same by multi-VALUES and GROUP BY",
        "",
        *table(columns, rows, DEFAULT_COLUMNS),
    ]


def _times(name: str, ours: float, theirs: float) -> tuple[str, str, str, str]:
    return name, _seconds(ours), _seconds(theirs), f"{ours / theirs:.1f} ×"


def benched_json(found: Benched) -> str:
    """One object, in base units."""
    rates = {"rows_per_s": found.rows / found.ingest_s, "raw_rows_per_s": found.rows / found.raw_s}
    return json.dumps({"schema_version": 1, "bench": {**asdict(found), **rates, "ingest_share": found.share}}, indent=2)


def _seconds(value: float | None) -> str:
    return text.duration(None if value is None else value * 1e9)


def _share(cpu_s: float, result: Replayed) -> str:
    return text.percent(cpu_s / result.took_s)
