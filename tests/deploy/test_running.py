"""The services of docker-compose.yml as their containers would run them, until a window has come all the way.

Real processes with the same commands, environments, health checks and first steps of the database; only paths and
addresses are this machine's. What an engine adds (isolation, restarts, the images themselves) is not tested here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import deploy_containers as containers
import deploy_grafana as grafana
import promql_parser
import pytest
import yaml
from deploy_containers import Machine, until
from deploy_files import ROOT, image_check, read
from postgres_server import NOBODY, Postgres, binaries

from roofwatch.cli.asking import ask
from roofwatch.store.filter import Filter

pytestmark = [pytest.mark.slow]
OF_PROMETHEUS = {"up", "ALERTS"}  # its own
IF_IT_HAPPENS = {"roofwatch_agent_drops_total", "roofwatch_agent_refusals_total"}  # no sample until there is a reason


class Database(Postgres):
    """The service ``postgres``: made and started as its image does it."""

    machine: Machine

    def url(self, database: str, user: str = "roofwatch", password: str | None = None) -> str:
        """As given to --db, over TCP."""
        secret = password or (self.machine.secrets / "postgres_password").read_text().strip()
        return f"postgresql+psycopg://{user}:{secret}@127.0.0.1:{self.machine.ports['5432']}/{database}"

    def initialize(self) -> None:
        """As the image's entrypoint does on an empty volume."""
        env = self.machine.environment("postgres")
        os.chown(self.folder, NOBODY, NOBODY) if os.geteuid() == 0 else None
        options = ["-U", env["POSTGRES_USER"], "--auth-host=scram-sha-256", f"--pwfile={env['POSTGRES_PASSWORD_FILE']}"]
        words = env["POSTGRES_INITDB_ARGS"].split()
        command = [self.programs / "initdb", "-D", self.folder / "data", "--no-sync", *options, *words]
        as_nobody: Any = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", **as_nobody)
        assert done.returncode == 0, done.stderr

    def prepare(self) -> None:
        """The database and what is mounted into /docker-entrypoint-initdb.d, by the image's tools, over the socket."""
        env = self.machine.environment("postgres")
        env |= {"PATH": f"{self.programs}:{env['PATH']}", "PGHOST": str(self.folder), "PGPORT": str(self.port)}
        make = [self.programs / "createdb", "-U", env["POSTGRES_USER"], env["POSTGRES_DB"]]
        mounted = next(
            Path(m["source"]) for m in self.machine.services["postgres"]["volumes"] if "initdb.d" in m["target"]
        )
        for command in (make, *sorted(mounted.glob("*.sh"))):
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, "")

    @property
    def port(self) -> int:
        """Of TCP and of the socket."""
        return self.machine.ports["5432"]


def settings_of(command: Sequence[str]) -> list[str]:
    """The -c settings of the service's command."""
    assert command[0] == "postgres"
    assert set(command[1::2]) == {"-c"}
    return list(command[2::2])


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """All that starts without a profile, in the order of the file; and Prometheus, where there is one."""
    services = read("docker-compose.yml", ROOFWATCH_DEMO_THREADS="1")["services"]
    folder = Path(tempfile.mkdtemp(prefix="rwdc-"))  # a socket's name must be short
    folder.chmod(0o755)
    for name in ("var", "run", "home", "tsdb"):
        (folder / name).mkdir()
    shutil.copytree(ROOT / "deploy" / "secrets", folder / "secrets")
    made = Machine(services, folder, folder / "secrets")
    (folder / "pg").mkdir()
    more = ["listen_addresses=127.0.0.1", f"port={made.ports['5432']}"]
    server = Database(binaries(), folder / "pg", [*settings_of(services["postgres"]["command"]), *more])
    server.machine = made
    try:
        server.initialize()
        server_starts(server)
        for name in ("store", "agent", "job"):
            made.start(name)
            if name != "job":
                until(lambda n=name: not made.healthy(n, image_check(n)), 30, lambda n=name: made.log(n))  # type: ignore[misc]
        yield made
    finally:
        for name in reversed(list(made.running)):
            made.stop(name)
        server.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)


def server_starts(server: Database) -> None:
    """Start it, as the image does, and make its first steps; then it is healthy."""
    assert server.machine.healthy("postgres", pg_isready(server)) != ""
    try:
        server.start()
    except pytest.skip.Exception as error:  # a server that is there and does not take its settings is a fault
        pytest.fail(str(error))
    server.prepare()
    assert server.machine.healthy("postgres", pg_isready(server)) == ""


def pg_isready(server: Database) -> list[str]:
    """The service's health check with the port that is not the usual one here."""
    program, *words = server.machine.services["postgres"]["healthcheck"]["test"][1:]
    return [str(server.programs / program), *words, f"--port={server.port}"]


def metrics(machine: Machine, port: str) -> dict[str, set[str]]:
    """Names of samples by the text of /metrics, with the names of their labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{machine.ports[port]}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found: dict[str, set[str]] = {}
    for line in lines:
        if not line.startswith("#"):
            name, _, rest = line.partition(" ")[0].partition("{")
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', line if rest else ""))
    return found


def roofwatch(machine: Machine, *words: str) -> dict[str, Any]:
    """What somebody in the store's container asks: `docker compose exec store roofwatch …`."""
    asked = ["roofwatch", *words, "--store", "127.0.0.1:7431", "--format", "json"]
    environment = machine.environment("store") | {"ROOFWATCH_DB": ""}
    command = [machine.here(word) for word in asked]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_window_arrives(machine: Machine) -> None:
    """The job registers, the agent takes a window, the store keeps it in Postgres, `top` shows it with verdicts."""
    logs = lambda: "\n".join(machine.log(name)[-2000:] for name in ("store", "agent", "job"))  # noqa: E731
    address = machine.here("store:7431")

    def judged() -> set[str]:  # asked here: a command each time would take a core for a second
        rows = ask("top", Filter(model="demo-encoder"), 0, store=address, db=None)["rows"]
        return {row["op"] for row in rows if row["bound"] in {"compute", "memory", "latency"}}

    # The first window has no shapes; then verdicts rest on what the job measured of this CPU before it began.
    until(judged, 90, logs)
    assert {"aten::addmm", "aten::mm"} & judged()
    top = roofwatch(machine, "top", "--model", "demo-encoder")
    assert top["coverage"]["windows"] > 1
    assert top["rows"]


def test_what_dashboards_ask_for_is_there(machine: Machine) -> None:
    """Every metric and label of dashboards and alerts is one that the running store or agent tells."""
    found = {**metrics(machine, "9432"), **metrics(machine, "9431")}
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text())
    asked = [grafana.plain(query) for _, query in grafana.queries("prometheus")]
    asked += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    named = set()
    for query in asked:
        promql_parser.parse(query)
        named |= set(re.findall(r"\b(?:roofwatch|process|python)_\w+\b", query)) | (
            OF_PROMETHEUS & set(query.split("{"))
        )
    assert len(named) > 20
    assert named - set(found) - OF_PROMETHEUS <= IF_IT_HAPPENS
    for query in asked:
        for name, labels in re.findall(r"\b(roofwatch_\w+)\{([^}]*)\}", query):
            assert set(re.findall(r"(\w+)\s*[=!]", labels)) <= found.get(name, {"reason"})


def test_the_reading_role_reads_and_no_more(machine: Machine) -> None:
    """Dashboards' role, made before there was a table, reads what the store made later, and cannot write."""
    import psycopg  # noqa: PLC0415  # skipped where it is not there

    secret = (machine.secrets / "reader_password").read_text().strip()
    url = f"postgresql://roofwatch_reader:{secret}@127.0.0.1:{machine.ports['5432']}/roofwatch"
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute("SELECT count(*) FROM dashboard_windows").fetchone() is not None
        assert connection.execute("SELECT count(*) FROM kernel_hours").fetchone() is not None
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("DELETE FROM windows")
        connection.execute("SET default_transaction_read_only = off")
        for statement in ("DELETE FROM windows", "CREATE TABLE mine (x int)", "DROP VIEW dashboard_windows"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


def test_a_store_that_loses_its_database_says_so(machine: Machine) -> None:
    """The image's health check is the store's own health: a port without metrics, or a gauge that is 0, is not well."""
    check = image_check("store")
    assert machine.healthy("store", check) == ""
    assert "is not 1" in machine.healthy("store", [*check[:-1], "roofwatch_store_queue_bytes"])
    assert "no metrics" in machine.healthy("store", [*check[:-2], str(containers.free_port()), check[-1]])


def test_prometheus_takes_what_it_is_given(machine: Machine) -> None:
    """A real server with our configuration: both jobs are up, and every rule is evaluated."""
    if shutil.which("prometheus") is None:
        pytest.skip("there is no prometheus here: apt-get install prometheus, or put it on the PATH")
    shutil.copytree(ROOT / "deploy" / "prometheus", machine.folder / "prometheus")
    for file in (machine.folder / "prometheus").iterdir():
        text = machine.here(file.read_text())
        file.write_text(re.sub(r"(scrape|evaluation)_interval: \w+", r"\1_interval: 1s", text))
    command = ["prometheus", *machine.services["prometheus"]["command"]]
    machine.services["prometheus"]["command"] = command
    machine.start("prometheus")

    def asked(path: str) -> Any:
        url = f"http://127.0.0.1:{machine.ports['9090']}/api/v1/{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def both() -> bool:
        targets = (asked("targets") or {}).get("activeTargets", [])
        return sorted(t["health"] for t in targets) == ["up", "up"]

    until(both, 20, lambda: machine.log("prometheus")[-2000:])

    def evaluated() -> list[dict[str, Any]]:
        rules = [rule for group in (asked("rules") or {}).get("groups", []) for rule in group["rules"]]
        return rules if rules and all(rule["health"] == "ok" for rule in rules) else []

    rules = until(evaluated, 20, lambda: str(asked("rules")))
    assert {rule["name"] for rule in rules if rule["state"] == "firing"} == set()
    value = asked("query?query=sum(roofwatch_store_serving)")["result"][0]["value"][1]
    assert value == "1"


def test_stopping_loses_nothing(machine: Machine) -> None:
    """SIGTERM, as `docker compose stop` sends it: the agent has given away what it had, and both exit with 0."""
    if "job" in machine.running:
        machine.stop("job")
    assert machine.stop("agent") == 0, machine.log("agent")
    assert machine.stop("store") == 0, machine.log("store")
    assert [line for line in machine.log("store").splitlines() if "Traceback" in line] == []
