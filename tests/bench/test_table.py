"""``make bench``: the table and the exit code, of small scripts written here and run in processes of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from _rows import Row, judged, parsed, row, skip

BENCH = Path(__file__).parents[2] / "bench"
ROWS = f"import sys\nsys.path.insert(0, {str(BENCH)!r})\nfrom _rows import or_skipped, row, say, skip, trace\n"
Table = Callable[..., tuple[int, str, str]]


@pytest.fixture
def table(bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Table:
    """Write scripts and run them: exit code, the table, and what was said on the way."""

    def call(*arguments: str, left_out: str = "", **scripts: str) -> tuple[int, str, str]:
        for name, body in scripts.items():
            (tmp_path / f"{name}.py").write_text(ROWS + body)
        known = {name: bench.Bench(f"what {name} does", "1 s", left_out if name == "long" else "") for name in scripts}
        code = bench.main(arguments, tmp_path, known)
        return code, *capsys.readouterr()

    return call


def lines(text: str) -> list[str]:
    """The rows of the table."""
    return [line for line in text.splitlines() if line.startswith("| ")][1:]


def test_limits_that_hold_and_figures_without_one(table: Table) -> None:
    """Each row with its figure, limit and verdict; what else a script says goes past the table."""
    code, out, err = table(
        good="print('by hand')\nrow('rate', 1234.5, 'rows/s', at_least=1000)\nrow('size', 0.01234, 'B')"
    )
    assert (code, lines(out)) == (0, ["| rate | 1,234 rows/s | ≥ 1,000 rows/s | yes |", "| size | 0.0123 B | – | – |"])
    assert "by hand" in err
    assert "1 limits hold, 0 do not, 0 rows were skipped" in err


def test_a_limit_that_does_not_hold_is_exit_code_1_and_the_others_still_run(table: Table) -> None:
    """The table has both; the row is said again at the end."""
    code, out, err = table(bad="row('share', 27.9, '%', at_least=28)", good="row('time', 1, 's', at_most=1)")
    assert code == 1
    assert lines(out) == ["| share | 27.9 % | ≥ 28 % | NO |", "| time | 1 s | ≤ 1 s | yes |"]
    assert err.splitlines()[-1] == "DOES NOT HOLD: share: 27.9 % (≥ 28 %: NO)"


def test_a_script_that_says_itself_that_a_limit_does_not_hold_has_not_crashed(table: Table) -> None:
    """Its exit code is BROKEN: one row, not two."""
    code, out, _ = table(bad="row('lost', 2, at_most=0, problem='node-1: 3 windows')\nsys.exit(3)")
    assert (code, lines(out)) == (1, ["| lost | 2 (node-1: 3 windows) | ≤ 0 | NO |"])


def test_a_crash_keeps_the_rows_before_it_and_is_one_itself(table: Table) -> None:
    """As does a script without any row, which has measured nothing."""
    code, out, _ = table(crash="row('first', 1)\n1 / 0", silent="pass")
    assert code == 1
    assert lines(out) == [
        "| first | 1 | – | – |",
        "| crash | – (ended with exit code 1) | runs | NO |",
        "| silent | – (printed no row) | runs | NO |",
    ]


def test_what_the_machine_lacks_is_skipped_and_said(table: Table) -> None:
    """Neither held nor broken."""
    code, out, err = table(
        lacking="skip('on a GPU', 'there is none')\nwith or_skipped('traces'):\n    trace('nowhere/of_no.json')"
    )
    assert code == 0
    assert lines(out) == [
        "| on a GPU | skipped: there is none | – | – |",
        "| traces | skipped: no real trace of_no.json: set ROOFWATCH_TRACES to the folder of real traces | – | – |",
    ]
    assert "0 limits hold, 0 do not, 2 rows were skipped" in err


def test_a_long_one_is_left_out_with_its_reason_and_runs_when_named(table: Table) -> None:
    """``--list`` says both and runs nothing."""
    scripts = {"short": "row('a', 1)", "long": "row('b', 2)"}
    code, out, _ = table(left_out="it takes hours", **scripts)
    assert lines(out) == ["| a | 1 | – | – |", "| long | skipped: it takes hours (make bench BENCH=long) | – | – |"]
    assert code == 0
    assert lines(table("--only", "long", left_out="it takes hours", **scripts)[1]) == ["| b | 2 | – | – |"]
    listed = table("--list", left_out="it takes hours", **scripts)[1].splitlines()
    assert listed[0].split(maxsplit=1) == ["short", "what short does (1 s)"]
    assert listed[-1].split(maxsplit=1) == ["long", "what long does (1 s): it takes hours"]


def test_a_name_that_is_none_is_refused(table: Table) -> None:
    """Not a table without rows."""
    with pytest.raises(SystemExit) as ended:
        table("--only", "nothing", short="row('a', 1)")
    assert ended.value.code == 2


def test_a_script_that_takes_too_long_ends_with_what_it_started(bench: ModuleType, tmp_path: Path) -> None:
    """Interrupted, as Ctrl-C does, so that it can end its servers; its child, too. What it had measured is kept."""
    script = tmp_path / "slow.py"
    script.write_text(
        f"{ROWS}import subprocess, time\nchild = subprocess.Popen(['sleep', '600'])\nrow('child', child.pid)\n"
        f"try:\n    time.sleep(600)\nfinally:\n    open({str(tmp_path / 'ended')!r}, 'w').close()\n"
    )
    rows = bench.run(script, 1.5)
    assert (tmp_path / "ended").exists()
    assert [one.name for one in rows] == ["child", "slow"]
    assert (rows[1].ok, rows[1].problem) == (False, "took more than 1.5 s")
    state = Path(f"/proc/{rows[0].value}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_rows_are_written_to_a_file(table: Table, tmp_path: Path) -> None:
    """With the script's name and the machine."""
    table("--json", str(tmp_path / "rows.json"), good="row('time', 2, 's', at_most=3, cpu_s=1.5)")
    told = json.loads((tmp_path / "rows.json").read_text())
    assert "cores of" in told["machine"]
    assert told["rows"] == [
        {"script": "good", "name": "time", "value": 2, "unit": "s", "limit": "≤ 3 s", "ok": True, "skipped": "",
         "problem": "", "beside": {"cpu_s": 1.5}}
    ]  # fmt: skip


def test_a_figure_at_its_limit_holds() -> None:
    """And one within so much of what was foretold, on both sides."""
    assert judged(28, "%", at_least=28) == ("≥ 28 %", True)
    assert judged(2.0001, "µs", at_most=2) == ("≤ 2 µs", False)
    assert [judged(value, "", within=(0.5, 0.125))[1] for value in (0.37, 0.375, 0.625, 0.63)] == [
        False, True, True, False,
    ]  # fmt: skip
    assert judged(7, "rows") == ("", None)
    assert judged(1, "events", at_least=1_000_000) == ("≥ 1,000,000 events", False)


def test_a_line_that_is_no_row_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed comes back as it was, judged before it was rounded."""
    told = row("a", 2.00001, "µs", at_most=2, problem="", cpu_ms=3)
    skip("b", "why")
    first, second = capsys.readouterr().out.splitlines()
    assert parsed(first) == told == Row("a", 2.0, "µs", "≤ 2 µs", ok=False, beside={"cpu_ms": 3})
    assert parsed(second) == Row("b", skipped="why")
    assert [parsed(line) for line in ("", "text", "{", "3", '{"value": 1}', '{"name": "a", "other": 1}')] == [None] * 6
