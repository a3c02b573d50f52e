"""Names of collective operations: one word for what libraries, ops and kernels call by many."""

from __future__ import annotations

import re
from functools import lru_cache

COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter", "barrier",
    "send", "recv",
)  # fmt: skip

# Between two ranks: the others of the group have no part in it.
POINT_TO_POINT = frozenset({"send", "recv"})

# No rank is through before all have arrived.
MEETING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})

# Ranks may put in and get out different sizes.
UNEVEN = frozenset({"all_to_all", "gather", "scatter"})

_LONGEST = 256  # characters of a name that are looked at: names are untrusted
_SUFFIX = r"(?:base|coalesced|sparse|intotensor|tensor|single|autograd|inplace|outofplace|outplace|oop|out|op|v)*"
# Names in lower case without underscores; affixes say how a library does it, not what it does.
_WORDS = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("barrier", r"(?:monitored|allreduce)?barrier"),
        ("all_reduce", r"(?:hcom|sparse|multimem|oneshot|twoshot|custom|quick)*allreduce(?:reg|unreg)?" + _SUFFIX),
        ("all_gather", r"(?:hcom|multimem)?allgather" + _SUFFIX),
        ("reduce_scatter", r"(?:hcom|multimem)?reducescatter" + _SUFFIX),
        ("all_to_all", r"(?:hcom)?alltoall" + _SUFFIX),
        ("broadcast", r"(?:hcom)?broadcast" + _SUFFIX),
        ("reduce", r"(?:hcom)?reduce" + _SUFFIX),
        ("gather", r"gather"),
        ("scatter", r"scatter"),
        ("send", r"i?send|hcomsend"),
        ("recv", r"i?recv(?:anysource)?|hcomreceive"),
    )
)
_UNMISTAKABLE = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})
# Whose ops are collectives by any of the names; elsewhere (aten::gather) some of the words mean other things.
_LIBRARIES = frozenset({"c10d", "_c10d_functional", "nccl", "rccl", "gloo", "mpi", "ucc", "xccl", "hccl"})

_KERNELS = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("reduce_scatter", r"reduce_?scatter"),
        ("all_reduce", r"all_?reduce|cross_device_reduce"),
        ("all_gather", r"all_?gather"),
        ("all_to_all", r"all_?to_?all"),
        ("broadcast", r"nccl(?:Dev)?Kernel_Broadcast"),
        ("reduce", r"nccl(?:Dev)?Kernel_Reduce_"),
    )
)


@lru_cache(maxsize=4096)
def collective_of(name: str) -> str | None:
    """The collective that a library's own word stands for: "_allgather_base" → "all_gather"; None where it is none."""
    word = name[:_LONGEST].replace("_", "").lower()
    return next((found for found, pattern in _WORDS if pattern.fullmatch(word)), None)


@lru_cache(maxsize=4096)
def collective_of_op(op: str) -> str | None:
    """The collective that an op or a range is by its name ("c10d::allreduce_", "gloo:all_reduce"), or None."""
    library, separator, word = op[:_LONGEST].rpartition(":")
    library = library.rstrip(":")
    if not separator or library == "aten":
        return None
    found = collective_of(word.partition(" ")[0])  # "nccl:recv 0<-1" names the ranks
    return found if library in _LIBRARIES or found in _UNMISTAKABLE else None


@lru_cache(maxsize=4096)
def collective_of_kernel(kernel: str) -> str | None:
    """The collective that a device kernel does by its name; None where the name leaves it open (SendRecv, Generic)."""
    return next((found for found, pattern in _KERNELS if pattern.search(kernel[:_LONGEST])), None)
