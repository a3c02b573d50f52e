"""Whom the agent trusts and what it shows to the store; the files may be replaced while it runs."""

from __future__ import annotations

import asyncio

from roofwatch.agent.log import Log
from roofwatch.model.errors import UsageError
from roofwatch.proto.trust import Material, Trust

LOOK_S = 1.0


class Credentials:
    """The files of ``Trust``, read for each connection."""

    def __init__(self, trust: Trust, target: str, log: Log) -> None:
        self._trust, self._target, self._log = trust, target, log
        self._seen = trust.state()
        self.expires: dict[str, float] = {}  # Unix seconds, of "client" and "ca"

    def trust(self, trust: Trust) -> None:
        """Other files: ``changed`` finds them within a second."""
        self._trust = trust

    def load(self) -> Material:
        """What the files hold now.

        Raises:
            UsageError: they cannot be used.
        """
        self._seen = self._trust.state()
        return self._load()

    def _load(self) -> Material:
        material = self._trust.load()
        if material.ca is not None:
            from roofwatch.proto import certificates  # noqa: PLC0415 - 6 MB that plain text does not need

            expires = {"ca": certificates.first_expiry(material.ca)}
            if material.cert is not None and material.key is not None:
                certificates.check_pair(material.cert, material.key)
                expires["client"] = certificates.first_expiry(material.cert)
            self.expires = expires
        return material

    async def changed(self) -> None:
        """Wait until there are other files, and they can be used; a connection keeps what it began with."""
        while True:
            await asyncio.sleep(LOOK_S)
            now = self._trust.state()
            if now == self._seen:
                continue
            self._seen = now
            try:
                self._load()
            except (UsageError, ValueError) as error:
                self._log.warning("credentials_not_taken", error=error)
                continue
            return

    async def problem(self) -> str:
        """Why no connection comes about, in words, "" where that cannot be told."""
        from roofwatch.proto import handshake  # noqa: PLC0415 - for when something is wrong

        host, _, port = self._target.rpartition(":")
        if not port.isdigit():
            return ""
        try:
            met = await asyncio.to_thread(handshake.ask, host.strip("[]"), int(port), self._trust.load())
        except UsageError as error:
            return str(error)
        return met.problem and f"the store {met.problem}"
