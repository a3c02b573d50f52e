"""The check of ``roofwatch doctor`` that counts days until certificates end."""

from __future__ import annotations

import time
from typing import Literal

from roofwatch.cli import trusting
from roofwatch.model.errors import RoofwatchError
from roofwatch.proto.trust import Trust
from roofwatch.store.config import is_loopback, parse_address

SOON_DAYS = 30
RENEW = "issue new ones with 'roofwatch certs server … --renew' or 'certs client … --renew'; nothing needs a restart"

Ends = list[tuple[str, float]]  # what, Unix seconds


def found(store: str, socket: str) -> tuple[Literal["ok", "warn", "fail"], str, str | None]:
    """Status, detail and advice: certificates of this command line, of the store that it asks, and of the agent."""
    trust = trusting.given()
    ends = [*_own(trust, store), *_of_agent(socket)]
    if not ends:
        host, _ = parse_address(store)
        if is_loopback(host):
            return "ok", "none: plain text, on this machine", None
        return "warn", f"none: plain text to {store}", "let the store speak TLS: docs/security.md"
    now = time.time()
    days = {what: int((moment - now) // 86_400) for what, moment in ends}
    detail = ", ".join(f"{what} {left} days" if left >= 0 else f"{what} HAS ENDED" for what, left in days.items())
    least = min(days.values())
    if least < 0:
        return "fail", detail, RENEW
    return ("warn", detail, RENEW) if least < SOON_DAYS else ("ok", detail, None)


def _own(trust: Trust, store: str) -> Ends:
    from roofwatch.proto import certificates, handshake  # noqa: PLC0415  # cryptography takes 0.1 s

    material = trust.load()
    if material.ca is None:
        return []
    ends = [("CA", certificates.first_expiry(material.ca))]
    if material.cert is not None:
        ends.append(("mine", certificates.first_expiry(material.cert)))
    met = handshake.ask(*parse_address(store), material)
    return ends if met.expires_unix_s is None else [*ends, ("the store's", met.expires_unix_s)]


def _of_agent(socket: str) -> Ends:
    from roofwatch.agent import status  # noqa: PLC0415  # --help must not pay for it

    try:
        told = status.request(socket)["uplink"].get("certificates", {})
    except RoofwatchError:
        return []
    names = {"client": "the agent's", "ca": "the agent's CA"}
    return [(names[which], float(moment)) for which, moment in told.items() if which in names]
