"""A store, agents and jobs for the tests of captures."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # the import mode leaves the path alone

from capture_site import Site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A store and whatever a test starts beside it."""
    folder = Path(tempfile.mkdtemp(prefix="rw-"))  # short: it holds sockets
    made = Site(folder)
    try:
        made.store()
        yield made
    finally:
        made.end()
        shutil.rmtree(folder, ignore_errors=True)
