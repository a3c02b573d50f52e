"""The compose files: read by Docker Compose, whole, and careful. Nothing here runs; test_running does that."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from deploy_files import ROOT, read

from roofwatch.store.clickhouse import ddl

OURS = {
    "store": "store",
    "agent": "agent",
    "job": "job",
}  # services, and the stages of the Dockerfile they are built from


def test_the_services(postgres_compose: dict[str, Any]) -> None:
    """What starts without a profile is the store, its database, an agent and a job; dashboards are asked for."""
    started = {name for name, service in postgres_compose["services"].items() if not service.get("profiles")}
    assert started == {"postgres", "store", "agent", "job"}
    asked = {
        name: service["profiles"] for name, service in postgres_compose["services"].items() if "profiles" in service
    }
    assert asked == {"prometheus": ["dashboards"], "grafana": ["dashboards"]}
    clickhouse = read("docker-compose.clickhouse.yml")["services"]
    assert set(clickhouse) == {"clickhouse-1", "clickhouse-2", "keeper-3", "store", "agent", "job"}


def test_images_are_pinned_or_ours(compose: dict[str, Any]) -> None:
    """Ours are built here; of others the release is named, not what is newest one day."""
    for name, service in compose["services"].items():
        if name in OURS:
            assert service["build"] == {"context": str(ROOT), "dockerfile": "Dockerfile", "target": OURS[name]}
        else:
            assert "build" not in service
            assert re.fullmatch(r"[\w./-]+:v?\d+(\.\d+)+", service["image"]), service["image"]


def test_everything_that_can_be_asked_is(compose: dict[str, Any]) -> None:
    """Each service says whether it is well, itself or in its image; nothing waits for one that cannot."""
    image = (ROOT / "Dockerfile").read_text()
    for name, service in compose["services"].items():
        stage = image.partition(f" AS {name}\n")[2].partition("\nFROM ")[0]
        assert "healthcheck" in service or "HEALTHCHECK" in stage, name
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] == "service_healthy", f"{name} does not wait until {other} is well"


def test_nothing_is_more_open_than_it_must_be(compose: dict[str, Any]) -> None:
    """Ports are published on loopback; no service is privileged or gains rights; ours have none at all."""
    for name, service in compose["services"].items():
        assert all(port["host_ip"] == "127.0.0.1" for port in service.get("ports", []))
        assert not service.get("privileged")
        assert service.get("network_mode") != "host"
        if name in OURS:
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]


def test_what_is_mounted_is_there(compose: dict[str, Any]) -> None:
    """Folders and files of this repository exist, read only; volumes are declared; passwords have a file."""
    for service in compose["services"].values():
        for mount in service.get("volumes", []):
            if mount["type"] == "bind":
                assert Path(mount["source"]).exists(), mount["source"]
                assert mount["read_only"]
            else:
                assert mount["source"] in compose["volumes"]
        for secret in service.get("secrets", []):
            assert Path(compose["secrets"][secret["source"]]["file"]).read_text().strip()


def test_no_password_stands_in_the_file(compose: dict[str, Any]) -> None:
    """Passwords come as files from a folder that one variable names; letters and digits, so that no URL quotes them."""
    for service in compose["services"].values():
        for key, value in (service.get("environment") or {}).items():
            assert "PASSWORD" not in key or key.endswith("FILE") or value.startswith("/run/secrets/"), key
    for file in (ROOT / "deploy" / "secrets").glob("*_password"):
        assert re.fullmatch(r"[\w-]+\n", file.read_text())
    elsewhere = read("docker-compose.yml", ROOFWATCH_SECRETS="/etc/roofwatch/secrets")
    assert {secret["file"] for secret in elsewhere["secrets"].values()} == {
        f"/etc/roofwatch/secrets/{name}_password" for name in ("postgres", "reader", "grafana")
    }


def test_the_data_of_postgres_survives_its_container(postgres_compose: dict[str, Any]) -> None:
    """From 18 on the image keeps its data below /var/lib/postgresql; a volume on …/data would stay empty."""
    service = postgres_compose["services"]["postgres"]
    assert int(service["image"].partition(":")[2].partition(".")[0]) >= 18
    assert {"postgres": "/var/lib/postgresql"}.items() <= {
        mount["source"]: mount["target"] for mount in service["volumes"] if mount["type"] == "volume"
    }.items()


# ClickHouse's own configuration --------------------------------------------------------------------------------------


def settings(name: str) -> ET.Element:
    """One of ClickHouse's files."""
    return ET.parse(ROOT / "deploy" / "clickhouse" / name).getroot()  # noqa: S314 - our own file


@pytest.fixture
def clickhouse() -> dict[str, Any]:
    """The services of the file with ClickHouse."""
    found: dict[str, Any] = read("docker-compose.clickhouse.yml")["services"]
    return found


def test_the_cluster_is_the_one_that_the_store_names(clickhouse: dict[str, Any]) -> None:
    """Its name, its servers and their addresses agree between the URL, the configuration and the services."""
    url = clickhouse["store"]["environment"]["ROOFWATCH_DB_URL"]
    name = url.partition("cluster=")[2]
    cluster = settings("cluster.xml").find(f"remote_servers/{name}")
    assert cluster is not None
    replicas = [[host.text for host in shard.findall("replica/host")] for shard in cluster.findall("shard")]
    assert replicas == [["clickhouse-1", "clickhouse-2"]]
    assert all(clickhouse[host].get("hostname") == host for shard in replicas for host in shard)
    assert "@clickhouse-1:8123/" in url
    user = url.removeprefix("clickhousedb://").partition(":")[0]
    assert all(clickhouse[host]["environment"]["CLICKHOUSE_USER"] == user for host in replicas[0])
    database = url.rpartition("/")[2].partition("?")[0]
    assert all(clickhouse[host]["environment"]["CLICKHOUSE_DB"] == database for host in replicas[0])


def test_each_server_has_what_our_tables_ask_of_it(clickhouse: dict[str, Any]) -> None:
    """The macros of the statements that make replicated tables are defined, and tell the two replicas apart."""
    asked = set(re.findall(r"\{(\w+)\}", " ".join(ddl.statements("roofwatch")))) - {"database", "table", "uuid"}
    macros = settings("cluster.xml").find("macros")
    assert macros is not None
    assert asked
    assert asked <= {macro.tag for macro in macros}
    names = {
        macro.tag: {clickhouse[host]["environment"].get(macro.get("from_env", ""), macro.text) for host in SERVERS}
        for macro in macros
    }
    assert names["replica"] == set(SERVERS)
    assert len(names["shard"]) == 1


SERVERS = ("clickhouse-1", "clickhouse-2")


def test_keeper_has_a_majority_without_any_one_of_them(clickhouse: dict[str, Any]) -> None:
    """Three votes, each with its number and address; all settings that come from the environment are in it."""
    keeper = settings("keeper.xml")
    votes = {vote.findtext("hostname"): vote.findtext("id") for vote in keeper.findall(".//raft_configuration/server")}
    assert votes == {name: clickhouse[name]["environment"]["ROOFWATCH_KEEPER"] for name in (*SERVERS, "keeper-3")}
    nodes = settings("cluster.xml").findall("zookeeper/node")
    port = keeper.findtext("keeper_server/tcp_port")
    assert {node.findtext("host"): node.findtext("port") for node in nodes} == dict.fromkeys(votes, port)
    for file, names in {"cluster.xml": SERVERS, "keeper.xml": votes}.items():
        wanted = {element.get("from_env") for element in settings(file).iter() if element.get("from_env")}
        assert all(wanted <= set(clickhouse[name]["environment"]) for name in names if name)
