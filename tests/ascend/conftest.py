"""Small databases of Ascend's profilers, made by hand."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collectors.base import RawProfile
from roofwatch.collectors.registry import read

sys.path.insert(0, str(Path(__file__).parent))  # helpers of this folder; the import mode leaves the path alone

COMPUTE = (
    "name", "globalTaskId", "blockDim", "mixBlockDim", "taskType", "opType", "inputFormats", "inputDataTypes",
    "inputShapes", "outputFormats", "outputDataTypes", "outputShapes", "attrInfo",
)  # fmt: skip
TASK = ("startNs", "endNs", "deviceId", "connectionId", "globalTaskId", "globalPid", "taskType", "contextId",
        "streamId", "taskId", "modelId")  # fmt: skip
COMMUNICATION = ("opName", "startNs", "endNs", "connectionId", "groupName", "opId", "relay", "retry", "dataType",
                 "algType", "count", "opType")  # fmt: skip
API = ("startNs", "endNs", "type", "globalTid", "connectionId", "name")
TORCH = ("startNs", "endNs", "globalTid", "connectionId", "name", "sequenceNumber", "fwdThreadId", "inputDtypes",
         "inputShapes", "callchainId", "type")  # fmt: skip
ABSENT = 4_294_967_295
BASE = 1_736_410_576_000_000_000  # a time in January 2025


class Made:
    """One database: tables as they are asked for, texts as ids."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = sqlite3.connect(path)
        self.connection.execute("create table STRING_IDS (id INTEGER PRIMARY KEY, value TEXT)")
        self._texts: dict[str, int] = {}

    def text(self, value: str) -> int:
        """The id of a text."""
        if value not in self._texts:
            self._texts[value] = len(self._texts)
            self.connection.execute("insert into STRING_IDS values (?,?)", (self._texts[value], value))
        return self._texts[value]

    def table(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]] = ()) -> None:
        """Makes a table without types, and fills it."""
        self.connection.execute(f"create table {name} ({','.join(columns)})")
        self.fill(name, rows)

    def fill(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        """Adds rows to a table."""
        for row in rows:
            marks = ",".join("?" * len(row))
            self.connection.execute(f"insert into {name} values ({marks})", row)  # noqa: S608 - a test's own words

    def kernels(self, rows: Iterable[dict[str, Any]], compute: Sequence[str] = COMPUTE) -> None:
        """Compute tasks: start and end after ``BASE``, and what differs from the default."""
        self.table("TASK", TASK)
        self.table("COMPUTE_TASK_INFO", compute)
        for at, row in enumerate(rows):
            cells = {
                "name": "aclnnAdd_AddAiCore_Add", "opType": "Add", "taskType": "AI_VECTOR_CORE", "blockDim": 40,
                "mixBlockDim": 0, "inputShapes": '"2,3;3"', "inputDataTypes": "FLOAT;FLOAT", "inputFormats": "ND;ND",
                "outputShapes": '"2,3"', "outputDataTypes": "FLOAT", "outputFormats": "ND", "attrInfo": "N/A",
                "globalTaskId": at, "deviceId": 0, "connectionId": 100 + at, "globalPid": 77, "contextId": ABSENT,
                "streamId": 2, "taskId": at, "modelId": ABSENT, "raw": "KERNEL_AIVEC", **row,
            }  # fmt: skip
            self.fill("TASK", [[self._cell(cells, column, raw=True) for column in TASK]])
            if not row.get("again"):
                self.fill("COMPUTE_TASK_INFO", [[self._cell(cells, column) for column in compute]])

    def _cell(self, cells: dict[str, Any], column: str, *, raw: bool = False) -> Any:
        if column in ("startNs", "endNs"):
            value = cells[column[:-2]]
            return BASE + value if type(value) is int else value
        value = cells["raw" if raw and column == "taskType" else column]
        is_text = isinstance(value, str) and column not in ("startNs", "endNs", "globalTaskId", "deviceId")
        return self.text(value) if is_text else value

    def read(self, **limits: Any) -> RawProfile:
        """What the reader makes of it."""
        self.connection.commit()
        return read(self.path, **limits)


@pytest.fixture
def made(tmp_path: Path) -> Callable[[], Made]:
    """A maker of databases."""
    count = iter(range(1000))
    return lambda: Made(tmp_path / f"made_{next(count)}.db")
