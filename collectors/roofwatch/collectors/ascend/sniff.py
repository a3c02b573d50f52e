"""What a file is, by how it begins."""

from __future__ import annotations

import re
import zlib
from enum import Enum

from roofwatch.collectors.ascend.csv_cells import row_of
from roofwatch.collectors.ascend.csv_head import Head, head_of

HEAD_BYTES = 1 << 16
_INFLATED = 1 << 18
SQLITE = b"SQLite format 3\x00"
_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
_TIMES = b"Duration(us)"
# What a list of events of torch_npu or msprof has near its beginning, and one of Kineto's has not.
_OF_ASCEND = re.compile(
    rb'"async_npu"|Ascend Hardware|"HostToDevice|"CANN"|"connection_id"|torch_npu|"Input Dims":\s*"'
)


class Sort(Enum):
    """What a file of a capture is for."""

    DATABASE = "database"
    TABLE = "table"  # of kernels: kernel_details.csv
    SUMMARY = "summary"  # of kernels too, as msprof writes it: op_summary
    VIEW = "view"  # trace_view.json
    HELPER = "helper"


def plain(head: bytes) -> bytes:
    """The beginning of a file's text, decompressed."""
    if head.startswith(_GZIP):
        try:
            head = zlib.decompressobj(31).decompress(head, _INFLATED)
        except zlib.error:
            return b""
    return head.removeprefix(_BOM).lstrip(_BLANK)


def sort_of(head: bytes) -> Sort | None:
    """What a file is whose first ``HEAD_BYTES`` are given; None where it is nothing of Ascend's."""
    if head.startswith(SQLITE):
        return Sort.DATABASE
    text = plain(head)
    if text.startswith(b"["):
        return Sort.VIEW if _OF_ASCEND.search(text) else None
    if not text or text.startswith(b"{"):
        return None
    line = text.partition(b"\n")[0]
    if not isinstance(head_of(line), Head):
        return None
    return Sort.SUMMARY if "opname" in {name.replace(" ", "").lower() for name in row_of(line)} else Sort.TABLE


def is_table(head: bytes) -> bool:
    """Whether a file that is no known table, but text with commas or with a column of times, was meant as one."""
    line = plain(head).partition(b"\n")[0]
    meant = line.count(b",") > 1 or _TIMES in line
    return meant and not line.startswith((b"{", b"[")) and b"\x00" not in line
