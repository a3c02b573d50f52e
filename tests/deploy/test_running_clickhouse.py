"""The store of docker-compose.clickhouse.yml as its container would run it, on a real ClickHouse engine.

One engine, not a cluster: what a cluster's name adds to the statements is in tests/store_clickhouse, and the cluster's
configuration in test_compose.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from clickhouse_server import running_clickhouse
from deploy_containers import Machine, until
from deploy_files import ROOT, image_check, read
from store_builders import GEMM, segment_of, send, stat, window_of

from roofwatch.cli.asking import ask
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.filter import Filter


@pytest.mark.timeout(300)  # the engine's start alone may take three minutes
def test_the_store_runs_on_clickhouse(tmp_path: Path) -> None:
    """Its password comes from a file, its journal lies in its volume, a window that is acknowledged is in `top`."""
    services = read("docker-compose.clickhouse.yml")["services"]
    environment = services["store"]["environment"]
    environment["ROOFWATCH_DB_URL"] = environment["ROOFWATCH_DB_URL"].removesuffix("?cluster=roofwatch")
    (tmp_path / "var").mkdir()
    shutil.copytree(ROOT / "deploy" / "secrets", tmp_path / "secrets")
    machine = Machine(services, tmp_path, tmp_path / "secrets")
    with running_clickhouse() as server:
        server.run("CREATE DATABASE roofwatch")
        machine.ports["8123"] = server.port
        machine.start("store")
        try:
            until(lambda: not machine.healthy("store", image_check("store")), 60, lambda: machine.log("store"))
            address = machine.here("store:7431")
            replies = send(address, [segment_of([window_of("w", [stat(GEMM, [10, 20])])], 1)], 1)
            assert replies[0].ack.status == pb.STORED
            assert (tmp_path / "var" / "journal.db").exists()

            def rows() -> object:
                return ask("top", Filter(), 0, store=address, db=None)["rows"]

            found = until(rows, 30, lambda: machine.log("store"))
            assert [(row["kernel"], row["total_ns"]) for row in found] == [(GEMM.kernel, 30)]
        finally:
            code = machine.stop("store")
    assert code == 0, machine.log("store")
    assert "roofwatch-trial" not in machine.log("store")
