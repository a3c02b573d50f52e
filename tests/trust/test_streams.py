"""Who keeps a stream or a connection open without the right to, and settings that a running store takes."""

from __future__ import annotations

import asyncio
import queue
import signal
import socket
import threading
import time
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, Gauge
from site_of_trust import fetched, refusal, until
from store_builders import GEMM, H100, NORM, hello_of, process_of, segment_of, stat, window_of
from test_roles import METHODS, Agent, stream

from roofwatch.cli import authority, files
from roofwatch.proto import channel as channels
from roofwatch.proto import handshake, pages
from roofwatch.proto.trust import Material
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store import access, database, server, service
from roofwatch.store.access import Access, Role, Shown
from roofwatch.store.proof import follows, proved

CHANGED = ("UNAUTHENTICATED", "what this agent may do has changed: connect again")


def test_a_token_that_goes_before_the_greeting_lets_nobody_in(site, tokens):
    """A stream was opened while the token was good, and says hello only when it is withdrawn."""
    site.certify("token", "early", "--role", "ingest")
    said: queue.Queue[pb.AgentMessage] = queue.Queue()
    with site.channel(tokens, bearer="early") as early:
        until(lambda: refusal(lambda: stream(early))[0] == "OK", "the token is known", 5)
        calls = rpc.IngestStub(early).Stream(iter(said.get, None), timeout=20)
        time.sleep(0.3)  # admitted
        site.remove_token("early")
        until(lambda: refusal(lambda: stream(early))[0] == "UNAUTHENTICATED", "it is withdrawn", 5)
        said.put(hello_of())
        assert refusal(lambda: next(calls)) == CHANGED
        said.put(None)


def test_who_does_not_listen_is_hung_up_on(site, tokens):
    """An agent that reads no acknowledgements cannot keep its stream beyond its token: it is read no more."""
    site.certify("token", "deaf", "--role", "ingest", "--node", "gpu-a")
    sent, stop, before = [0], threading.Event(), _agents(tokens)

    def messages():
        yield hello_of(host="gpu-a")
        foreign = segment_of([window_of("w", [], process=process_of("gpu-b"))], 1)  # refused, with a reason
        while not stop.is_set():
            yield pb.AgentMessage(segment=foreign)
            sent[0] += 1

    with site.channel(tokens, bearer="deaf") as deaf:
        until(lambda: refusal(lambda: stream(deaf, host="gpu-a"))[0] == "OK", "the token is known", 5)
        calls = rpc.IngestStub(deaf).Stream(messages(), timeout=60)
        assert next(calls).WhichOneof("body") == "hello"
        assert _agents(tokens) == before + 1
        until(lambda: sent[0] > 1500, "more acknowledgements than a connection holds", 30)
        site.remove_token("deaf")
        until(lambda: _agents(tokens) == before, "the store hangs up", 12)
        assert refusal(lambda: list(calls))[0] != "OK"
        stop.set()
        calls.cancel()


def _agents(store) -> float:
    """Agents connected, as the store counts them."""
    return float(
        next(
            line for line in store.metrics().splitlines() if line.startswith("roofwatch_store_connected_agents ")
        ).split()[1]
    )


def test_who_says_nothing_holds_no_stream(tmp_path, monkeypatch):
    """An opened stream without a hello ends by itself."""
    monkeypatch.setattr(service, "HELLO_WITHIN_S", 0.2)

    async def silent() -> tuple[str, str]:
        store = server.Store(database.open(str(tmp_path / "s.db")))
        port = await store.start("127.0.0.1", 0)
        async with channels.open_aio(f"127.0.0.1:{port}", Material(), ()) as opened:
            calls = rpc.IngestStub(opened).Stream(timeout=20)
            found = (await calls.code()).name, await calls.details()
        await store.stop(1)
        return found

    assert asyncio.run(silent()) == ("DEADLINE_EXCEEDED", "no hello within 0 s")


def test_a_certificate_without_rights_ends_what_comes_with_it(site):
    """A token that is good for years lets nobody in for longer than the certificate beside it."""
    made = authority.issue(site.certs, authority.Wanted("plain", hosts=("plain",)), 2, replace=True)
    pem = made.cert.read_bytes()
    entries = access.parse(f"token a role=read sha256={access.hashed('a').hex()}")
    now = [time.time()]
    found = Access(entries, certificates=True, now_unix_s=lambda: now[0]).caller(Shown("a", pem))
    assert found.roles == {Role.READ}
    assert found.expires_unix_s == pytest.approx(time.time() + 2 * 86_400, abs=600)
    now[0] += 3 * 86_400
    assert Access(entries, certificates=True, now_unix_s=lambda: now[0]).caller(Shown("a", pem)).why == "expired"


@pytest.mark.parametrize("host", ["a" * 70 + ".example", "\0", "exa\udcffmple", ""])
def test_a_name_that_is_none_is_nothing_to_tell(host):
    """Not a traceback: the connection's own error is told."""
    assert handshake.ask(host, 1, Material()) == handshake.Met()
    assert handshake.ask("127.0.0.1", 1 << 20, Material()) == handshake.Met()


@pytest.fixture
def page(site, request, monkeypatch):
    """/metrics, plain or over TLS, that waits for half a second and for three connections."""
    monkeypatch.setattr(pages, "WITHIN_S", 0.5)
    monkeypatch.setattr(pages, "MOST", 3)
    registry = CollectorRegistry()
    Gauge("probe", "a figure", registry=registry).set(7)
    cert, key = (str(site.certs / name) for name in ("this-node.pem", "this-node.key"))
    served = pages.serve(registry, "127.0.0.1", 0, pages.Files(cert, key) if request.param else None)
    yield served.server_port
    served.shutdown()
    served.server_close()


@pytest.mark.parametrize("page", [False, True], ids=["plain", "tls"], indirect=True)
def test_a_page_of_metrics_is_not_held_by_who_drips(page):
    """A byte now and then does not keep a thread; more connections than it takes are hung up on; then it answers."""
    before = threading.active_count()
    slow = [socket.create_connection(("127.0.0.1", page), 5) for _ in range(8)]
    began, hung_up = time.monotonic(), set()
    while len(hung_up) < len(slow) and time.monotonic() < began + 8:
        for sock in slow:
            try:
                sock.send(b"G")
                sock.settimeout(0.01)
                if sock.recv(100) == b"":
                    hung_up.add(sock)
            except TimeoutError:
                continue
            except OSError:
                hung_up.add(sock)
        time.sleep(0.05)
    assert len(hung_up) == len(slow)
    assert time.monotonic() - began < 4
    until(lambda: threading.active_count() <= before, "the threads are gone", 5)
    for sock in slow:
        sock.close()
    with socket.create_connection(("127.0.0.1", page), 5):
        pass


def test_a_running_store_takes_other_settings(site):
    """SIGHUP: an access file of another name, at once; open streams go on; what is not hot is told; mistakes too."""
    file, other = site.folder / "store.toml", site.folder / "other-access"
    file.write_text("[store]\nkeep-raw = '48h'\nlog-format = 'json'\n")
    file.chmod(0o644)
    (old,) = (line for line in site.access.read_text().splitlines() if line.startswith("token ingest "))
    other.write_text(old + "\n")
    config = ("--config", str(file))
    file.write_text(f"[store]\nkeep-raw = '48h'\naccess-file = '{site.access}'\n")
    store = site.store("reloaded", *config)
    with site.channel(store, bearer="ingest") as stays, site.channel(store, bearer="read") as reads:
        agent = Agent(stays)
        assert refusal(lambda: METHODS["roofwatch.v1.Query/Run"](reads))[0] == "OK"
        file.write_text(f"[store]\nkeep-raw = '24h'\naccess-file = '{other}'\nreflection = true\nlog-format = 'json'\n")
        store.process.send_signal(signal.SIGHUP)
        until(lambda: "settings read again" in store.log.read_text(), "it is read again")
        told = "changed: keep_raw, access_file, log_format; a restart is needed for: reflection"
        assert told in store.log.read_text()
        until(lambda: refusal(lambda: METHODS["roofwatch.v1.Query/Run"](reads))[0] == "UNAUTHENTICATED", "the new file")
        assert agent.replies.is_active()
        file.write_text("[store]\nkeep-row = '1h'\n")
        store.process.send_signal(signal.SIGHUP)
        until(lambda: "did you mean 'keep-raw'?" in store.log.read_text(), "the mistake is told")
        assert '"level": "warning"' in store.log.read_text()
        file.write_text("[store]\nkeep-raw = '24h'\n")
        store.process.send_signal(signal.SIGHUP)
        until(lambda: '"needs_restart": "access_file"' in store.log.read_text(), "it is not turned off while it runs")
        assert agent.replies.is_active()
        agent.close()
    assert "roofwatch_store_segments_total" in fetched(store.page)


def test_an_agent_of_one_node_cannot_make_up_a_roof_for_others(site, tokens):
    """What follows from FLOPs, bytes and peaks is stored; a roof or a ridge that does not is refused as a whole."""
    right = follows(GEMM, H100.peaks)
    assert right == pytest.approx((540_672 / 3.35e12 * 1e9, 989e12 / 3.35e12))  # by its bytes
    by_name = replace(NORM, flops=None, bytes=None)
    made_up = [
        (GEMM, right[0] * 0.5, right[1]), (GEMM, right[0], right[1] * 2), (NORM, 3.0, None), (by_name, 3.0, None),
        (by_name, None, 12.0),
    ]  # fmt: skip
    with site.channel(tokens, bearer="node-a") as channel:
        agent = Agent(channel)
        for number, (signature, roof, ridge) in enumerate(made_up, 900):
            kernel = stat(replace(signature, kernel=f"k{number}"), [1000], roof_ns=roof, ridge=ridge)
            window = window_of(f"roof {number}", [kernel], process=process_of("gpu-a"))
            ack = agent.send(segment_of([window], number))
            assert ack.status == pb.REJECTED, number
            assert ack.reason.startswith(f"the roof of kernel 'k{number}' is not what its FLOPs")
        honest = [stat(GEMM, [1000], roof_ns=right[0], ridge=right[1]), stat(by_name, [50], ridge=right[1])]
        for number in (990, 991):  # the second time it is known
            window = window_of(f"roof {number}", honest, process=process_of("gpu-a"))
            assert agent.send(segment_of([window], number)).status == pb.STORED
        agent.close()
    assert 'refused_total{reason="roof"} 5.0' in tokens.metrics()


@pytest.mark.parametrize(
    "name",
    ["kineto/h100_Qwen_Qwen1.5-0.5B-Chat.json.gz", "kineto/cpu_only.json.gz", "kineto/mi300_sglang_decode.json.gz"],
)
def test_what_the_readers_tell_of_real_traces_follows(traces, name):
    """Of NVIDIA, AMD and CPU, by shapes, borrowed and by name."""
    window, _ = files.window_of(traces / name, files.Origin())
    told = [k for k in window.kernels if k.roof_ns is not None or k.ridge is not None]
    assert told
    wrong = [k for k in told if not proved((k.roof_ns, k.ridge), k.signature, window.devices[k.device].device.peaks)]
    assert wrong == []
