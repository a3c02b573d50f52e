"""What this process holds, as Python and the C library count it: no holes of a heap, which the system counts, too."""

from __future__ import annotations

import ctypes
import gc
import sys


class Mallinfo2(ctypes.Structure):
    """Of glibc."""

    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]


def held() -> tuple[int, int]:
    """Python's blocks, and bytes of the C library."""
    gc.collect()
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = Mallinfo2
    found = library.mallinfo2()
    return sys.getallocatedblocks(), found.uordblks + found.hblkhd
