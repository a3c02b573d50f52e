"""``config show``: one mechanism for agent and store, and where each value came from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Roofwatch = Callable[..., Any]

FILE = """
[agent]
interval = 30
max-events = 5000
npu-metrics = ["PipeUtilization", "MemoryAccess"]
system = true
labels = { cluster = "a", rack = 7 }

[store]
keep_raw = "24h"
db = "postgresql+psycopg://roofwatch:hunter2@db.example/roofwatch"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The user's own file, where nobody has to name it."""
    path = tmp_path / "config" / "roofwatch" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(FILE)
    path.chmod(0o644)
    return path


def rows(done: Any) -> dict[str, tuple[object, str]]:
    """Value and origin of each setting."""
    assert done.returncode == 0, done.stderr
    return {f"{r['program']}.{r['setting']}": (r["value"], r["origin"]) for r in json.loads(done.stdout)["rows"]}


def test_a_flag_wins_over_its_variable_over_the_file_over_the_default(roofwatch: Roofwatch, file: Path) -> None:
    """One setting of each origin, for both programs; every type of TOML comes through."""
    shown = ("config", "show", "agent", "--origin", "--format", "json", "--", "--budget", "0.4")
    found = rows(roofwatch(*shown, env={"ROOFWATCH_AGENT_MAX_EVENTS": "7000", "ROOFWATCH_STORE": "a:1"}))
    assert found["agent.budget"] == (0.4, "--budget")
    assert found["agent.max-events"] == (7000, "ROOFWATCH_AGENT_MAX_EVENTS")
    assert found["agent.store"] == ("a:1", "ROOFWATCH_STORE")
    assert found["agent.interval"] == (30.0, str(file))
    assert found["agent.npu-metrics"] == ("PipeUtilization,MemoryAccess", str(file))
    assert found["agent.system"] == (True, str(file))
    assert found["agent.labels"] == ("cluster=a,rack=7", str(file))
    assert found["agent.steps"] == (2, "default")
    both = rows(roofwatch("config", "show", "--origin", "--format", "json"))
    assert both["store.keep-raw"] == (86_400, str(file))
    assert both["agent.max-events"] == (5000, str(file))


def test_a_password_in_a_url_is_not_shown(roofwatch: Roofwatch, file: Path) -> None:
    """In no format."""
    assert file.exists()
    for form in ("table", "json", "csv"):
        told = roofwatch("config", "show", "store", "--format", form).stdout
        assert "roofwatch:***@db.example" in told
        assert "hunter2" not in told


def test_the_table_is_a_line_a_setting(roofwatch: Roofwatch, file: Path) -> None:
    """Origins where they are asked for."""
    assert file.exists()
    lines = roofwatch("config", "show", "agent", "--origin").stdout.splitlines()
    (line,) = (line for line in lines if line.startswith("agent.interval "))
    assert line.split() == ["agent.interval", "30", str(file)]
    (line,) = (line for line in roofwatch("config", "show").stdout.splitlines() if line.startswith("agent.interval "))
    assert line.split() == ["agent.interval", "30"]


def test_defaults_are_shown_as_they_would_be_typed(roofwatch: Roofwatch) -> None:
    """Lengths of time with their unit, and the database that is meant where none is named; JSON keeps seconds."""
    lines = dict(line.split() for line in roofwatch("config", "show", "store").stdout.splitlines())
    assert [lines[f"store.keep-{name}"] for name in ("raw", "hourly", "daily")] == ["48h", "30d", "400d"]
    assert lines["store.db"].startswith("sqlite:///")
    assert lines["store.db"].endswith("/roofwatch/store.db")
    for typed, shown in (("90m", "90m"), ("72h", "3d"), ("100d", "100d")):
        told = roofwatch("config", "show", "store", "--", "--keep-raw", typed).stdout
        assert dict(line.split() for line in told.splitlines())["store.keep-raw"] == shown
    found = rows(roofwatch("config", "show", "store", "--origin", "--format", "json"))
    assert found["store.keep-raw"] == (172_800, "default")


def test_flags_want_a_program(roofwatch: Roofwatch) -> None:
    """A flag in its place says how to write it."""
    done = roofwatch("config", "show", "--", "--interval", "5")
    assert done.returncode == 2
    assert "roofwatch config show agent -- --interval" in done.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[agent]\nintervall = 5", "[agent] has no setting 'intervall'; did you mean 'interval'?"),
        ("[agent]\nspool_mbs = 5", "[agent] has no setting 'spool_mbs'; did you mean 'spool-mb'?"),
        ("[agent]\nxyzzy = 5", "[agent] has no setting 'xyzzy'"),
        ("[agnet]\ninterval = 5", "there is no section [agnet]; did you mean 'agent'?"),
        ("[agent]\ninterval = 'soon'", "agent.interval 'soon': must be a number"),
        ("[agent]\ntrace-mb = 1\ntrace_mb = 2", "[agent] has 'trace_mb' twice"),
        ("[agent]\nlabels = { a = [1] }", "agent.labels: must be a text, a number"),
        ("agent = 5", "'agent' is a section"),
        ("[agent", "is not TOML"),
        ("[store]\nlisten = 'here'", "store.listen 'here': must be HOST:PORT"),
        ("[store]\nkeep-raw = 'long'", "store.keep-raw 'long': must be a length of time"),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence(roofwatch: Roofwatch, file: Path, text: str, told: str) -> None:
    """With the file, the name, and the nearest name that there is; exit code 2. The programs say the same."""
    file.write_text(text)
    done = roofwatch("config", "show")
    assert done.returncode == 2
    assert f"{file}: " in done.stderr
    assert told in done.stderr
    if "agent" in text.partition("=")[0]:
        assert told in roofwatch("agent").stderr


def test_a_file_that_others_can_change_is_refused(roofwatch: Roofwatch, file: Path) -> None:
    """It says where records go and who is believed."""
    file.chmod(0o666)
    done = roofwatch("config", "show")
    assert (done.returncode, f"chmod go-w {file}" in done.stderr) == (2, True)


def test_which_file_is_read(roofwatch: Roofwatch, file: Path, tmp_path: Path) -> None:
    """That of --config, else of the variable; a name of nothing is none; one that is not there is a mistake."""
    other = tmp_path / "other.toml"
    other.write_text("[agent]\ninterval = 5\n")
    shown = ("config", "show", "agent", "--origin", "--format", "json")
    assert rows(roofwatch(*shown, "--config", other))["agent.interval"] == (5.0, str(other))
    variable = {"ROOFWATCH_CONFIG": str(other)}
    assert rows(roofwatch(*shown, env=variable))["agent.interval"] == (5.0, str(other))
    assert rows(roofwatch(*shown, "--config", file, env=variable))["agent.interval"] == (30.0, str(file))
    assert rows(roofwatch(*shown, env={"ROOFWATCH_CONFIG": ""}))["agent.interval"] == (60.0, "default")
    done = roofwatch(*shown, "--config", tmp_path / "none.toml")
    assert (done.returncode, "cannot be read: No such file" in done.stderr) == (2, True)


def test_a_variable_that_is_no_setting_is_told_and_harms_nothing(roofwatch: Roofwatch) -> None:
    """It may be one of a newer version."""
    done = roofwatch("config", "show", "agent", env={"ROOFWATCH_AGENT_INTERVALL": "5"})
    assert done.returncode == 0
    told = "there is no setting for the variable ROOFWATCH_AGENT_INTERVALL; did you mean 'ROOFWATCH_AGENT_INTERVAL'?"
    assert told in done.stderr


def test_what_kubernetes_tells_of_a_service_of_ours_is_no_mistake(roofwatch: Roofwatch) -> None:
    """A service called roofwatch-store gives such variables to every pod."""
    names = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_GRPC", "PORT", "PORT_7431_TCP", "PORT_7431_TCP_ADDR")
    done = roofwatch(
        "config", "show", "store", env={f"ROOFWATCH_STORE_{name}": "tcp://10.0.0.1:7431" for name in names}
    )
    assert (done.returncode, done.stderr) == (0, "")
