"""Prolog, epilog and task prolog as Slurm runs them, and what the agent makes of the map."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from roofwatch.agent import job_map

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "slurm"


def run(script: str, **env: str) -> str:
    """What it prints; it must never fail, or Slurm would drain the node or end the job."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "ROOFWATCH_"))}
    clean.pop("PYTHONPATH", None)
    told = subprocess.run(
        [FOLDER / script], env={**clean, **env}, capture_output=True, text=True, timeout=20, check=True
    )
    assert told.stderr == ""
    return told.stdout


@pytest.fixture
def job(tmp_path) -> dict[str, str]:
    """What Slurm tells a prolog."""
    return {
        "ROOFWATCH_JOB_MAP": str(tmp_path / "jobs"), "SLURM_JOB_ID": "4242", "SLURM_JOB_USER": getpass.getuser(),
        "SLURM_JOB_ACCOUNT": "physics", "SLURM_JOB_PARTITION": "h100",
        "SLURM_JOB_NAME": 'a $(touch x) "name"\nuser=root',
    }  # fmt: skip


def test_a_job_is_in_the_map_while_it_runs(job, tmp_path):
    """Labels of its processes between prolog and epilog; a name is text and cannot add a line."""
    run("prolog.sh", **job)
    found = job_map.labels(job["ROOFWATCH_JOB_MAP"], "slurm:4242.0", getpass.getuser())
    assert found == {
        "slurm.user": getpass.getuser(), "slurm.account": "physics", "slurm.partition": "h100",
        "slurm.name": 'a $(touch x) "name"user=root',
    }  # fmt: skip
    assert job_map.labels(job["ROOFWATCH_JOB_MAP"], "slurm:4242", "somebody else") == {}
    assert job_map.labels(job["ROOFWATCH_JOB_MAP"], "slurm:4243", getpass.getuser()) == {}
    run("epilog.sh", **job)
    assert list((tmp_path / "jobs").iterdir()) == []


@pytest.mark.parametrize("job_id", ["", "../../etc/passwd", "7;reboot"])
def test_what_is_no_job_writes_nothing(job, tmp_path, job_id):
    """Only digits are a job."""
    run("prolog.sh", **{**job, "SLURM_JOB_ID": job_id})
    run("epilog.sh", **{**job, "SLURM_JOB_ID": job_id})
    assert not (tmp_path / "jobs").exists()


def test_a_folder_that_cannot_be_written_fails_no_job(job, tmp_path):
    """The prolog leaves with 0, whatever is in its way."""
    (tmp_path / "jobs").write_text("a file")
    run("prolog.sh", **job)


def test_files_of_others_are_not_believed(tmp_path):
    """Not one that others may write, not a link, not a pipe, not one for another job's name."""
    good = tmp_path / "7"
    good.write_text("user=me\naccount=a\nevil=x\nnonsense\n=b\nqos=\n")
    assert job_map.labels(str(tmp_path), "slurm:7", "me") == {"slurm.user": "me", "slurm.account": "a"}
    good.chmod(0o666)
    assert job_map.labels(str(tmp_path), "slurm:7", "me") == {}
    good.chmod(0o644)
    (tmp_path / "8").symlink_to(good)
    os.mkfifo(tmp_path / "9")
    (tmp_path / "10").write_bytes(b"\xff\xfe")
    for other in ("slurm:8", "slurm:9", "slurm:10", "slurm:../7", "torchrun:7", None):
        assert job_map.labels(str(tmp_path), other, "me") == {}


def test_a_task_attaches_where_an_agent_listens(tmp_path):
    """Both variables where the socket is; the job's path is kept; nothing without an agent or with ROOFWATCH_OFF."""
    hook, where = tmp_path / "inject", tmp_path / "agent.sock"
    hook.mkdir()
    given = {"ROOFWATCH_SOCKET": str(where), "ROOFWATCH_HOOK": str(hook)}
    assert run("task_prolog.sh", **given) == ""
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(where))
        told = f"export ROOFWATCH_SOCKET={where}\nexport PYTHONPATH={hook}"
        assert run("task_prolog.sh", **given) == told + "\n"
        assert run("task_prolog.sh", **given, PYTHONPATH="/mine") == told + ":/mine\n"
        assert run("task_prolog.sh", **given, ROOFWATCH_OFF="1") == ""


def test_the_folder_it_names_attaches_a_job(tmp_path):
    """With the hook's real folder on the path, a Python has our finder for torch before anything else runs."""
    from roofwatch import hook  # noqa: PLC0415 - a job's package

    inject = Path(hook.__file__).parent / "inject"
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "agent.sock"))
        exports = run("task_prolog.sh", ROOFWATCH_SOCKET=str(tmp_path / "agent.sock"), ROOFWATCH_HOOK=str(inject))
    env = dict(line.removeprefix("export ").split("=", 1) for line in exports.splitlines())
    code = "import sys; print(type(sys.meta_path[0]).__name__)"
    told = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, timeout=30, check=True
    )
    assert told.stdout == "_Torch\n"
