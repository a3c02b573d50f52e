"""One version apart: hooks, agents, stores and commands of the previous wheel and of this one, while jobs run."""

from __future__ import annotations

import subprocess

import pytest
from machine import Machine, Version, wait_for

AGENT, STORE = "agent", "store"
SAME = ("uid", "model", "pid", "start_unix_ns", "duration_ns", "events_read", "device_time_ns", "span_ns")


def arrive(machine: Machine) -> None:
    """Until another window of each job is in the store, of one with the old hook and of one with the new."""
    before = machine.stored()

    def came() -> bool:
        new = machine.stored() - before
        return all(new[name] for name in ("this", "previous"))

    wait_for(came, f"a window of each job arrives, beside {dict(before)}", 60)


def asked(machine: Machine, *askers: Version) -> None:
    """Each version tells all windows that are there, with the same figures; each ``top`` tells kernels."""
    there, told = set(machine.uids()), []
    for asker in askers:
        rows = {row["uid"]: row for row in machine.ask(asker, "windows", "--limit", "0")["rows"]}
        told.append([tuple(rows[uid][key] for key in SAME) for uid in sorted(there)])
        assert sum(row["total_ns"] for row in machine.ask(asker, "top", "--top", "0")["rows"]) > 0
    assert all(each == told[0] for each in told)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("order", [(AGENT, STORE), (STORE, AGENT)], ids=["agent first", "store first"])
def test_upgraded_and_taken_back(
    machine: Machine, previous: Version, this: Version, order: tuple[str, str], long: bool
) -> None:
    """Both parts are upgraded in either order, then the agent is taken back, then the store: nothing is lost.

    With the agent first all four pairs of agent and store are there in turn. Each time both jobs send windows, and
    commands of both versions ask.
    """
    if order[0] == STORE and not long:
        pytest.skip("ROOFWATCH_UPGRADE=long runs it")
    running = {STORE: machine.store(previous), AGENT: machine.agent(previous)}
    jobs = [machine.job(previous), machine.job(this)]
    arrive(machine)
    schema = machine.schema()
    for part in order:
        if part == AGENT:  # while the store is away: what the old agent had not sent, the new one sends
            stopped = machine.stop(running[STORE])
            assert "Traceback" not in stopped
            wait_for(machine.spooled, "windows are sealed")
            machine.stop(running[AGENT])
            running[AGENT] = machine.agent(this)
            running[STORE] = machine.store(previous if part == order[0] else this)
        else:
            machine.stop(running[STORE])
            running[STORE] = machine.store(this)  # with the data of the old one
        arrive(machine)
        if long or part == STORE:
            asked(machine, previous, this)
    machine.stop(running[AGENT])
    running[AGENT] = machine.agent(previous)
    arrive(machine)
    for job in jobs:
        out, _ = job.communicate(timeout=30)
        assert (job.returncode, out, machine.errors(job)) == (0, "done\n", "")
    machine.stop(running[AGENT])
    assert machine.spooled() == 0
    uids = machine.uids()
    assert len(uids) == len(set(uids))
    machine.stop(running[STORE])
    taken_back(machine, previous, schema)


def taken_back(machine: Machine, previous: Version, schema: str) -> None:
    """The previous store opens a database of its own schema, and of another one says what to do."""
    if machine.schema() == schema:
        machine.stop(machine.store(previous))
        return
    command = [*previous.program, "store", "serve", "--listen", machine.address, "--db", machine.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=machine.folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert f"a newer version of Roofwatch (schema {machine.schema()}, this one knows {schema})" in done.stderr
    assert "upgrade Roofwatch" in done.stderr
