"""The dashboards: whole, and every query of theirs answered by a real database, or of metrics that there are."""

from __future__ import annotations

import math
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import Any

import deploy_fleet as fleet
import deploy_grafana as grafana
import promql_parser
import pytest
import yaml
from deploy_files import ROOT
from postgres_server import PASSWORD, Postgres, running_postgres

from roofwatch.store import database

NOW_NS = time.time_ns()
DAY = grafana.Time(NOW_NS - 86_400 * grafana.SECOND_NS, NOW_NS)
CHOSEN: Mapping[str, list[str]] = {"node": ["gpu-01"], "kernel": ["nvjet_tst_128x256"]}
# Of an hour, of windows or of the present: units of what is shown, as Grafana names them.
UNITS = {"short", "none", "percentunit", "ns", "s", "bytes", "ops", "hertz", "watt", "celsius"}
READER = "roofwatch_reader"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A server."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def name(postgres: Postgres) -> str:
    """A database that a store has filled, with a role for dashboards."""
    name = postgres.create()
    opened = database.open(postgres.url(name))
    try:
        fleet.fill(opened, NOW_NS)
    finally:
        opened.close()
    postgres.run(f"CREATE ROLE {READER} LOGIN PASSWORD 'x'")
    postgres.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {READER}", name)
    return name


def answered(postgres: Postgres, name: str, query: str, chosen: Mapping[str, list[str]] = CHOSEN) -> Any:
    """Columns and rows of a dashboard's query, as the reading role gets them."""
    import psycopg  # noqa: PLC0415  # skipped where it is not there

    url = postgres.url(name, READER, "x").replace("+psycopg", "")
    with psycopg.connect(url) as connection:
        connection.read_only = True
        cursor = connection.execute(grafana.expanded(query, DAY, chosen))  # type: ignore[arg-type]
        return [column.name for column in cursor.description or ()], cursor.fetchall()


def test_every_query_has_rows(postgres: Postgres, name: str) -> None:
    """Each panel and variable on Postgres shows something of a day of a fleet, to a role that may only read."""
    asked = list(grafana.queries("grafana-postgresql-datasource"))
    assert len(asked) > 40
    empty = []
    for where, query in asked:
        _, rows = answered(postgres, name, query)
        if not any(value is not None for row in rows for value in row):
            empty.append(where)
    assert empty == []


def test_series_have_times_and_tables_their_units(postgres: Postgres, name: str) -> None:
    """A series has its time first, once a name; a column with a unit is there, and each number has one."""
    for board in grafana.boards().values():
        for panel in grafana.panels(board):
            for target in panel["targets"]:
                if "rawSql" not in target:
                    continue
                columns, rows = answered(postgres, name, target["rawSql"])
                if panel["type"] == "timeseries":
                    assert (target["format"], columns[0]) == ("time_series", "time")
                    keys = [row[:2] if columns[1] == "metric" else row[:1] for row in rows]
                    assert len(set(keys)) == len(keys), panel["title"]
                    assert keys == sorted(keys, key=lambda key: key[0])
                if panel["type"] == "table":
                    units = {rule["matcher"]["options"] for rule in panel["fieldConfig"]["overrides"]}
                    assert units <= set(columns), panel["title"]
                    numbers = {c for c, v in zip(columns, rows[0], strict=True) if not isinstance(v, str | type(None))}
                    assert {c for c in numbers if not c.startswith("last")} <= units, panel["title"]


def test_figures_by_hand(postgres: Postgres, name: str) -> None:
    """A kernel that takes the same time wherever it runs: two ranks, six windows an hour, in hours that are over."""
    board = {panel["title"]: panel for panel in grafana.panels(grafana.boards()["kernel.json"])}
    assert len(board) == 12
    chosen = {"node": ["gpu-00", "gpu-01"], "kernel": [fleet.STEADY.kernel]}

    def figure(title: str) -> Any:
        return answered(postgres, name, board[title]["targets"][0]["rawSql"], chosen)[1][0][0]

    seen = 2 * 6 * (fleet.HOURS - 1)  # windows; the last hour is not over, or over since less than five minutes
    assert figure("Calls seen") in {fleet.CALLS * seen, fleet.CALLS * (seen - 12)}
    seen = int(figure("Calls seen")) // fleet.CALLS
    assert (figure("Bound"), figure("Mean call"), figure("Roof")) == ("memory", fleet.CALL_NS, 0.5)
    spans = [w.devices[0].span_ns for w in fleet.windows(NOW_NS) if w.process.model == "llama"][:seen]
    stands = [math.floor(fleet.CALLS * fleet.CALL_NS * fleet.REPRESENTS_NS / span + 0.5) for span in spans]
    assert figure("Device time") == sum(stands)
    columns, rows = answered(postgres, name, board["Shapes"]["targets"][0]["rawSql"], chosen)
    assert [row[columns.index("share")] for row in rows] == [1]
    assert rows[0][columns.index("winnable")] == sum(stands) / 2
    nodes, rows = answered(postgres, name, board["Nodes"]["targets"][0]["rawSql"], chosen)
    assert {row[nodes.index("node")]: row[nodes.index("of the usual")] for row in rows} == {"gpu-00": 1, "gpu-01": 1}


def test_a_backup_comes_back(postgres: Postgres, name: str) -> None:
    """The commands of docs/deploy.md: everything is there again as it was, and the reading role still reads."""
    text = (ROOT / "docs" / "deploy.md").read_text()
    dump, restore = (
        re.search(rf"docker compose exec (?:-T )?postgres ({program} .*) [<>] roofwatch\.dump", text)
        for program in ("pg_dump", "pg_restore")
    )
    assert dump is not None
    assert restore is not None
    env = {"PGHOST": str(postgres.folder), "PGPASSWORD": PASSWORD, "PATH": str(postgres.programs)}

    def run(words: str, told: bytes = b"") -> bytes:
        program, *rest = words.split()
        rest[-1] = name if rest[-1] == "roofwatch" else rest[-1]  # the database; the user has the same name
        command = [postgres.programs / program, *rest]
        done = subprocess.run(command, input=told, env=env, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout

    counted = "SELECT count(*), sum(total_ns), (SELECT count(*) FROM dashboard_devices) FROM dashboard_kernel_hours"
    before = postgres.run(counted, name)
    kept = run(dump[1])
    postgres.run("DELETE FROM windows; DROP TABLE kernel_hours CASCADE", name)
    run(restore[1], kept)
    assert postgres.run(counted, name) == before
    assert answered(postgres, name, counted)[1] == before
    database.open(postgres.url(name)).close()


def test_a_text_that_is_no_name_changes_no_query(postgres: Postgres, name: str) -> None:
    """What a job called a kernel goes into queries quoted."""
    chosen = {"node": ["gpu-01"], "kernel": ["'); DROP TABLE windows; --"]}
    for where, query in grafana.queries("grafana-postgresql-datasource"):
        if "${kernel" in query:
            answered(postgres, name, query, chosen)
            assert re.findall(r"\$\{\w+[^}]*\}", query) == re.findall(r"\$\{\w+:sqlstring\}", query), where
    assert postgres.run("SELECT count(*) > 0 FROM windows", name) == [(True,)]


def test_dashboards_are_whole() -> None:
    """Names and ids are unique; panels lie beside each other; each says what it shows, and in what unit."""
    boards = grafana.boards()
    assert set(boards) == {"fleet.json", "node.json", "kernel.json", "cost.json"}
    assert len({board["uid"] for board in boards.values()}) == len(boards)
    assert len({board["title"] for board in boards.values()}) == len(boards)
    given = (grafana.FOLDER / "provisioning" / "datasources" / "roofwatch.yml").read_text()
    sources = {source["uid"]: source["type"] for source in yaml.safe_load(given)["datasources"]}
    for name, board in boards.items():
        ids = [panel["id"] for panel in board["panels"]]
        assert len(set(ids)) == len(ids)
        assert board["description"]
        assert {variable["name"] for variable in board["templating"]["list"]} >= set(
            re.findall(r"\$\{(\w+):", str(board["panels"]).replace("${__", ""))
        )
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not cells & taken, f"{name}: {panel['title']} lies on another"
            assert at["x"] + at["w"] <= 24
            taken |= cells
            assert panel["title"]
        for panel in grafana.panels(board):
            assert panel["description"].endswith("."), f"{name}: {panel['title']}"
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
            for rule in panel["fieldConfig"]["overrides"]:
                units = [p["value"] for p in rule["properties"] if p["id"] == "unit"]
                assert set(units) <= UNITS
            for target in (panel, *panel["targets"]):
                assert sources[target["datasource"]["uid"]] == target["datasource"]["type"]


def test_links_lead_somewhere() -> None:
    """A node and a kernel in a table lead to their dashboards, by a variable that these have."""
    boards = {board["uid"]: board for board in grafana.boards().values()}
    found = re.findall(r"/d/([\w-]+)\?var-(\w+)=", str(boards))
    assert {uid for uid, _ in found} == {"roofwatch-node", "roofwatch-kernel"}
    for uid, variable in found:
        assert variable in {v["name"] for v in boards[uid]["templating"]["list"]}


def test_queries_of_metrics_can_be_read() -> None:
    """Each is PromQL."""
    asked = list(grafana.queries("prometheus"))
    assert len(asked) > 15
    for _, query in asked:
        promql_parser.parse(grafana.plain(query))


def test_what_grafana_reads_is_where_it_looks(postgres_compose: dict[str, Any]) -> None:
    """Folders, role, password and addresses of the provisioning are those of the service."""
    service = postgres_compose["services"]["grafana"]
    mounts = {mount["target"]: mount["source"] for mount in service["volumes"]}
    assert mounts["/etc/grafana/provisioning"] == str(grafana.FOLDER / "provisioning")
    provider = yaml.safe_load((grafana.FOLDER / "provisioning" / "dashboards" / "roofwatch.yml").read_text())
    path = provider["providers"][0]["options"]["path"]
    assert mounts[path] == str(grafana.FOLDER / "dashboards")
    assert service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == f"{path}/fleet.json"
    text = (grafana.FOLDER / "provisioning" / "datasources" / "roofwatch.yml").read_text()
    assert set(re.findall(r"\$(ROOFWATCH_\w+)", text)) <= set(service["environment"])
    secrets = re.findall(r"\$__file\{/run/secrets/(\w+)\}", text)
    assert secrets == ["reader_password"]
    assert set(secrets) <= {secret["source"] for secret in service["secrets"]}
    assert f"user: {READER}\n" in text
    assert READER in (ROOT / "deploy" / "postgres" / "10-reader.sh").read_text()
