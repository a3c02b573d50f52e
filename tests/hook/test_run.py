"""Under ``roofwatch run``: every way a job starts Pythons, and that its own Python is as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hook_jobs import TRAIN, UNTIL_STDIN_CLOSES, UNTIL_STDIN_CLOSES_ALONE, Jobs
from little_agent import LittleAgent

from roofwatch.hook.launch import environment

LOOP = UNTIL_STDIN_CLOSES + "while not over.is_set():\n    step()\n"
# What a process of the job does: steps, until the agent has had its windows.
STEPS_A_WHILE = """
import os, time
def steps_a_while():
    while not os.path.exists("stop"):
        step()
        time.sleep(0.002)
"""


def test_environment() -> None:
    """One folder before the job's own, names and labels beside it; the given environment stays as it is."""
    given = {"PYTHONPATH": "/theirs", "A": "b"}
    made = environment(given, "llama", {"git": "abc"}, "/s.sock")
    ours, theirs = made["PYTHONPATH"].split(os.pathsep)
    assert theirs == "/theirs"
    assert sorted(entry.name for entry in Path(ours).iterdir()) in (
        ["sitecustomize.py"],
        ["__pycache__", "sitecustomize.py"],
    )
    assert (made["A"], made["ROOFWATCH_MODEL"], made["ROOFWATCH_SOCKET"]) == ("b", "llama", "/s.sock")
    assert json.loads(made["ROOFWATCH_LABELS"]) == {"git": "abc"}
    assert given == {"PYTHONPATH": "/theirs", "A": "b"}
    assert environment(made)["PYTHONPATH"] == made["PYTHONPATH"]
    assert environment({})["PYTHONPATH"] == ours


@pytest.mark.parametrize("given", [":", "::", "/theirs:", ":/theirs", ""])
def test_empty_entries_of_the_path(tmp_path: Path, given: str) -> None:
    """An empty entry of PYTHONPATH is the working folder, with the hook as without it."""
    command = [sys.executable, "-c", "import sys; print(sys.path)"]
    plain = {**os.environ, "PYTHONPATH": given}
    with_hook, without = (
        subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, check=True, timeout=60).stdout
        for env in (environment(plain), plain)
    )
    assert with_hook == without


@pytest.mark.parametrize("command", [[sys.executable, "JOB"], [sys.executable, "-m", "job"]], ids=["file", "-m"])
def test_plain_python(jobs: Jobs, agent: LittleAgent, command: list[str]) -> None:
    """A script and a module register at their first step, with the name they were given, and give a window."""
    job = jobs.start(TRAIN + LOOP, agent.path, run=True, command=command, MODEL="llama")
    connection = agent.accept()
    assert (connection.hello["model"], connection.hello["labels"]) == ("llama", {"test": "yes"})
    assert connection.stepping().take(steps=2)[0]["steps"] == 2
    ended = jobs.end(job)
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_a_process_without_steps_registers_once_it_computes(jobs: Jobs, agent: LittleAgent) -> None:
    """No optimizer: seen by its CPU time, five seconds after it has imported torch."""
    infer = (
        UNTIL_STDIN_CLOSES_ALONE + "import torch\na = torch.ones(8, 8)\nwhile not over.is_set():\n    torch.mm(a, a)\n"
    )
    job = jobs.start(infer, agent.path, run=True)
    assert agent.accept().take(duration_ms=5)[0]["steps"] is None
    assert jobs.end(job).code == 0


def test_the_jobs_python_is_as_it_was(jobs: Jobs, tmp_path: Path) -> None:
    """Same path, same modules, same sitecustomize (which runs), before and without an import of torch."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("import sys\nprint('theirs', __file__)\nsys.theirs = 1\n")
    look = """
    import json, sys, threading
    import sitecustomize
    print(json.dumps([sys.path, sorted(sys.modules), sitecustomize.__file__, sys.theirs, threading.active_count()]))
    """
    env = {"PYTHONPATH": str(tmp_path / "theirs")}
    without = jobs.end(jobs.start(look, None, **env))
    with_hook = jobs.end(jobs.start(look, None, run=True, **env))
    assert (without.code, without.err) == (0, "")
    assert with_hook == without


def test_importing_torch_adds_nothing_but_the_hook(jobs: Jobs) -> None:
    """The loader and meta path are as they were; the modules that came are the hook's own and the library's."""
    look = """
    import torch, json, sys, threading
    print(json.dumps([sys.path, threading.active_count(), vars(torch.__spec__.loader)]))
    print(json.dumps([getattr(f, "__name__", type(f).__name__) for f in sys.meta_path]))
    print(json.dumps(sorted(name for name in sys.modules if "roofwatch" in name and "." not in name)))
    """
    without = jobs.end(jobs.start(look, None)).out.splitlines()
    with_hook = jobs.end(jobs.start(look, None, run=True)).out.splitlines()
    assert with_hook[:2] == without[:2]
    assert (without[2], with_hook[2]) == ("[]", '["_roofwatch_hook"]')


def test_an_error_in_the_jobs_sitecustomize_is_the_jobs(jobs: Jobs, tmp_path: Path) -> None:
    """What site prints about it is printed once, as without the hook."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("raise ValueError('theirs')\n")
    env = {"PYTHONPATH": str(tmp_path / "theirs")}
    without = jobs.end(jobs.start("print(1)", None, **env))
    with_hook = jobs.end(jobs.start("print(1)", None, run=True, **env))
    assert "theirs" in without.err
    assert with_hook == without


RANKS = """
import os
distributed = torch.distributed
distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(model)
late, launcher = torch.zeros(1), os.getppid()
while not late.item():
    step()
    late.fill_(os.path.exists("stop") or os.getppid() != launcher)
    distributed.all_reduce(late)  # ranks leave together
distributed.destroy_process_group()
"""


def test_torchrun_with_two_ranks(jobs: Jobs, agent: LittleAgent) -> None:
    """Both ranks register with rank and job and give a window of two steps; the launcher does not register."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d"]
    launcher += ["--rdzv-endpoint=127.0.0.1:0", "--rdzv-id=run7", "JOB"]
    job = jobs.start(TRAIN + RANKS, agent.path, run=True, command=launcher, OMP_NUM_THREADS="1")
    ranks = [agent.accept() for _ in range(2)]
    assert sorted(rank.hello["rank"] for rank in ranks) == [0, 1]
    assert {rank.hello["world_size"] for rank in ranks} == {2}
    assert {rank.hello["job"] for rank in ranks} == {"torchrun:run7"}
    for rank in [rank.stepping() for rank in ranks]:
        rank.ask(steps=2)
    assert [rank.receive(60)[0]["steps"] for rank in ranks] == [2, 2]
    (jobs.folder / "stop").touch()
    ended = jobs.end(job)
    assert ended.code == 0, ended.err
    with pytest.raises(TimeoutError):
        agent.accept(timeout=0.1)


def test_multiprocessing(jobs: Jobs, agent: LittleAgent) -> None:
    """The parent steps first, then a forked and a spawned child: each registers as itself, and gives its own window."""
    code = """
if __name__ == "__main__":
    import multiprocessing
    step()
    children = [multiprocessing.get_context(how).Process(target=steps_a_while) for how in ("fork", "spawn")]
    for child in children:
        child.start()
    steps_a_while()
    for child in children:
        child.join()
    sys.exit(sum(child.exitcode for child in children))
"""
    job = jobs.start(TRAIN + STEPS_A_WHILE + code, agent.path, run=True)
    processes = [agent.accept() for _ in range(3)]
    pids = {connection.hello["pid"] for connection in processes}
    assert len(pids) == 3
    assert job.pid in pids
    assert [connection.stepping().take(steps=2)[0]["steps"] for connection in processes] == [2, 2, 2]
    (jobs.folder / "stop").touch()
    ended = jobs.end(job)
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_data_loader_workers_do_not_register(jobs: Jobs, agent: LittleAgent) -> None:
    """Forked and spawned workers that compute for longer than it takes to see a process without steps."""
    code = """
import time
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, n):
        end = time.monotonic() + 3.5
        while time.monotonic() < end:
            torch.ones(8, 8) @ torch.ones(8, 8)
        return torch.ones(8)
def load(how):
    return torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context=how)
if __name__ == "__main__":
    for _ in zip(load("fork"), load("spawn")):
        step()
"""
    job = jobs.start(TRAIN + code, agent.path, run=True)
    assert agent.accept().hello["pid"] == job.pid
    ended = jobs.end(job)
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    with pytest.raises(TimeoutError):
        agent.accept(timeout=0.1)


def test_attach_under_run_names_the_process_that_is_attached(jobs: Jobs, agent: LittleAgent) -> None:
    """The job's own line finds the hook that is there: one process, one registration, the job's name for it."""
    code = TRAIN + "from roofwatch.hook import attach\nattach(model='own', labels={'a': '1'})\n" + LOOP
    job = jobs.start(code, agent.path, run=True, MODEL="given")
    hello = agent.accept().hello
    assert (hello["model"], hello["labels"]) == ("own", {"test": "yes", "a": "1"})
    with pytest.raises(TimeoutError):
        agent.accept(timeout=1)
    assert jobs.end(job).code == 0


def test_other_pythons_start(tmp_path: Path) -> None:
    """A Python too old for the hook, and one without our packages, run as they would."""
    installed = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin/python"))
    if not installed:
        pytest.skip("no other Python under pyenv here")
    for python in installed:
        command = [str(python), "-c", "import sys; print(sys.version_info[0])"]
        result = subprocess.run(command, env=environment(os.environ), cwd=tmp_path, capture_output=True, check=False)
        assert (result.returncode, result.stderr) == (0, b""), python
