"""What ``roofwatch ranks`` writes for people, from a real store on disk, and how it exits."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import in_process
import pytest
from rank_scenes import GEMM, JOB, KERNELS, MINUTE, MS, NORM, SORT, START, Step, scene, submit, usual

from roofwatch.cli.render import ranks as drawing
from roofwatch.model.record import Window
from roofwatch.store import database
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer

Run = Callable[..., in_process.Done]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Put windows into a database, and run the command on it."""
    url = f"sqlite:///{tmp_path}/store.db"

    def ran(windows: list[Window], *arguments: str) -> in_process.Done:
        opened = database.open(url)
        writer = Writer(opened)
        submit(writer, windows)
        writer.close()
        opened.close()
        return in_process.call("ranks", "--since", "all", "--db", url, *arguments)

    return ran


def late(**step: Any) -> Any:
    """Rank 3 like this, the others as usual."""
    return lambda rank, _moment: Step(**step) if rank == 3 else Step()


def test_exit_codes_and_formats(run: Run) -> None:
    """0 without a straggler, 1 with one, 4 with too little, 2 with two jobs; JSON and CSV have one set of keys."""
    done = run(scene(usual, 3))
    assert (done.returncode, done.stderr) == (0, "")
    assert "No rank is a straggler" in done.stdout
    done = run(scene(late(input=32 * MS), job="slurm:5"), "--job", "slurm:5", "--format", "json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["straggler"]["rank"], found["query"]["job"]) == (1, 3, "slurm:5")
    done = run([], "--job", "slurm:5", "--format", "csv", "--limit", "2")
    header, *lines = done.stdout.splitlines()
    assert header.split(",") == list(found["rows"][0])
    assert [line.split(",")[0] for line in lines] == ["0", "1"]
    done = run([])
    assert (done.returncode, done.stdout) == (2, "")
    assert "slurm:4242.0, slurm:5" in done.stderr
    done = run([], "--job", "slurm:6")
    assert done.returncode == 4
    done = run(scene(usual, 2, ranks=[4], job="slurm:7"), "--job", "slurm:7")
    assert done.returncode == 4
    assert "windows of 1 of the job's 8 ranks are here" in done.stderr


def test_the_head_says_once_what_was_asked_for(run: Run) -> None:
    """Job, model and node chose the windows, and are what the job is."""
    head = run(scene(usual, 3), "--job", JOB, "--model", "llama", "--node", "gpu-07").stdout.split("\n\n")[0]
    assert " · ".join(head.splitlines()) == f"{JOB} · llama · gpu-07 · 8 of 8 ranks · NVIDIA H100 80GB HBM3 · all time"


def test_two_runs_of_one_name_at_one_time_are_told(run: Run) -> None:
    """Every rank is there twice, so no windows belong together: more time is no help, another time may be."""
    windows = scene(usual, 3, ranks=range(2), world_size=2)
    again = [
        replace(
            w, uid=w.uid[::-1], process=replace(w.process, pid=w.process.pid + 50), start_unix_ns=w.start_unix_ns + MS
        )
        for w in windows
    ]
    done = run([*windows, *again])
    assert done.returncode == 4
    said = " ".join(done.stderr.split())
    assert "12 windows are of two processes of one rank at one time" in said
    assert "--since and --until" in said
    assert "widen" not in said


def test_too_few_windows_are_no_all_clear(run: Run) -> None:
    """Two windows in which a rank is more than 3 % and less than 10 % of a step late prove nothing: exit code 4."""
    done = run(scene(late(input=6 * MS), 2))
    assert done.returncode == 4
    assert "cannot be said yet" in " ".join(done.stdout.split())
    assert "Take more windows" in " ".join(done.stdout.split())


def drawn(ask: Any, windows: list[Window], job: str = JOB) -> str:
    """The report on a job, which must fit 80 columns, as one line."""
    text = drawing.report(ask(windows, Filter(job=job)), ["all nodes", "all time"], 80, START)
    assert max(map(len, text.splitlines())) <= 80
    return " ".join(text.split())


WORDS: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"input": 32 * MS},
        ["30.0 ms a step late, 24 % of it", "Why: input. It waits 30.0 ms a step longer for its data loader"],
    ),
    (
        {"kernels": {**KERNELS, GEMM: 60 * MS}, "clock_hz": 1.5e9, "throttle": "power_cap"},
        [
            "Why: kernels.",
            "gemm 8×512·512×512: +10.0 ms a step: 6.00 ms a call, its peers 5.00 ms; 10.0 calls a step, its peers 10.0",
            "1.50 GHz!",
        ],
    ),
    (
        {"kernels": {s: ns * 5 // 4 for s, ns in KERNELS.items()}},
        [
            "Why: the chip. Its compute takes 20.0 ms a step longer",
            "of 3 kernels, three quarters of the time are 25 % slower or more; its clock was not read",
        ],
    ),
    (
        {"kernels": {**KERNELS, NORM: 30 * MS, SORT: 5 * MS}},
        [
            "norm: +10.0 ms a step: 1.50 ms a call, its peers 1.00 ms",
            "sort: +5.00 ms a step: 5.00 calls a step, its peers make none",
        ],
    ),
    (
        {"host": 20 * MS},
        ["Why: its host. The device idles 20.0 ms a step longer", "(100 % of what is slower): host +20.0 ms"],
    ),
    ({"copy": 24 * MS}, ["Why: copies. They hold it up 20.0 ms a step longer"]),
    ({"moving": 25 * MS}, ["Why: the network. Moving bytes takes it 15.0 ms a step longer", "25.0 ms"]),
    (
        {"kernels": {**KERNELS, NORM: 24 * MS}, "input": 8 * MS, "host": 6 * MS},
        ["nothing is half of what is slower: host +6.00 ms, input +6.00 ms, compute +4.00 ms a step"],
    ),
]


@pytest.mark.parametrize(("step", "words"), WORDS)
def test_each_explanation_in_words(ask: Any, step: dict[str, Any], words: list[str]) -> None:
    """With its figures, in 80 columns; a clock without one to compare it with is no reason."""
    text = drawn(ask, scene(late(**step)))
    assert "Straggler: rank 3 on gpu-07 (pid 1003)" in text
    for said in words:
        assert said in text


def test_what_else_is_said(ask: Any) -> None:
    """Missing ranks, few windows, several late ones, an unknown split, unshared steps and circles, and a while ago."""
    text = drawn(ask, scene(usual, job="a", ranks=range(4), world_size=16), "a")
    assert "Not seen: 12 ranks of 16 (4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)." in text
    assert "seen in 1 window only: take more" in drawn(ask, scene(late(host=97 * MS), 1, job="b"), "b")
    steps = {5: Step(input=22 * MS), 2: Step(input=10 * MS)}
    text = drawn(ask, scene(lambda r, _: steps.get(r, Step()), job="c", collectives=False), "c")
    assert "Late as well: 1 rank: 2." in text
    assert "Moving and waiting are not told apart" in text
    apart = {
        "first_step": lambda rank, moment: 100 * moment + 10 * (rank // 2),
        "start": lambda rank, moment: START + moment * MINUTE + (rank // 2) * 10_000 * MS,
    }
    text = drawn(ask, scene(usual, ranks=range(4), world_size=4, job="d", **apart), "d")
    assert "Ranks {0, 1} and {2, 3} share no steps: between them only means were compared." in text
    text = drawn(
        ask,
        scene(late(input=32 * MS), ranks=(2, 3), world_size=8, job="e", first_step=lambda r, m: 100 * m + 9 * r),
        "e",
    )
    assert "since when is not known, as the ranks' windows share no steps" in text
    assert "so means over different steps were compared" in text
    text = drawn(ask, scene(lambda r, m: Step(input=32 * MS) if r == 3 and 2 < m < 8 else Step(), 14, job="f"), "f")
    assert "(step 300) until " in text
