"""``ranks``: the ranks of one job side by side on the same steps; who is late, since when and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from roofwatch.model import ranks_report as report
from roofwatch.model.peers import Communication
from roofwatch.model.peers_clock import by_clock
from roofwatch.model.ranks_laid import Laid, Moment, RankWindow, lay
from roofwatch.model.ranks_why import COMPUTE, KernelTime, by_class, excess, leading
from roofwatch.model.record import Bound
from roofwatch.store.filter import Filter
from roofwatch.store.queries import kernels
from roofwatch.store.queries.peers import collectives_of
from roofwatch.store.queries.ranks_windows import Job, add_causes, job_of, windows_of_job
from roofwatch.store.schema import BOUNDS, signatures, texts

# Looked at for who waited for whom: of a run the latest moments, of a whole day some spread over it. A moment of
# 8 ranks with 32 collectives each is 256; what is looked at takes a fifth of a second at most.
MOMENTS, MAX_COLLECTIVES = 32, 40_000
KERNEL_MOMENTS, PEERS_MOST = 25, 7  # tell which kernels are slower: the latest ones, of the ranks next to the late one
_NO_KERNELS = frozenset(code for code, bound in BOUNDS.items() if bound in {Bound.COPY, Bound.COMMUNICATION})


def ranks(connection: Connection, f: Filter, limit: int) -> dict[str, Any]:
    """The answer. The filter chooses the job; of it all ranks are laid side by side, in the filter's time.

    Raises:
        UsageError: the filter means several jobs.
    """
    job = job_of(connection, f)
    if job is None:
        return {"job": None, "basis": None, "straggler": None, "late": [], "rows": []}
    found, left_out = windows_of_job(connection, f, job)
    laid = lay(found)
    judged = report.judge(laid)
    exchanged = _look(connection, laid, judged, job)
    if not judged.late:
        judged = _by_network(connection, laid, judged, job)
    add_causes(connection, (w for of in report.side_by_side(laid, judged).values() for w in of))
    about = _about(laid, job)
    rows = report.rows(laid, judged, about, exchanged)
    straggler = None
    if judged.late:
        row = next(row for row in rows if row["rank"] == judged.late[0])
        straggler = report.straggler(laid, judged, row, _kernels(connection, laid, judged))
        _describe(connection, straggler["kernels"])
    on = {told["node"] for told in about.values()}
    told = {
        "job": job.name, "node": on.pop() if len(on) == 1 else None, "model": job.model,
        "world_size": job.world_size, "other_runs": job.other_runs,
    }  # fmt: skip
    return {
        "job": report.job(told, list(about)),
        "basis": report.basis(laid, judged, left_out),
        "straggler": straggler,
        "late": judged.late,
        "rows": rows[:limit] if limit else rows,
    }


def _about(laid: Laid, job: Job) -> dict[int, dict[str, Any]]:
    """Node, process and pid of each rank: of its latest process, where it was started again."""
    found = {}
    for rank, of in laid.by_rank().items():
        latest = max(of, key=lambda w: w.sight.start_unix_ns).sight.process
        told = job.processes[latest]
        found[rank] = {"node": told["node"], "process": f"{latest:016x}", "pid": told["pid"]}
    return found


def _look(connection: Connection, laid: Laid, judged: report.Found, job: Job) -> dict[int, report.Exchange]:
    """Sums over the collectives of the moments that figures are of: the latest of a run, else some spread over all."""
    moments = judged.moments
    most = _affordable(connection, moments)
    if judged.late:
        chosen = moments[-most:] if most else ()
    else:
        chosen = tuple(moments[i * len(moments) // most] for i in range(most)) if most else ()
    found: dict[int, report.Exchange] = {}
    for moment, sums in _exchanged(connection, chosen, job):
        for rank, s in sums.items():
            own = found.setdefault(rank, report.Exchange())
            own.sums.add(s)
            w = moment.members[rank]
            own.units += w.units(by_step=laid.by_step) * w.devices  # sums are over devices, figures means of them
    return found


def _affordable(connection: Connection, moments: Sequence[Moment]) -> int:
    """How many moments may be looked at, by what the last one holds."""
    if not moments:
        return 0
    held = sum(map(len, collectives_of(connection, _ids(moments[-1:]), MAX_COLLECTIVES).values()))
    return min(len(moments), MOMENTS, max(1, MAX_COLLECTIVES // max(1, held)))


def _ids(moments: Sequence[Moment]) -> list[int]:
    return [w.sight.id for moment in moments for w in moment.members.values()]


def _exchanged(
    connection: Connection, moments: Sequence[Moment], job: Job
) -> list[tuple[Moment, dict[int, Communication]]]:
    """What the collectives of each moment come to, rank by rank; ranks that began at other steps are not compared."""
    held = collectives_of(connection, _ids(moments), MAX_COLLECTIVES)
    found = []
    for moment in moments:
        by_step: dict[int | None, dict[int, RankWindow]] = {}
        for rank, w in moment.members.items():
            by_step.setdefault(w.sight.first_step, {})[rank] = w
        sums: dict[int, Communication] = {}
        for step, members in by_step.items():
            clocks = {rank: job.processes[w.sight.process]["node"] for rank, w in members.items()}
            given = {rank: held[w.sight.id] for rank, w in members.items()}
            sums |= by_clock(given, same_step=step is not None, clocks=clocks)
        if len(by_step) == 1:
            report.note_moving(moment, sums, set(clocks.values()))
        found.append((moment, sums))
    return found


def _by_network(connection: Connection, laid: Laid, judged: report.Found, job: Job) -> report.Found:
    """Looks again, with what moving bytes took, in the moments that were looked at; then closer, around the begin."""
    found = report.judge(laid, moving=True)
    if not found.late or not found.runs:
        return judged
    run = found.runs[0]
    at = found.series[run.rank].moments
    if run.first:
        _exchanged(connection, laid.moments[at[run.first - 1] + 1 : at[run.first]], job)
        closer = report.judge(laid, moving=True)
        found = closer if closer.runs and closer.runs[0].rank == run.rank else found
    return found


def _kernels(connection: Connection, laid: Laid, judged: report.Found) -> report.KernelSides | None:
    """Kernels a step of the late rank, and of a peer on average, in the latest moments; None where others explain."""
    rank = judged.late[0]
    peers = set(laid.by_rank()) - set(judged.late)
    parts = excess(report.paired(laid, judged), rank, peers, by_step=laid.by_step)
    if leading(by_class(parts))[0] != COMPUTE:
        return None
    held = laid.by_rank(judged.moments[-KERNEL_MOMENTS:] or None)
    near = sorted((peer for peer in peers if peer in held), key=lambda peer: abs(peer - rank))[:PEERS_MOST]
    return report.KernelSides(
        _by_signature(connection, laid, held[rank]),
        _by_signature(connection, laid, [w for peer in near for w in held[peer][-KERNEL_MOMENTS:]]),
    )


def _by_signature(connection: Connection, laid: Laid, of: Sequence[RankWindow]) -> dict[int, KernelTime]:
    """Calls and time a step of one rank, on average over the processes of these windows."""
    calls: dict[int, float] = {}
    took: dict[int, float] = {}
    units = 0.0
    by_process: dict[int, list[int]] = {}
    for w in of[-PEERS_MOST * KERNEL_MOMENTS :]:
        by_process.setdefault(w.sight.process, []).append(w.sight.start_unix_ns)
    for process, starts in by_process.items():
        time = Filter(since_unix_ns=min(starts), until_unix_ns=max(starts) + 1, process=f"{process:016x}")
        for (signature, _), parts in kernels.parts_of(connection, time).items():
            for p in parts:
                if p.bound not in _NO_KERNELS:
                    calls[signature] = calls.get(signature, 0.0) + (p.step_calls if laid.by_step else p.calls)
                    took[signature] = took.get(signature, 0.0) + (p.step_ns if laid.by_step else p.total_ns)
        units += sum(
            w.units(by_step=laid.by_step)
            for w in laid.windows()
            if w.sight.process == process and min(starts) <= w.sight.start_unix_ns <= max(starts)
        )
    return {s: KernelTime(calls[s] / units, took[s] / units) for s in calls if calls[s]} if units else {}


def _describe(connection: Connection, found: Sequence[dict[str, Any]]) -> None:
    """Put names in place of the signatures' numbers."""
    s, kernel, op = signatures.c, texts.alias("kernel"), texts.alias("op")
    query = (
        select(s.id, kernel.c.value, op.c.value, s.kind, s.shapes)
        .join(kernel, kernel.c.id == s.kernel_id)
        .outerjoin(op, op.c.id == s.op_id)
        .where(s.id.in_([row["signature"] for row in found]))
    )
    told = {identity: rest for identity, *rest in connection.execute(query)}
    for row in found:
        name, op_name, kind, shapes = told[row.pop("signature")]
        row |= {"kernel": name, "op": op_name, "kind": kind, "shapes": json.loads(shapes) if shapes else None}
