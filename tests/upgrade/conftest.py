"""The previous version, built from its commit as a wheel, beside this one. ROOFWATCH_UPGRADE=long runs every order."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # machine; the import mode leaves the path alone

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "store"))  # postgres_server

from machine import Machine, Version
from postgres_server import Postgres, running_postgres

ROOT = Path(__file__).resolve().parents[2]
# What ran before this version: the commit that was released last. Set it to the new one with each release.
PREVIOUS = "a1eab8094de59db530bcb4bdb26d255faa2a649e"
LONG = os.environ.get("ROOFWATCH_UPGRADE") == "long"


@pytest.fixture(scope="session")
def long() -> bool:
    """Whether to take the time that it takes."""
    return LONG


@pytest.fixture(scope="session")
def this() -> Version:
    """This version."""
    return Version("this", Path(sys.executable))


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """The previous version's wheel in an environment of its own, which borrows everything else from this one's."""
    folder = tmp_path_factory.mktemp("previous")
    source = folder / "source"
    source.mkdir()
    found = subprocess.run(
        ["git", "cat-file", "-e", f"{PREVIOUS}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    )
    if found.returncode:
        pytest.skip(
            f"the commit {PREVIOUS[:8]} of the previous version is not at hand (no history, or a shallow clone)"
        )
    archive = subprocess.run(["git", "archive", PREVIOUS], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    packages = next((folder / "venv" / "lib").glob("python*/site-packages"))
    zipfile.ZipFile(next(folder.glob("*.whl"))).extractall(packages)
    # A line of a .pth file adds a folder, but not that folder's own .pth files: so this version is not found there.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = [python, "-c", "import roofwatch.store.schema as s, roofwatch.hook as h; print(s.__file__, h.__file__)"]
    told = subprocess.run(where, capture_output=True, text=True, check=True, cwd=folder).stdout
    assert told.count(str(packages)) == 2, told
    return Version("previous", python)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real Postgres."""
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A machine without anything running; its folder is short, since a socket's path may have 107 bytes."""
    url = ""
    if request.param == "postgres":
        if not LONG:
            pytest.skip("ROOFWATCH_UPGRADE=long runs it")
        server: Postgres = request.getfixturevalue("postgres")
        url = server.url(server.create())
    folder = Path(tempfile.mkdtemp(prefix="rw-"))
    made = Machine(folder, url)
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(folder, ignore_errors=True)
