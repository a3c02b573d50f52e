"""Where a trace is saved: nothing stays, and what a killed process left goes."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from roofwatch.hook import trace


def save(path: str) -> None:
    """As kineto does: beside the name, and renamed."""
    Path(path + ".tmp").write_bytes(b"trace")
    Path(path + ".tmp").rename(path)


def test_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace is in memory, the folder is gone; so is one of a process that was killed, others' are left alone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(trace, "_swept", False)
    for name, age_s in (("roofwatch-window-dead", 700), ("roofwatch-window-alive", 60), ("roofwatch-1000", 700)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "window.tmp").symlink_to("/proc/self/fd/99")
        then = time.time() - age_s
        os.utime(tmp_path / name, (then, then))
    full = tmp_path / "roofwatch-window-of-somebody"
    full.mkdir()
    (full / "data").touch()
    os.utime(full, (1, 1))
    for _ in range(2):
        fd = trace.save_private(save)
        assert os.pread(fd, 10, 0) == b"trace"
        os.close(fd)
    left = {"roofwatch-window-alive", "roofwatch-1000", "roofwatch-window-of-somebody"}
    assert {p.name for p in tmp_path.iterdir()} == left
    assert [p.name for p in full.iterdir()] == ["data"]


def test_a_failed_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor, no folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="wrote nothing"):
        trace.save_private(lambda _: None)
    assert list(tmp_path.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before
