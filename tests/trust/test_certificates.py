"""``roofwatch certs``: a CA that other programs believe, files that nobody else can read, and what they say."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from site_of_trust import NODE

from roofwatch.cli import authority
from roofwatch.proto import certificates


def test_keys_and_tokens_are_their_owners_alone(site):
    """0600 for what is secret, and no draft is left."""
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in site.certs.iterdir()}
    secret = {name for name in files if name.endswith((".key", ".token"))}
    assert len(secret) >= 1 + 1 + 3 + 3 + 2 + 1  # CA, store, a client and a token a role, two nodes, a node's token
    assert {files[name] for name in secret} == {0o600}
    assert not [name for name in files if name.startswith(".")]
    assert stat.S_IMODE(site.certs.stat().st_mode) == 0o700


def test_openssl_believes_what_we_issue(site):
    """Another implementation, strictly by the standard, for the purpose that each is for."""
    openssl = shutil.which("openssl") or pytest.skip("openssl is not installed")
    for name, purpose, good in (
        ("store", "sslserver", True), ("store", "sslclient", False), ("read", "sslclient", True),
        ("read", "sslserver", False), ("this-node", "sslserver", True),
    ):  # fmt: skip
        command = [openssl, "verify", "-x509_strict", "-purpose", purpose, "-CAfile", site.certs / "ca.pem"]
        done = subprocess.run([*command, site.certs / f"{name}.pem"], capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is good, (name, purpose, done.stderr)


def test_show_says_what_a_certificate_is_for(site):
    """For people, and the same for programs."""
    done = site.ask("certs", "show", site.certs / "store.pem", site.certs / "this-node.pem", site.certs / "ca.pem")
    assert done.returncode == 0
    assert re.search(r"store, issued by roofwatch\n  good until  20\d\d-\d\d-\d\d, 36[45] days left\n", done.stdout)
    assert "for hosts   localhost, 127.0.0.1\n" in done.stdout
    assert f"nodes       {NODE}\n" in done.stdout
    assert "ca.pem: roofwatch, CA\n" in done.stdout
    assert max(map(len, done.stdout.replace(str(site.certs), "").splitlines())) <= 80
    shown = site.ask("certs", "show", site.certs / "this-node.pem", "--format", "json")
    (row,) = json.loads(shown.stdout)["rows"]
    assert (row["roles"], row["nodes"], row["ca"]) == (["ingest"], [NODE], False)


def test_show_says_what_else_lies_there(site):
    """A folder as a whole, or all that a shell makes of its star: keys and tokens by kind only, no hash, no secret."""
    kinds = {}
    for what in ([site.certs], sorted(site.certs.iterdir())):
        done = site.ask("certs", "show", *what)
        assert done.returncode == int("EXPIRED" in done.stdout), done.stderr  # of other tests, where they ran before
        kinds = {Path(line.partition(": ")[0]).name: line for line in done.stdout.splitlines() if ": " in line}
        assert kinds["read.key"].endswith(": a private key")
        assert ": a token" in kinds["read.token"]
        assert ", CA" in kinds["ca.pem"]
        assert re.search(r"access: who may do what\n  token \S+ role=", done.stdout)
        assert "sha256=" not in done.stdout
        assert (site.certs / "read.token").read_text().strip() not in done.stdout
    (site.certs / "notes.txt").write_text("nothing")
    assert "no certificate in it" in site.ask("certs", "show", site.certs / "notes.txt").stderr
    assert "notes.txt" not in site.ask("certs", "show", site.certs).stdout
    (site.certs / "notes.txt").unlink()


def test_an_expired_one_is_a_finding(site):
    """Exit code 1, and it says so."""
    made = site.past(authority.Wanted("stale", roles=("read",)))
    done = site.ask("certs", "show", made.cert)
    assert (done.returncode, "EXPIRED" in done.stdout) == (1, True)
    (found,) = certificates.read(made.cert.read_bytes())
    assert found.expired(found.expires_unix_s)
    assert not found.expired(found.expires_unix_s - 1)


def test_nothing_is_overwritten_unless_told(site):
    """A CA never, a certificate and a token with --renew, and then both halves are new."""
    before = (site.certs / "read.key").read_bytes(), (site.certs / "ca.key").read_bytes()
    assert "has a CA already" in site.certify("ca", code=2)
    assert "take another name, or replace both with --renew" in site.certify("client", "read", "--role", "read", code=2)
    assert "--renew" in site.certify("token", "read", "--role", "read", code=2)
    assert ((site.certs / "read.key").read_bytes(), (site.certs / "ca.key").read_bytes()) == before
    site.certify("client", "read", "--role", "read", "--renew")
    after = (site.certs / "read.key").read_bytes()
    assert after != before[0]
    certificates.check_pair((site.certs / "read.pem").read_bytes(), after)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("client", "../x", "--role", "read"), "no name for a certificate"),
        (("client", "ca", "--role", "read"), "no name for a certificate"),
        (("client", "x", "--role", "read", "--node", "a"), "goes with --role ingest alone"),
        (("token", "x", "--role", "admin", "--node", "a"), "goes with --role ingest alone"),
        (("server", "a b"), "no name"),
        (("client", "x", "--role", "root"), "is not one of"),
    ],
)
def test_what_makes_no_sense_is_refused(site, arguments, told):
    """One sentence, and no file."""
    before = sorted(site.certs.iterdir())
    assert told in site.certify(*arguments, code=2)
    assert sorted(site.certs.iterdir()) == before


def test_a_token_is_in_its_own_file_alone(site):
    """Not in the access file, nor on the screen; two differ."""
    said = site.certify("token", "probe", "--role", "read")
    token = (site.certs / "probe.token").read_text().strip()
    assert re.fullmatch(r"rw_[A-Za-z0-9_-]{43}", token)
    assert token not in said
    assert token not in site.access.read_text()
    assert token != (site.certs / "read.token").read_text().strip()
    site.remove_token("probe")
