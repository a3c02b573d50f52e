"""What Grafana does to a query before it asks Postgres: variables, then the macros of its Postgres data source."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "grafana"
SECOND_NS = 10**9
# A macro's arguments hold no ")" and are parted by ",": the data source looks no further.
_MACRO = re.compile(r"\$(__\w+)\(([^)]*)\)")
_VARIABLE = re.compile(r"\$\{(\w+)(?::(\w+))?\}|\$(__interval|__range)\b")


@dataclass(frozen=True)
class Time:
    """The time shown, in Unix ns."""

    begin_ns: int
    end_ns: int


def boards() -> dict[str, dict[str, Any]]:
    """The dashboards by file name."""
    return {path.name: json.loads(path.read_text()) for path in sorted((FOLDER / "dashboards").glob("*.json"))}


def panels(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every panel that shows something, those of folded rows too."""
    for panel in board["panels"]:
        yield from panels(panel) if panel["type"] == "row" else (panel,)


def queries(kind: str) -> Iterator[tuple[str, str]]:
    """Every query of a kind of data source, and where it stands: the panels' and the variables'."""
    for name, board in boards().items():
        for panel in panels(board):
            for target in panel["targets"]:
                if target["datasource"]["type"] == kind:
                    yield f"{name}: {panel['title']} {target['refId']}", target.get("rawSql") or target["expr"]
        for variable in board["templating"]["list"]:
            if variable["datasource"]["type"] == kind:
                yield f"{name}: ${variable['name']}", variable["query"]


def told(values: list[str], form: str) -> str:
    """A variable's value in a query: ``sqlstring`` quotes each."""
    assert form == "sqlstring", f"{form!r}: text from a database goes into a query quoted, or not at all"
    return ",".join("'" + value.replace("'", "''") + "'" for value in values)


def expanded(query: str, time: Time, variables: Mapping[str, list[str]], interval: str = "60s") -> str:
    """The statement that reaches Postgres.

    Raises:
        ValueError: a macro that the data source does not have.
    """

    def variable(match: re.Match[str]) -> str:
        return interval if match[3] else told(variables[match[1]], match[2] or "")

    def macro(match: re.Match[str]) -> str:
        arguments = [part.strip() for part in match[2].split(",")]
        match match[1]:
            case "__unixEpochNanoFilter":
                return f"{arguments[0]} >= {time.begin_ns} AND {arguments[0]} <= {time.end_ns}"
            case "__unixEpochNanoFrom":
                return str(time.begin_ns)
            case "__unixEpochNanoTo":
                return str(time.end_ns)
            case "__unixEpochGroup":
                seconds = int(arguments[1].removesuffix("s"))
                return f"floor(({arguments[0]})/{seconds})*{seconds}"
            case other:
                raise ValueError(f"${other} is no macro that we know")

    return _MACRO.sub(macro, _VARIABLE.sub(variable, query))


def plain(query: str) -> str:
    """PromQL as Prometheus is asked: what Grafana puts in is some length of time."""
    return re.sub(r"\$__(rate_interval|range|interval)\b", "5m", query)
