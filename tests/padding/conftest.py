"""Windows with lengths in a real database, and the command line."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# store_builders; last in the path, since that folder has a conftest, too
sys.path.append(str(Path(__file__).parent.parent / "store"))

from store_builders import segment_of

from roofwatch.cli.main import main
from roofwatch.model.record import Padding, Window
from roofwatch.store import database
from roofwatch.store.database import Database
from roofwatch.store.ingest import Writer
from roofwatch.store.unpack import Unpacker


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """A fresh SQLite file, open."""
    opened = database.open(str(tmp_path / "store.db"))
    yield opened
    opened.close()


@pytest.fixture
def keep(db: Database) -> Iterator[Callable[[list[Window]], None]]:
    """Puts windows into that database, over the wire's own form."""
    running = Writer(db)
    sequence = 0

    def put(windows: list[Window]) -> None:
        nonlocal sequence
        sequence += 1
        outcome = running.submit(Unpacker().unpack(segment_of(windows, sequence))).result(timeout=30)
        assert outcome.reason == ""

    yield put
    running.close()


@pytest.fixture
def padded() -> Callable[[Window, Padding | None], Window]:
    """A window that tells lengths."""
    return lambda window, padding: dataclasses.replace(window, padding=padding)


@dataclasses.dataclass(frozen=True)
class Done:
    """How a run of the program ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The command line in a folder of its own, in this process: a run takes no start."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        return Done(int(ended.value.code or 0), out, err)

    return call
