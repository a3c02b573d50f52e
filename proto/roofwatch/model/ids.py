"""Content-hash ids: 63 bits of BLAKE2b, so that no process has to allocate them and they fit a signed SQL integer."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def content_id(*parts: Any) -> int:
    """A positive 63-bit id of the parts (JSON values), stable over processes, machines and versions."""
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
