"""An agent is killed before it reaches the store, and its next boot sends what it had sealed."""

from __future__ import annotations

from store_builders import GEMM, segment_of, stat, window_of

from roofwatch.model.record import Node
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import schema
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.ingest import Writer
from roofwatch.store.load import Hello
from roofwatch.store.queries import Queries
from roofwatch.store.unpack import Unpacker


def test_drops_of_a_boot_that_never_said_hello(db: Database, writer: Writer) -> None:
    """They are the node's, and the boot is known with the version of the one that sent for it."""
    writer.submit(Hello("agent-a", "boot-a", "0.1.0", Node("gpu-07", "boot-1"))).result(10)
    window = window_of("a", [stat(GEMM, [5])])
    sent = [
        codec.seal(codec.segment([window], {"spool_age": 3}), "agent-a", "killed", 1),
        segment_of([window_of("b", [stat(GEMM, [5])])], 1),
        codec.seal(codec.segment([], {"spool_age": 4}), "agent-a", "killed", 2),
        codec.seal(codec.segment([], {"spool_age": 8}), "agent-b", "stranger", 1),  # whose node nobody told
    ]
    for envelope in sent:
        assert writer.submit(Unpacker().unpack(envelope)).result(10).status == pb.STORED
    rows = Queries(db).run("nodes", Filter())["rows"]
    assert [(row["node"], row["agent_drops"]) for row in rows] == [("gpu-07", {"spool_age": 7})]
    with db.read() as connection:
        a = schema.agents.c
        found = connection.execute(schema.agents.select().with_only_columns(a.name, a.boot, a.version)).all()
    assert sorted(map(tuple, found)) == [("agent-a", "boot-a", "0.1.0"), ("agent-a", "killed", "0.1.0")]
