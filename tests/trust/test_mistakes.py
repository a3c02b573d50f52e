"""What people get wrong, told in a sentence with what to do, and exit code 3; plain text stays on this machine."""

from __future__ import annotations

import json
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from prometheus_client import CollectorRegistry, Gauge
from site_of_trust import refusal, until
from test_roles import METHODS

from roofwatch.cli import authority
from roofwatch.proto import pages
from roofwatch.proto.trust import Trust


def told(site, *arguments, code: int = 3) -> str:
    """The one sentence on stderr."""
    done = site.ask(*arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    (line,) = done.stderr.splitlines()
    return line.removeprefix("roofwatch: ")


def nodes(store, *flags):
    """The words of a question."""
    return (*flags, "nodes", "--store", store.address)


def test_each_mistake_has_its_sentence(site, mutual, tokens):
    """Plain text against TLS, no certificate, no token, an unknown token, a role that may not, one of another CA."""
    at, stray = f"the store at {tokens.address}", site.folder / "stray.token"
    stray.write_text("rw_" + "s" * 43)
    stray.chmod(0o600)
    other = site.folder / "other"
    authority.make_ca(other, "other", 10)
    elsewhere = authority.issue(other, authority.Wanted("stranger", roles=("admin",)), 5)
    expired = site.past(authority.Wanted("expired", roles=("read",)))
    pair = [("--tls-cert", str(made.cert), "--tls-key", str(made.key)) for made in (elsewhere, expired)]
    ca = ("--tls-ca", str(site.certs / "ca.pem"))
    ours = f"the store at {mutual.address}"
    for question, sentence in (
        (nodes(tokens), f"{at} speaks TLS and this is plain text: give its CA with --tls-ca FILE."),
        (nodes(tokens, *ca), f"{at} refuses: this store wants to know who asks: give a token with --token-file FILE."),
        (nodes(tokens, *ca, "--token-file", str(stray)), f"{at} refuses: the token is not known here: it was removed"),
        (nodes(tokens, *site.flags(bearer="ingest")), f"{at} refuses: 'ingest' has ingest, and this needs read"),
        (nodes(tokens, "--tls-ca", str(other / "ca.pem")), f"{at} shows a certificate that is not of the CA of"),
        (nodes(mutual, *ca), f"{ours} wants a client's certificate: give one with --tls-cert and --tls-key."),
        (nodes(mutual, *ca, *pair[0]), f"{ours} refuses the certificate of --tls-cert: give one of a CA that"),
        (nodes(mutual, *ca, *pair[1]), f"{ours} refuses the certificate of --tls-cert: it has expired on 20"),
    ):  # fmt: skip
        assert told(site, *question).startswith(sentence)


def test_a_store_whose_certificate_ended_or_has_another_name(site, tokens):
    """Both are told by the client, which goes no further; the names that the certificate holds are listed."""
    flags = site.flags(bearer="read")
    whole = [(path, path.read_bytes()) for path in (site.certs / "store.pem", site.certs / "store.key")]
    try:
        site.past(authority.Wanted("store", hosts=("localhost",), server=True))
        assert told(site, *nodes(tokens, *flags)).startswith(
            f"the store at {tokens.address} shows a certificate that has expired: make a new one with 'roofwatch certs"
        )
        site.certify("server", "store.example", "10.9.8.7", "--name", "store", "--renew")
        assert told(site, *nodes(tokens, *flags)).startswith(
            f"the store at {tokens.address} shows a certificate without the name 'localhost': it is for "
            "store.example, 10.9.8.7; use a name that it holds"
        )
    finally:
        for path, data in reversed(whole):
            path.write_bytes(data)
    assert site.ask(*nodes(tokens, *flags)).returncode in {0, 4}  # 4: no node has sent a window yet


def test_tls_against_plain_text_and_against_nobody(site):
    """A plain gRPC server, and a port where nobody listens."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    flags = site.flags(bearer="read")
    try:
        sentence = told(site, *flags, "nodes", "--store", f"localhost:{port}")
    finally:
        server.stop(0).wait()
    assert sentence == (
        f"the store at localhost:{port} speaks plain text and not TLS: start it with --tls-cert and --tls-key, "
        "or leave out --tls-ca."
    )
    assert told(site, *flags, "nodes", "--store", f"localhost:{port}").startswith("no store answers at localhost")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--listen", "0.0.0.0:0"), "can be reached from other machines in plain text: add --insecure"),
        (("--listen", "0.0.0.0:0", "TLS"), "can be read and written by anybody on the network: give --access-file"),
        (("--metrics", "0.0.0.0:0"), "can be read from other machines: add --insecure"),
        (("--tls-cert", "x.pem"), "--tls-cert and --tls-key belong together"),
        (("--tls-client-ca", "x.pem"), "--tls-client-ca needs --tls-cert"),
        (("--tls-cert", "x.pem", "--tls-key", "x.key"), "--tls-cert x.pem: cannot be read: No such file"),
        (("--access-file", "none"), "--access-file none: cannot be read: No such file"),
        (("--tls-cert", "{certs}/store.pem", "--tls-key", "{certs}/read.key"), "does not belong to --tls-cert"),
        (("--tls-cert", "{certs}/read.key", "--tls-key", "{certs}/read.key"), "no certificate in it"),
    ],
)  # fmt: skip
def test_a_store_does_not_start_open_or_half_secured(site, flags, sentence):
    """Exit code 2, one sentence, no database."""
    tls = ("--tls-cert", "{certs}/store.pem", "--tls-key", "{certs}/store.key")
    words = [w.format(certs=site.certs) for flag in flags for w in (tls if flag == "TLS" else (flag,))]
    done = site.ask("store", "serve", "--db", f"sqlite:///{site.folder}/never.db", *words)
    assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr
    assert not (site.folder / "never.db").exists()


def test_plain_text_and_tokens_stay_on_this_machine(site):
    """A client sends nothing beyond loopback without TLS, unless told; then not to a server of another CA neither."""
    token = ("--token-file", str(site.certs / "read.token"))
    assert "give its CA with --tls-ca FILE, or allow it with --insecure" in told(
        site, *token, "nodes", "--store", "store.example:7431", code=2
    )
    assert "--tls-cert and --tls-key belong together" in told(site, "--tls-cert", "x", "nodes", code=2)
    Trust(insecure=True).check("store.example:1", loopback=False)


def test_files_that_others_can_read_are_not_used(site):
    """A key and a token that everybody can read are refused, with the command that closes them."""
    loose = site.folder / "loose.token"
    loose.write_bytes((site.certs / "read.token").read_bytes())
    loose.chmod(0o644)
    sentence = told(site, "--token-file", str(loose), "nodes", "--store", "127.0.0.1:1", code=2)
    assert sentence == f"--token-file {loose}: others can read or change it; close it with: chmod 600 {loose}"
    loose.chmod(0o640)
    assert "no store answers" in told(site, "--token-file", str(loose), "nodes", "--store", "127.0.0.1:1")
    loose.write_text("a token with spaces")
    assert "no token in it" in told(site, "--token-file", str(loose), "nodes", "--store", "127.0.0.1:1", code=2)


def test_a_certificate_can_be_refused_by_its_fingerprint(site, mutual):
    """For a key that was stolen: a line in the access file, within seconds; another of the same name is let in."""
    from roofwatch.proto import certificates  # noqa: PLC0415 - one case

    site.certify("client", "stolen", "--role", "read")
    (found,) = certificates.read((site.certs / "stolen.pem").read_bytes())
    query = METHODS["roofwatch.v1.Query/Run"]
    with site.channel(mutual, cert="stolen") as channel:
        assert refusal(lambda: query(channel))[0] == "OK"
        before = site.access.read_text()
        site.access.write_text(f"{before}refuse sha256={found.fingerprint}\n")
        until(lambda: refusal(lambda: query(channel))[0] == "UNAUTHENTICATED", "it is refused", 5)
    site.certify("client", "stolen", "--role", "read", "--renew")
    with site.channel(mutual, cert="stolen") as channel:
        assert refusal(lambda: query(channel))[0] == "OK"
    site.access.write_text(before)


def test_metrics_over_tls_take_new_files_and_wait_for_nobody(site):
    """A page beyond loopback: who says nothing holds up nobody, who has no certificate gets nothing."""
    registry = CollectorRegistry()
    Gauge("probe", "a figure", registry=registry).set(7)
    ca, cert, key = (str(site.certs / name) for name in ("ca.pem", "this-node.pem", "this-node.key"))
    server = pages.serve(registry, "127.0.0.1", 0, pages.Files(cert, key, ca))
    try:
        with socket.create_connection(("127.0.0.1", server.server_port), 5):  # says nothing
            began = time.monotonic()
            assert b"probe 7.0" in _page(server.server_port, ca, str(site.certs / "read"))
            assert time.monotonic() - began < pages.WITHIN_S / 2
        with pytest.raises(OSError, match=r"(?i)certificate required|reset|handshake|EOF"):
            _page(server.server_port, ca, None)
    finally:
        server.shutdown()
        server.server_close()


def _page(port: int, ca: str, client: str | None) -> bytes:
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    if client:
        context.load_cert_chain(f"{client}.pem", f"{client}.key")
    with socket.create_connection(("127.0.0.1", port), 5) as sock, context.wrap_socket(sock) as secured:
        secured.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: secured.recv(65536), b""))


def test_doctor_counts_the_days(site, tokens, monkeypatch):
    """Of our CA and certificate and of the store's; soon is a warning, over is a failure."""
    from roofwatch.cli import doctor_trust  # noqa: PLC0415 - one case

    site.certify("server", "localhost", "127.0.0.1", "--name", "store", "--renew")
    monkeypatch.setenv("ROOFWATCH_TLS_CA", str(site.certs / "ca.pem"))
    status, detail, advice = doctor_trust.found(tokens.address, "/nowhere/agent.sock")
    assert (status, advice) == ("ok", None)
    assert detail == "CA 3649 days, the store's 364 days"
    site.certify("client", "short", "--role", "read", "--days", "10")
    for name, told in (("short", ("warn", "mine 9 days")), ("gone", ("fail", "mine HAS ENDED"))):
        if name == "gone":
            site.past(authority.Wanted("gone", roles=("read",)))
        monkeypatch.setenv("ROOFWATCH_TLS_CERT", str(site.certs / f"{name}.pem"))
        monkeypatch.setenv("ROOFWATCH_TLS_KEY", str(site.certs / f"{name}.key"))
        status, detail, advice = doctor_trust.found(tokens.address, "/nowhere/agent.sock")
        assert (status, told[1] in detail, advice is None) == (told[0], True, False)
    for variable in ("CA", "CERT", "KEY"):
        monkeypatch.delenv(f"ROOFWATCH_TLS_{variable}")
    assert doctor_trust.found("127.0.0.1:1", "/nowhere/agent.sock")[0] == "ok"
    assert doctor_trust.found("store.example:1", "/nowhere/agent.sock")[0] == "warn"


def test_other_commands_keep_to_it(site, tokens, traces):
    """What sends records needs ingest; what speaks plain text only does so on this machine only; the agent as well."""
    trace = min((traces / "kineto").rglob("*.json.gz"), key=lambda path: path.stat().st_size)
    flags = site.flags(bearer="read")
    words = ("import", str(trace), "--store", tokens.address)
    assert "'read' has read, and this needs ingest" in site.ask(*words, *flags).stderr
    done = site.ask(*words, *site.flags(bearer="node-a"))
    assert done.returncode == 3
    assert "'node-a' may not send records of node 'imported'" in done.stderr
    site.certify("token", "importer", "--role", "ingest", "--role", "read", "--renew")
    until(lambda: site.ask(*words, *site.flags(bearer="importer")).returncode == 0, "both roles import", 5)
    replay = ("store", "replay", "--synthetic", "--store")
    assert "would be plain text" in told(site, *replay, "store.example:1", code=2)
    done = site.run(*replay, tokens.address, *flags)
    assert (done.returncode, "'read' has read, and this needs ingest" in done.stderr) == (3, True)
    words = ("--nodes", "2", "--rate", "40x", "--minutes", "0.05", "--format", "json", *site.flags(bearer="importer"))
    done = site.run(*replay, tokens.address, *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["replay"]["exactly_once"]
    assert "would be plain text" in told(site, "agent", "--store", "store.example:1", code=2)
    assert "--tls-ca nowhere.pem: cannot be read" in told(
        site, "--tls-ca", "nowhere.pem", "agent", "--store", "store.example:1", code=2
    )
