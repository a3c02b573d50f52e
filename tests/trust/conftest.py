"""One place with a CA for all tests of this folder, and one store in it that wants certificates and tokens."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # site_of_trust; the import mode leaves the path alone

from site_of_trust import NODE, Site, Store


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A CA, a store's certificate, clients of each role, tokens of each role."""
    place = Site(tmp_path_factory.mktemp("trust"))
    place.certify("ca")
    place.certify("server", "localhost", "127.0.0.1", "--name", "store")
    for role in ("ingest", "read", "operate", "admin"):
        place.certify("client", role, "--role", role)
        place.certify("token", role, "--role", role)
    place.certify("client", "node-a", "--role", "ingest", "--node", "gpu-a")
    place.certify("client", "this-node", "--role", "ingest", "--node", NODE)
    place.certify("token", "node-a", "--role", "ingest", "--node", "gpu-a")
    yield place
    place.stop()


@pytest.fixture(scope="session")
def mutual(site: Site) -> Store:
    """A store that lets in who has a certificate of the CA, and knows tokens."""
    ca = str(site.certs / "ca.pem")
    return site.store("mutual", "--tls-client-ca", ca, "--access-file", str(site.access), "--reflection")


@pytest.fixture(scope="session")
def tokens(site: Site) -> Store:
    """A store that lets in who has a token."""
    return site.store("tokens", "--access-file", str(site.access), "--reflection")
