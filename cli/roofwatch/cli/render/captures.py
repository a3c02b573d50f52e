"""``capture`` and ``trace``: what became of each process, and which traces are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from roofwatch.cli.errors import DONE, FAILED, INCOMPLETE
from roofwatch.cli.render import text
from roofwatch.cli.render.listing import ago
from roofwatch.cli.render.table import Column, table

Row = Mapping[str, Any]

KEYS = (
    "rank", "node", "pid", "process", "job", "model", "user", "outcome", "reason", "detail", "window", "steps",
    "first_step", "duration_ns", "trace_kept", "trace_reason",
)  # fmt: skip
TRACE_KEYS = (
    "window", "kept_unix_ns", "start_unix_ns", "node", "process", "pid", "rank", "job", "model", "user", "format",
    "bytes", "sha256", "duration_ns", "steps", "first_step", "stored",
)  # fmt: skip
SHOWN = 8  # digits of a window's uid
SHOWN_RANKS = 4
COLUMNS = (
    Column("rank", right=True),
    Column("node", floor=8),
    Column("pid", right=True),
    Column("model", floor=6, drop=2),
    Column("outcome", floor=18),
    Column("from step", right=True),
    Column("steps", right=True),
    Column("length", right=True, drop=1),
    Column("window"),
    Column("trace", drop=1),
)
TRACES = (
    Column("window"),
    Column("kept", right=True),
    Column("node", floor=8),
    Column("pid", right=True),
    Column("rank", right=True),
    Column("model", floor=6, drop=4),
    Column("began", right=True, drop=3),
    Column("from step", right=True, drop=2),
    Column("steps", right=True),
    Column("length", right=True, drop=1),
    Column("size", right=True),
    Column("format", drop=5),
)
WHY = {
    "over_budget": "windows have cost this job as much as its hard stop allows ('roofwatch processes'): ask later",
    "own_profiler": "the job's own profiler is running",
    "graph_capture": "a graph was being captured",
    "busy": "another window was still being taken",
    "no_steps": "no optimizer step came in time",
    "exiting": "the process is ending",
    "idle": "it waited for work all the time, and a window of nothing is none: ask while it has requests",
    "model_load": "it was loading a model: ask when it has",
    "checkpoint": "it was writing a checkpoint: ask when it has",
    "clock_set": "its machine's clock was set meanwhile, so the window's times are wrong: ask again",
    "given_up": "the window could not be cut in time",
    "unsafe": "a window of this process could not be closed, so it takes none any more",
    "unsupported": "its torch gives no windows of such a process ('roofwatch doctor' in its environment says which)",
    "gone": "the process is gone",
    "agent_gone": "its agent went away",
    "no_answer": "neither window nor refusal came in time",
    "stopping": "its agent was stopped",
    "agent_busy": "its agent does not keep up with what it is asked",
    "too_many": "its agent waits for as many windows as it can",
    "too_old": "agent too old to be asked: upgrade it",
}


def report(answer: Row, room: int) -> str:
    """One line a process, then what the lines do not say."""
    if not answer["rows"]:
        return ""
    lines = table(COLUMNS, [_cells(row) for row in answer["rows"]], room)
    return "\n".join([*lines, *_closing(answer)]) + "\n"


def _cells(row: Row) -> list[str]:
    outcome = (row["outcome"] or "no_answer").replace("_", " ")
    if row["reason"]:
        outcome += f": {row['reason']}" + (f" ({row['detail']})" if row["detail"] else "")
    return [
        _rank(row), text.clean(row["node"]), str(row["pid"]), text.clean(row["model"] or text.UNKNOWN),
        text.clean(outcome), text.count(row["first_step"]), text.count(row["steps"]), text.duration(row["duration_ns"]),
        (row["window"] or text.UNKNOWN)[:SHOWN],
        {True: "kept", False: "not kept" if row["trace_reason"] else "no"}.get(row["trace_kept"], text.UNKNOWN),
    ]  # fmt: skip


def _rank(row: Row) -> str:
    return text.UNKNOWN if row["rank"] is None else str(row["rank"])


def _closing(answer: Row) -> list[str]:
    """The steps that the ranks met at, and what to do next."""
    taken = [row for row in answer["rows"] if row["outcome"] == "taken"]
    lines = []
    steps = Counter(row["first_step"] for row in taken if row["rank"] is not None and row["first_step"] is not None)
    if sum(steps.values()) > 1 and len({row["job"] for row in taken}) == 1:
        lines.append(
            f"all at step {next(iter(steps)):,}" if len(steps) == 1
            else "not all at the same step: " + ", ".join(f"{n} at {step:,}" for step, n in sorted(steps.items()))
        )  # fmt: skip
    if first := next((row for row in taken if row["trace_kept"]), None):
        lines.append(f"→ run: roofwatch trace get {first['window'][:SHOWN]} -o trace.json.gz")
    return ["", *lines] if lines else []


def notes(answer: Row) -> list[str]:
    """Sentences about what was not taken, and about who was not asked."""
    rows, coverage = answer["rows"], answer["coverage"]
    found = []
    for reason in dict.fromkeys(row["reason"] for row in rows if row["outcome"] not in {"taken", "asked"}):
        who = [row for row in rows if row["reason"] == reason and row["outcome"] != "taken"]
        found.append(f"{_who(who)}: {WHY.get(reason, text.clean(reason or 'no word came'))}.")
    for why in dict.fromkeys(row["trace_reason"] for row in rows if row["trace_reason"]):
        who = [row for row in rows if row["trace_reason"] == why]
        found += [f"{_who(who)}: trace not kept: {text.clean(why)}."]
    found += silent(coverage["silent"])
    missing, first = _missing(answer)
    if missing:
        which = f"rank{'' if missing == 1 else 's'} {', '.join(map(str, first))}"
        more = f" and {missing - len(first):,} more" if missing > len(first) else ""
        size = f" of {coverage['world_size']:,}" if coverage["world_size"] else ""
        found.append(
            f"{which}{more}{size}: registered with no agent of this store. Their agents may be down ('roofwatch "
            "doctor' on the node), or belong to another store on the same database."
        )
    return found


def not_stored(windows: int) -> str:
    """A sentence about windows that were taken and are still on their way."""
    they, have = ("it is", "has it") if windows == 1 else ("they are", "has them")
    return (
        f"{text.plural(windows, 'window')} not stored yet: {they} read and sent first; 'roofwatch windows' tells when "
        f"the store {have}."
    )


def _agents(many: int) -> str:
    return "only agent" if many == 1 else f"{many} agents"


def silent(agents: Sequence[Row]) -> list[str]:
    """Sentences about agents that did not answer."""
    words = {
        "too_old": "its agent is too old to be asked, upgrade it", "busy": "its agent does not keep up",
        "not_its_own": "its agent tells of traces of other nodes' windows, which are left out",
    }  # fmt: skip
    return [f"{text.clean(each['node'])}: {words.get(each['reason'], 'its agent does not answer')}." for each in agents]


def unsure(traces: Sequence[Row]) -> list[str]:
    """A sentence where the store did not say which windows it has."""
    told = "The store did not say which of these windows it has: that they are of these nodes is their agents' word."
    return [told] if any(row["stored"] is None for row in traces) else []


def _who(rows: Sequence[Row]) -> str:
    names = [f"rank {row['rank']}" if row["rank"] is not None else f"process {row['pid']}" for row in rows]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _missing(answer: Row) -> tuple[int, list[int]]:
    """Ranks that were meant and that nobody asked because no agent here has them: how many, and the first of them."""
    query, size = answer["query"], answer["coverage"]["world_size"]
    if query["node"] or query["process"]:
        return 0, []  # ranks elsewhere were not meant
    wanted: Collection[int] = range(int(size)) if query["all_ranks"] and size else frozenset(query["ranks"])
    have = {row["rank"] for row in answer["rows"] if row["rank"] in wanted}
    return len(wanted) - len(have), list(islice((rank for rank in _ascending(wanted) if rank not in have), SHOWN_RANKS))


def _ascending(ranks: Collection[int]) -> Iterable[int]:
    """Ascending; a job may claim to have two billion ranks, so a range stays one."""
    return ranks if isinstance(ranks, range) else sorted(ranks)


def code(answer: Row) -> int:
    """The exit code that an answer means."""
    if any(row["outcome"] != "taken" for row in answer["rows"]):
        return FAILED
    return INCOMPLETE if _missing(answer)[0] else DONE


def nothing(answer: Row) -> str:
    """Why there is nothing, in a sentence."""
    coverage, query = answer["coverage"], answer["query"]
    if not coverage.get("agents"):
        where = f" of node '{query['node']}'" if query["node"] else ""
        return f"no agent{where} is connected to this store: see 'roofwatch doctor' on a node."
    words = [f"{name} {query[name]}" for name in ("job", "process", "model", "node") if query[name]]
    words += [f"rank {rank}" for rank in query["ranks"]]
    told = f"no process of {', '.join(words)} is registered with the {_agents(coverage['agents'])} of this store"
    also = " ".join(silent(coverage["silent"]))
    return f"{told}: see 'roofwatch processes'. {also}".rstrip()


def asking(coverage: Row) -> str:
    """Whom a capture asks."""
    rows = coverage["rows"]
    nodes = len({row["node"] for row in rows})
    left = f", {coverage['passed_over']} more match" if coverage["passed_over"] else ""
    return f"asking {len(rows)} {'process' if len(rows) == 1 else 'processes'} on {text.plural(nodes, 'node')}{left}"


def progress(row: Row) -> str:
    """What has just become of one."""
    who = f"rank {row['rank']}" if row["rank"] is not None else f"process {row['pid']}"
    why = f": {row['reason']}" if row["reason"] else ""
    return text.clean(f"  {who} on {row['node']}: {(row['outcome'] or '').replace('_', ' ')}{why}")


def traces(answer: Row, room: int, now_ns: int) -> str:
    """One line a kept trace, the latest first."""
    cells = [
        [
            row["window"][:SHOWN], ago(row["kept_unix_ns"], now_ns), text.clean(row["node"]), str(row["pid"]),
            _rank(row), text.clean(row["model"] or text.UNKNOWN), ago(row["start_unix_ns"], now_ns),
            text.count(row["first_step"]), text.count(row["steps"]), text.duration(row["duration_ns"]),
            text.size(row["bytes"]), text.clean(row["format"]),
        ]
        for row in answer["rows"]
    ]  # fmt: skip
    return "\n".join(table(TRACES, cells, room)) + "\n" if cells else ""
