"""Prometheus' configuration and the alerts, by its own tool where it is there and by a parser everywhere."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from deploy_files import ROOT

FOLDER = ROOT / "deploy" / "prometheus"


def promtool(*words: object) -> None:
    """Run it; it has nothing to say against us."""
    if shutil.which("promtool") is None:
        pytest.skip("there is no promtool here: apt-get install prometheus, or put it on the PATH")
    done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def read(name: str) -> Any:
    """One of the files."""
    return yaml.safe_load((FOLDER / name).read_text())


def test_the_configuration_is_one(postgres_compose: dict[str, Any]) -> None:
    """The files it names lie beside it, and the targets are services with metrics at these ports."""
    config = read("prometheus.yml")
    assert all((FOLDER / name).is_file() for name in config["rule_files"])
    store, agent = config["scrape_configs"]
    assert all((FOLDER / name).is_file() for found in agent["file_sd_configs"] for name in found["files"])
    targets = [*store["static_configs"][0]["targets"], *read("agents.yml")[0]["targets"]]
    for service, port in (target.split(":") for target in targets):
        command = postgres_compose["services"][service]["command"]
        assert command[command.index("--metrics") + 1] == f"0.0.0.0:{port}"
    mounts = postgres_compose["services"]["prometheus"]["volumes"]
    assert {"/etc/prometheus": str(FOLDER)}.items() <= {m["target"]: m["source"] for m in mounts}.items()
    assert "--config.file=/etc/prometheus/prometheus.yml" in postgres_compose["services"]["prometheus"]["command"]


def test_every_alert_says_what_to_do() -> None:
    """Unique names, expressions that can be read, a severity, and two sentences."""
    rules = [rule for group in read("rules.yml")["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 8
    for rule in rules:
        promql_parser.parse(rule["expr"])
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert "{{ $labels.instance }}" in rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")


def test_promtool_reads_the_configuration() -> None:
    """Prometheus' own checks of the configuration, the rules and what is discovered."""
    promtool("check", "config", FOLDER / "prometheus.yml")


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    """Series worked out by hand: what fires when, and what does not."""
    text = (Path(__file__).parent / "rules_test.yml").read_text()
    (tmp_path / "test.yml").write_text(text.replace("{RULES}", str(FOLDER / "rules.yml")))
    promtool("test", "rules", tmp_path / "test.yml")
