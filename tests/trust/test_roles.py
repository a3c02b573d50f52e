"""Every method of a running store for every kind of caller, and what a hostile agent can write: nothing of others."""

from __future__ import annotations

import queue
import re
import sqlite3
from contextlib import closing

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from site_of_trust import refusal
from store_builders import GEMM, hello_of, process_of, segment_of, stat, window_of

from roofwatch.model.record import BudgetState, ProcessState
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc

DENIED, NOBODY = "PERMISSION_DENIED", "UNAUTHENTICATED"


def stream(channel, host="gpu-07"):
    """Say hello as an agent; the store's answer."""
    calls = rpc.IngestStub(channel).Stream(iter([hello_of(host=host)]), timeout=20)
    assert next(calls).WhichOneof("body") == "hello"
    calls.cancel()


def reflect(channel, asked=None):
    """Ask what the server speaks."""
    request = asked or reflection_pb2.ServerReflectionRequest(list_services="")
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    return next(iter(stub.ServerReflectionInfo(iter([request]), timeout=20)))


def watch(channel):
    """The first word of a health watcher."""
    calls = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=20)
    next(calls)
    calls.cancel()


def check(channel):
    """How the store is."""
    health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=20)


def capture(channel):
    """Of a job that no agent has: there is no agent."""
    asked = pb.CaptureRequest(which=pb.FindProcesses(job="none"), steps=1, within_ms=1000)
    (event,) = rpc.ControlStub(channel).Capture(asked, timeout=20)
    assert (event.found.agents, len(event.found.targets)) == (0, 0)


def fetch(channel):
    """A trace that nobody keeps: who may ask hears so."""
    try:
        list(rpc.ControlStub(channel).GetTrace(pb.GetTraceRequest(window=bytes(16)), timeout=20))
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.NOT_FOUND:
            raise


METHODS = {
    "roofwatch.v1.Ingest/Stream": stream,
    "roofwatch.v1.Query/Run": lambda c: rpc.QueryStub(c).Run(pb.QueryRequest(query="nodes"), timeout=20),
    "roofwatch.v1.Control/Capture": capture,
    "roofwatch.v1.Control/ListTraces": lambda c: rpc.ControlStub(c).ListTraces(pb.TraceListRequest(), timeout=20),
    "roofwatch.v1.Control/GetTrace": fetch,
    "grpc.health.v1.Health/Check": check,
    "grpc.health.v1.Health/Watch": watch,
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": reflect,
}  # fmt: skip
HEALTH = {name for name in METHODS if "Health" in name}
MAY = {
    "ingest": HEALTH | {"roofwatch.v1.Ingest/Stream"},
    "read": HEALTH | {"roofwatch.v1.Query/Run"},
    "operate": HEALTH | {name for name in METHODS if "Control" in name},
    "admin": set(METHODS),
}


@pytest.mark.parametrize("role", ["ingest", "read", "operate", "admin", None])
@pytest.mark.parametrize("by", ["token", "certificate"])
def test_every_method_for_every_role(site, mutual, tokens, by, role):
    """A role opens its methods and no other, by token as by certificate; without one only health answers."""
    if by == "token":
        opened, refused = site.channel(tokens, bearer=role or ""), DENIED if role else NOBODY
    else:
        if role is None and not (site.certs / "nobody.pem").exists():
            from roofwatch.cli import authority  # noqa: PLC0415 - one case

            authority.issue(site.certs, authority.Wanted("nobody", hosts=("nobody",)), 1)
        opened, refused = site.channel(mutual, cert=role or "nobody"), DENIED if role else NOBODY
    with opened:
        for name, call in METHODS.items():
            code, details = refusal(lambda call=call: call(opened))
            assert code == ("OK" if name in MAY.get(role or "", HEALTH) else refused), (name, details)


def test_the_matrix_has_every_method(site, tokens):
    """What the server itself says that it speaks: a new method has to be put into the matrix above."""
    with site.channel(tokens, bearer="admin") as channel:
        spoken = set()
        for service in reflect(channel).list_services_response.service:
            asked = reflection_pb2.ServerReflectionRequest(file_containing_symbol=service.name)
            for data in reflect(channel, asked).file_descriptor_response.file_descriptor_proto:
                file = descriptor_pb2.FileDescriptorProto.FromString(data)
                spoken |= {f"{file.package}.{s.name}/{m.name}" for s in file.service for m in s.method}
    assert spoken - {"grpc.health.v1.Health/List"} == set(METHODS)


def test_a_token_and_a_certificate_that_do_not_fit_allow_nothing(site, mutual):
    """Each has a role; together they have none, so that a stolen one of a kind is not enough."""
    with site.channel(mutual, cert="ingest", bearer="read") as channel:
        assert refusal(lambda: METHODS["roofwatch.v1.Query/Run"](channel))[0] == DENIED
        assert refusal(lambda: stream(channel))[0] == DENIED
    with site.channel(mutual, cert="read", bearer="admin") as channel:
        assert refusal(lambda: METHODS["roofwatch.v1.Query/Run"](channel))[0] == "OK"


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Basic YTpi", "Bearer rw_" + "x" * 43, "bearer x", "Bearer " + "y" * 4000]
)
def test_a_header_that_is_no_token_opens_nothing(site, tokens, header):
    """Whatever it is; and it is not repeated."""
    with site.channel(tokens) as channel:
        run = rpc.QueryStub(channel).Run
        code, details = refusal(
            lambda: run(pb.QueryRequest(query="nodes"), metadata=(("authorization", header),), timeout=20)
        )
    assert code == NOBODY
    assert header.split()[-1] not in details or len(header.split()) == 1


class Agent:
    """A stream that says what a test wants, with the credentials of node gpu-a."""

    def __init__(self, channel, agent="agent-a", host="gpu-a"):
        self.outgoing = queue.SimpleQueue()
        self.outgoing.put(hello_of(agent=agent, host=host))
        self.replies = rpc.IngestStub(channel).Stream(iter(self.outgoing.get, None), timeout=20)
        assert next(self.replies).WhichOneof("body") == "hello"

    def send(self, envelope) -> pb.Ack:
        self.outgoing.put(pb.AgentMessage(segment=envelope))
        return next(self.replies).ack

    def close(self):
        self.outgoing.put(None)
        self.replies.cancel()


def refused(store, reason: str) -> int:
    """What the store counted of refusals."""
    return int(float(re.search(rf'refused_total{{reason="{reason}"}} (\S+)', store.metrics())[1]))


@pytest.mark.parametrize("by", ["token", "certificate"])
def test_an_agent_cannot_write_records_of_another_node(site, mutual, tokens, by):
    """Not by its hello, not by one record among its own, not by another agent's numbers; what is its own is stored."""
    store = tokens if by == "token" else mutual
    database = site.folder / f"{'tokens' if by == 'token' else 'mutual'}.db"
    shown = {"bearer": "node-a"} if by == "token" else {"cert": "node-a"}
    before = refused(store, "node")
    with site.channel(store, **shown) as channel:
        code, details = refusal(lambda: stream(channel, host="gpu-b"))
        assert (code, details) == (DENIED, "'node-a' may not send records of node 'gpu-b'")
        agent = Agent(channel)
        kernel = [stat(GEMM, [1000])]
        own = window_of(f"{by} own", kernel, process=process_of("gpu-a"))
        foreign = window_of(f"{by} foreign", kernel, process=process_of("gpu-b"))
        ack = agent.send(segment_of([own, foreign], 1))
        assert (ack.status, ack.reason) == (pb.REJECTED, "'node-a' may not send records of node 'gpu-b'")
        ack = agent.send(segment_of([own], 1, agent="agent-b"))
        assert (ack.status, ack.reason) == (pb.REJECTED, "'node-a' may not send segments of another agent")
        state = ProcessState(process_of("gpu-b"), 5, 4, BudgetState("hard_stop"), {"busy": 9})
        ack = agent.send(codec.seal(codec.segment([own], {}, [state]), "agent-a", "boot-a", 1))
        assert (ack.status, ack.reason) == (pb.REJECTED, "'node-a' may not send records of node 'gpu-b'")
        assert agent.send(segment_of([own], 2)).status == pb.STORED
        agent.close()
    assert refused(store, "node") == before + 4
    with closing(sqlite3.connect(database)) as connection:
        hosts = {row[0] for row in connection.execute("SELECT host FROM nodes")}
        uids = {row[0].hex() for row in connection.execute("SELECT uid FROM windows")}
    assert "gpu-b" not in hosts
    assert (own.uid in uids, foreign.uid in uids) == (True, False)


def test_grpc_itself_refuses_who_has_no_certificate(site, mutual):
    """Nothing is answered at all, health neither: TLS ends before."""
    with site.channel(mutual) as channel:
        assert refusal(lambda: METHODS["grpc.health.v1.Health/Check"](channel))[0] == grpc.StatusCode.UNAVAILABLE.name
