"""While a store and an agent run: new certificates, a new CA, tokens that go, and files that are damaged meanwhile."""

from __future__ import annotations

import importlib.util
import re
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
from site_of_trust import NODE, Site, fetched, refusal, until
from test_roles import METHODS, Agent, stream

from roofwatch.agent import status

AGENT_PARTS = Path(__file__).parents[1] / "agent" / "conftest.py"
STAND_IN = AGENT_PARTS.parent / "programs" / "agent_with_stand_in.py"


def shown_by(store) -> str:
    """The serial number of the certificate that a store shows now."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", store.port), 10) as sock, context.wrap_socket(sock) as secured:
        return ssl.DER_cert_to_PEM_cert(secured.getpeercert(binary_form=True))


def expiry(page: str, which: str) -> float:
    """When a certificate ends, by a page of metrics."""
    return float(re.search(rf'certificate_expiry_timestamp_seconds{{certificate="{which}"}} (\S+)', fetched(page))[1])


def test_a_new_certificate_is_shown_to_new_connections_and_an_open_stream_goes_on(site, tokens):
    """The stream that began with the old one is still served; a pair that does not fit changes nothing."""
    old, ended = shown_by(tokens), expiry(tokens.page, "server")
    with site.channel(tokens, bearer="ingest") as channel:
        agent = Agent(channel)
        key = (site.certs / "store.key").read_bytes()
        site.certify("server", "localhost", "127.0.0.1", "--name", "store", "--renew", "--days", "30")
        fresh = (site.certs / "store.key").read_bytes()
        until(lambda: shown_by(tokens) != old, "the new certificate is shown")
        (site.certs / "store.key").write_bytes(key)  # not the one of store.pem
        until(lambda: "new certificate not taken" in tokens.log.read_text(), "the damaged pair is told")
        assert shown_by(tokens) == (site.certs / "store.pem").read_text()
        (site.certs / "store.key").write_bytes(fresh)
        with site.channel(tokens, bearer="read") as another:
            assert refusal(lambda: METHODS["roofwatch.v1.Query/Run"](another))[0] == "OK"
        assert agent.replies.is_active()
        agent.close()
    until(lambda: expiry(tokens.page, "server") < ended - 300 * 86_400, "metrics tell the new end")


def test_a_token_that_is_removed_is_refused_within_seconds(site, tokens):
    """For new calls, and the stream that it opened ends with the reason; the others' stay."""
    site.certify("token", "leaver", "--role", "ingest")
    with site.channel(tokens, bearer="leaver") as channel, site.channel(tokens, bearer="ingest") as stays:
        until(lambda: refusal(lambda: stream(channel))[0] == "OK", "the new token is known", 5)
        leaver, other = Agent(channel), Agent(stays, agent="agent-other", host="gpu-z")
        site.remove_token("leaver")
        code, details = refusal(lambda: next(leaver.replies))
        assert (code, details) == ("UNAUTHENTICATED", "what this agent may do has changed: connect again")
        code, details = refusal(lambda: stream(channel))
        assert code == "UNAUTHENTICATED"
        assert details.startswith("the token is not known here")
        assert other.replies.is_active()
        other.close()


def test_a_damaged_access_file_changes_nothing_and_is_told(site, tokens):
    """Who could, still can; the log and the metrics say so until it is whole."""
    good = site.access.read_text()
    site.access.write_text(good + "grant everything to everybody\n")
    until(lambda: "access file not taken" in tokens.log.read_text(), "the log tells")
    assert "roofwatch_store_access_file_good 0.0" in tokens.metrics()
    with site.channel(tokens, bearer="read") as channel:
        assert refusal(lambda: METHODS["roofwatch.v1.Query/Run"](channel))[0] == "OK"
    site.access.write_text(good)
    until(lambda: "access_file_good 1.0" in tokens.metrics(), "it is whole")


def agent_parts():
    """The agents and jobs of the agent's own tests."""
    spec = importlib.util.spec_from_file_location("agent_parts", AGENT_PARTS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Node:
    """A real agent, with a job that answers it."""

    def __init__(self, site: Site, folder: Path, address: str, *flags: str) -> None:
        self.log, self.socket, self.state = folder / "agent.log", folder / "a.sock", folder / "state"
        self.process = site.program(
            self.log, str(STAND_IN), "--socket", str(self.socket), "--state", str(self.state), "--interval", "0.5",
            "--budget", "100", "--hard-stop", "100", "--store", address, "--metrics", "127.0.0.1:0", *flags,
        )  # fmt: skip
        until(lambda: "event=listening" in self.log.read_text() or self.process.poll() is not None, "the agent listens")
        assert self.process.poll() is None, self.log.read_text()
        self.job = agent_parts().Job(self.socket)

    def told(self) -> dict:
        """What it says of itself."""
        return status.request(str(self.socket))

    def window(self) -> None:
        """Answer its next request."""
        self.job.answer(self.job.receive())


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A place that may change its CA."""
    place = Site(tmp_path_factory.mktemp("alone"))
    place.certify("ca")
    place.certify("server", "localhost", "--name", "store")
    place.certify("client", "agent", "--role", "ingest", "--node", NODE)
    place.certify("client", "reader", "--role", "read")
    yield place
    place.stop()


@pytest.fixture
def short():
    """A folder whose path is short enough for a socket."""
    import tempfile  # noqa: PLC0415 - one use

    with tempfile.TemporaryDirectory(prefix="rw-") as folder:
        yield Path(folder)


def test_store_agent_and_command_line_by_certificates_alone(alone, short):
    """A window comes from a job to a reader; new certificates of both sides are taken; no key is left behind."""
    ca = str(alone.certs / "ca.pem")
    store = alone.store("mutual", "--tls-client-ca", ca)
    node = Node(alone, short, store.address, *alone.flags("agent"))
    node.window()
    until(lambda: node.told()["windows"].get("stored") == 1, "the window is stored")
    asked = alone.ask(*alone.flags("reader"), "nodes", "--store", store.address)
    assert (asked.returncode, NODE[:20] in asked.stdout) == (0, True), asked.stderr
    beside = alone.ask("nodes", "--store", store.address, *alone.flags("reader"))
    assert beside.returncode == 0, "the same options after the command"

    alone.certify("client", "agent", "--role", "ingest", "--node", NODE, "--renew", "--days", "9")
    until(lambda: "event=credentials_renewed" in node.log.read_text(), "the agent connects with its new certificate")
    until(lambda: node.told()["uplink"]["connected"], "and is connected")
    ends = node.told()["uplink"]["certificates"]
    assert 8 < (ends["client"] - ends["ca"]) / 86_400 + 3650 < 10
    page = re.search(r"event=metrics host=\S+ port=(\d+)", node.log.read_text())[1]
    assert expiry(f"http://127.0.0.1:{page}/metrics", "client") == ends["client"]

    # Another CA of clients: who was let in by the old one is asked again, and refused; the window waits.
    plain = alone.channel(store, cert="agent")
    stream_of_old = Agent(plain, agent="by-hand", host=NODE)
    (alone.folder / "old").mkdir()
    for name in ("ca.pem", "ca.key"):
        shutil.move(alone.certs / name, alone.folder / "old" / name)
    alone.certify("ca")
    code, details = refusal(lambda: next(stream_of_old.replies))
    assert (code, details) == ("UNAUTHENTICATED", "the CA of clients has changed: connect again")
    plain.close()
    until(lambda: "event=store_refused" in node.log.read_text(), "the agent says that it is refused")
    node.window()
    until(lambda: node.told()["spool"]["windows"] >= 1, "the window waits")
    assert node.log.read_text().count("event=store_refused") <= 3  # once a reason, not once a try
    assert node.process.poll() is None
    for words in (("server", "localhost", "--name", "store"), ("client", "agent", "--role", "ingest", "--node", NODE)):
        alone.certify(*words, "--renew")
    until(lambda: node.told()["spool"]["windows"] == 0, "all of the new CA: the window arrives", 40)
    node.job.close()
    alone.stop()

    left = [path for folder in (alone.folder, short) for path in folder.rglob("*")]
    text = {path: path.read_bytes() for path in left if path.is_file() and path.suffix not in {".key", ".token"}}
    secrets = [
        line for key in alone.folder.rglob("*.key") for line in key.read_bytes().splitlines() if b"---" not in line
    ]
    assert len(text) > 5
    assert len(secrets) >= 6
    assert [(path, line) for path, data in text.items() for line in secrets if line in data] == []


def test_tokens_are_nowhere_but_in_their_files(site, tokens, short):
    """Not in logs, spool or store, nor on the command line of a process."""
    token = (site.certs / "ingest.token").read_text().strip()
    good = Node(site, short, tokens.address, *site.flags(bearer="ingest"))
    good.window()
    until(lambda: good.told()["windows"].get("stored") == 1, "the window is stored")
    lines = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert str(site.certs / "ingest.token") in lines
    every = [path.read_text().strip() for path in site.certs.glob("*.token")]
    assert token in every
    assert [t for t in every if t in lines] == []
    good.job.close()
    good.process.terminate()
    good.process.wait(15)
    for folder in (site.folder, short):
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix != ".token":
                assert [t for t in every if t.encode() in path.read_bytes()] == [], path
