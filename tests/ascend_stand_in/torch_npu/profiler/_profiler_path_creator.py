# ruff: noqa: PTH103, PTH109, PTH111, PTH118 - paths as texts, as the real one has them
"""Where the next profile goes: one object a process."""

from __future__ import annotations

import os
import re
import shutil
import socket
import warnings
from datetime import UTC, datetime

from torch_npu import _faults


class Singleton:
    def __init__(self, cls: type) -> None:
        self._cls = cls
        self._instance: dict[type, object] = {}

    def __call__(self) -> object:
        if self._cls not in self._instance:
            self._instance[self._cls] = self._cls()
        return self._instance[self._cls]


@Singleton
class ProfPathCreator:
    def __init__(self) -> None:
        self._prof_path: str | None = None
        self._worker_name: str | None = None
        self._dir_path: str | None = None
        self._export_only_mode = False
        self.is_prof_inited = False

    def init(self, worker_name: str | None = None, dir_name: str | None = None, export_only_mode: bool = False) -> None:
        self._export_only_mode, self._worker_name = export_only_mode, worker_name
        self._dir_path = None if dir_name is None else os.path.realpath(os.path.expanduser(dir_name))
        if dir_name is not None:
            _check(self._dir_path)

    def create_prof_dir(self) -> None:
        folder = self._dir_path or os.environ.get("ASCEND_WORK_PATH") or os.getcwd()
        moment = datetime.now(tz=UTC).strftime("%Y%m%d%H%M%S%f")[:-3]
        name = f"{self._worker_name or socket.gethostname()}_{os.getpid()}_{moment}_ascend_pt"
        self._prof_path = os.path.join(folder, name)
        os.makedirs(self._prof_path, mode=0o750)
        self.is_prof_inited = True

    def get_prof_dir(self) -> str | None:
        return self._prof_path

    def delete_prof_dir(self) -> None:
        shutil.rmtree(self._prof_path)


def _check(path: str) -> None:
    if re.fullmatch(r"(\.|/|_|-|\s|[~0-9a-zA-Z])+", path):
        return
    if "old" in _faults.wanted():
        raise RuntimeError(f"Invalid input path: {path}")
    warnings.warn(f"Invalid input path: {path}", stacklevel=2)
