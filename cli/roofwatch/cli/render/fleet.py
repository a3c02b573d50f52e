"""What a replay and a bench found, as a table of few lines."""

from __future__ import annotations

import json

from roofwatch.cli.fleet.replay import RANKS, Replayed
from roofwatch.cli.fleet.templates import LABEL
from roofwatch.cli.render import text

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


def _seconds(value: float | None) -> str:
    return text.duration(None if value is None else value * 1e9)


def _share(cpu_s: float, result: Replayed) -> str:
    return text.percent(cpu_s / result.took_s)
