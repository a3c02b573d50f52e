"""From ``roofwatch run`` to ``roofwatch top`` on a node that seems to have NPUs; every program of ours is real."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from npu_jobs import KERNELS, SPEAKS, SPOKEN, Node

from roofwatch.agent import status

PROGRAM = (sys.executable, "-m", "roofwatch.cli.main")
INTERVAL_S = 1.0


class Fleet:
    """A store and an agent in one short folder, and the node whose jobs they watch."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node, self.folder = node, folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.socket = str(folder / "agent.sock")
        self.programs: list[subprocess.Popen[bytes]] = []
        self.program("store", "serve", "--listen", self.address, "--db", f"sqlite:///{folder}/store.db")
        self.agent()
        node.until(lambda: self.ask("nodes") is not None, "the store answers")

    def agent(self, *more: str) -> subprocess.Popen[bytes]:
        """Start an agent that listens."""
        state = ("--state", str(self.folder / "state"), "--interval", str(INTERVAL_S))
        agent = self.program("agent", "--socket", self.socket, "--store", self.address, *state, *more)
        self.node.until(self.listens, "the agent listens")
        return agent

    def stop_agent(self) -> None:
        """End the agent that was started last."""
        self.programs[-1].terminate()
        self.programs[-1].wait()

    def program(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a program of ours."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ROOFWATCH_")}
        clean |= {"ROOFWATCH_AGENT_BUDGET": "100", "ROOFWATCH_AGENT_HARD_STOP": "100"}  # a window every few seconds
        with (self.folder / f"{len(self.programs)}.err").open("w") as err:
            self.programs.append(
                subprocess.Popen([*PROGRAM, *arguments], stdout=subprocess.DEVNULL, stderr=err, env=clean)
            )
        return self.programs[-1]

    def listens(self) -> bool:
        """Whether somebody accepts on the agent's socket."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.socket) == 0

    def job(self, **env: str) -> subprocess.Popen[str]:
        """A training job under ``roofwatch run``."""
        path = self.node.folder / "job.py"
        path.write_text(SPEAKS)
        environ = self.node.environment(ROOFWATCH_SOCKET=self.socket, **env)
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        job = subprocess.Popen(
            [*PROGRAM, "run", "--model", "alexnet", "--", sys.executable, str(path)],
            env=environ, text=True, cwd=self.node.folder, start_new_session=True, **pipes,
        )  # fmt: skip
        self.node.running.append(job)
        return job

    def ask(self, *query: str) -> dict[str, Any] | None:
        """The answer of a reading command, None where there is none yet."""
        command = [*PROGRAM, *query, "--store", self.address, "--since", "all", "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return json.loads(done.stdout) if done.returncode in (0, 4) and done.stdout else None

    def windows(self) -> list[dict[str, Any]]:
        """All windows in the store."""
        answer = self.ask("windows", "--limit", "0")
        return answer["rows"] if answer else []

    def status(self) -> dict[str, Any]:
        """What the agent says of itself."""
        return status.request(self.socket)

    def end(self) -> None:
        """End every program."""
        for program in self.programs:
            program.kill()
            program.wait()


@pytest.fixture
def fleet(node: Node) -> Iterator[Fleet]:
    """A store, an agent, a node."""
    folder = Path(tempfile.mkdtemp(prefix="rw-"))  # a socket's path may have 107 bytes
    one = Fleet(node, folder)
    yield one
    one.end()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.timeout(180)
def test_an_npu_job_is_seen_in_top(fleet: Fleet) -> None:
    """Windows of two steps arrive with the sample's 191 records, chip, cost and formats; the job is as without us."""
    node = fleet.node
    job = fleet.job(RANK="1")
    # The first window of a process is short and may have no steps; the next ones are whole.
    node.until(
        lambda: any(w["steps"] == 2 for w in fleet.windows()), "a window of two steps is in the store", 120, every=1.0
    )
    (process,) = fleet.ask("processes")["rows"]
    assert (process["model"], process["rank"], process["pid"]) == ("alexnet", 1, job.pid)
    answer = fleet.ask("top", "--top", "0", "--model", "alexnet")
    windows = answer["coverage"]["windows"]
    # 187 compute tasks and 4 collectives of the real file, however often.
    assert answer["coverage"]["device_records"] == windows * (KERNELS + 4)
    assert sum(row["calls"] for row in answer["rows"]) == windows * (KERNELS + 4)
    assert {"matmul", "conv", "comm"} <= {row["kind"] for row in answer["rows"]}
    assert all(row["device"] == "Ascend910B2" for row in answer["rows"])
    assert any(row["op"] and row["op"].startswith("aten::") for row in answer["rows"])
    assert "hcom_allReduce" in read("top", fleet)
    assert fleet.status()["process_list"][0]["close_path"] == "npu"
    assert fleet.status()["drops"] == {}
    # Two steps of this job are shorter than the 170 ms of the sample that each window gets.
    assert set(answer["coverage"]["dropped"]) <= {"clock_disagreement"}
    shown = fleet.ask("windows", "--limit", "0")["rows"]
    assert all(window["collector"] == "ascend_db" for window in shown)
    assert node.end(job) == SPOKEN
    node.nothing_left()


def read(query: str, fleet: Fleet) -> str:
    """What a reading command writes for people."""
    command = [*PROGRAM, query, "--store", fleet.address, "--since", "all"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize(
    ("fault", "where", "reason"), [("fails", "refusals", "analysis"), ("large", "drops", "trace_too_large")]
)
def test_a_lost_window_is_counted(fleet: Fleet, fault: str, where: str, reason: str) -> None:
    """In the job or in the agent: a reason that the agent counts, no window made up, and the job as without us."""
    node = fleet.node
    fleet.stop_agent()
    fleet.agent("--trace-mb", "1")
    job = fleet.job(ASCEND_STAND_IN=fault)
    node.until(lambda: fleet.status()[where].get(reason, 0) >= 1, f"{where} {reason}", 30)
    assert fleet.windows() == []
    assert node.end(job) == SPOKEN
    node.nothing_left()
