"""Settings: declared once, and flags win over the environment, which wins over defaults."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from roofwatch.agent import config, counters
from roofwatch.agent.config import Config, parse
from roofwatch.model.errors import UsageError


def test_flags_win_over_environment_over_defaults():
    """--interval from the flag, --steps from the environment, --duration-ms from neither."""
    environ = {"ROOFWATCH_AGENT_INTERVAL": "9", "ROOFWATCH_AGENT_STEPS": "5", "HOME": "/home/u"}

    chosen = parse(["--interval", "7"], environ)

    assert (chosen.interval, chosen.steps, chosen.duration_ms) == (7.0, 5, 200)
    assert chosen.state == "/home/u/.local/state/roofwatch"


def test_paths_follow_xdg_and_the_hooks_variable():
    """The socket is where the hook looks; the state folder where XDG says."""
    environ = {"XDG_RUNTIME_DIR": "/run/user/7", "XDG_STATE_HOME": "/s", "HOME": "/h"}
    assert parse([], environ).socket == "/run/user/7/roofwatch/agent.sock"
    assert parse([], environ).state == "/s/roofwatch"
    assert parse([], {**environ, "ROOFWATCH_SOCKET": "/x.sock", "ROOFWATCH_STORE": "a:1"}) == Config(
        socket="/x.sock", state="/s/roofwatch", store="a:1"
    )


def test_flags_without_a_value():
    """--system and --insecure are off unless given, by flag or variable; --user takes --system back."""
    assert not parse([], {}).system
    assert parse(["--system", "--insecure"], {}).system
    assert parse([], {"ROOFWATCH_AGENT_SYSTEM": "yes"}).system
    assert not parse(["--user"], {"ROOFWATCH_AGENT_SYSTEM": "1"}).system


def test_labels():
    """K=V joined by commas; a value may hold an equals sign."""
    assert parse(["--labels", "cluster=a, rack=7,q=x=y"], {}).labels == {"cluster": "a", "rack": "7", "q": "x=y"}


SETS = "PipeUtilization, ArithmeticUtilization, MemoryAccess"


@pytest.mark.parametrize(
    ("arguments", "environ", "told"),
    [
        (["--interval", "soon"], {}, "--interval 'soon': must be a number"),
        (["--interval", "0"], {}, "--interval '0': must be at least 0.5"),
        (["--interval", "nan"], {}, "--interval 'nan': must be at least 0.5"),
        (["--interval", "inf"], {}, "--interval 'inf': must be at least 0.5"),
        ([], {"ROOFWATCH_AGENT_STEPS": "1.5"}, "ROOFWATCH_AGENT_STEPS '1.5': must be a number"),
        (["--labels", "rack"], {}, "--labels 'rack': must be key=value, several joined by commas"),
        (
            ["--npu-metrics", "Everything"],
            {},
            f"--npu-metrics 'Everything': must be one or more of {SETS}, joined by commas",
        ),
        ([], {"ROOFWATCH_AGENT_SYSTEM": "maybe"}, "ROOFWATCH_AGENT_SYSTEM 'maybe': must be 1 or 0"),
    ],
)
def test_a_wrong_value_names_where_it_came_from(arguments, environ, told):
    """One sentence, exit code 2."""
    with pytest.raises(UsageError) as error:
        parse(arguments, environ)

    assert str(error.value) == told
    assert error.value.exit_code == 2


def test_help_tells_every_setting_with_its_variable():
    """Each field of the configuration is in --help, which needs neither grpc nor protobuf nor numpy."""
    program = (
        "import sys\nfrom roofwatch.agent import config\n"
        "try:\n    config.parse(['--help'], {})\n"
        "except SystemExit:\n    print(sorted({'grpc', 'numpy', 'sqlite3', 'google.protobuf'} & set(sys.modules)))\n"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    for declared in fields(Config):
        assert "--" + declared.name.replace("_", "-") in out
        assert f"[{config.variable_of(declared.name)}]" in " ".join(out.split())
    assert out.endswith("[]\n")


def test_the_documentation_tells_every_setting_and_every_drop_reason():
    """docs/agent.md holds each flag with its variable, and each reason of the counters."""
    text = (Path(__file__).parents[2] / "docs" / "agent.md").read_text()
    reasons = [value for name, value in vars(counters).items() if name.isupper() and isinstance(value, str)]

    assert len(reasons) > 10
    for declared in fields(Config):
        assert f"| `--{declared.name.replace('_', '-')}` | `{config.variable_of(declared.name)}` |" in text
    for reason in reasons:
        assert f"`{reason}`" in text


def test_the_documentation_tells_what_a_running_agent_does_not_take():
    """docs/agent.md lists the settings that need a restart, and no others."""
    text = (Path(__file__).parents[2] / "docs" / "agent.md").read_text()
    listed = text.partition("It takes all but ")[2].partition(";")[0]
    cold = {field.name for field in fields(Config)} - config.HOT
    assert {word.strip("`,").replace("-", "_") for word in listed.split() if word.startswith("`")} == cold
    assert {field.name for field in fields(Config)} >= config.HOT
