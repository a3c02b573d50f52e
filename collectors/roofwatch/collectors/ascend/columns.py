"""What the columns of Ascend's kernel tables are for, and what a kernel's name tells where its type is not told."""

from __future__ import annotations

import re
from functools import lru_cache

# Metric → field of ``base.Pipes``. AI cores of the first generations have cube and vector unit in one, and no prefix.
PIPES = {
    "aic_mac_ratio": "mac_ns",
    "mac_ratio": "mac_ns",
    "aic_scalar_ratio": "cube_scalar_ns",
    "scalar_ratio": "cube_scalar_ns",
    "aic_mte1_ratio": "mte1_ns",
    "mte1_ratio": "mte1_ns",
    "aic_mte2_ratio": "cube_mte2_ns",
    "mte2_ratio": "cube_mte2_ns",
    "aic_fixpipe_ratio": "fixpipe_ns",
    "fixpipe_ratio": "fixpipe_ns",
    "aiv_vec_ratio": "vec_ns",
    "vec_ratio": "vec_ns",
    "vec_exe_ratio": "vec_ns",
    "aiv_scalar_ratio": "vector_scalar_ns",
    "aiv_mte2_ratio": "vector_mte2_ns",
    "aiv_mte3_ratio": "mte3_ns",
    "mte3_ratio": "mte3_ns",
    # ArithmeticUtilization tells the two computing pipes by type; no cycle is of two types, so these add up.
    **{f"{side}mac_{kind}_ratio": "mac_ns" for side in ("aic_", "") for kind in ("fp16", "int8")},
    **{f"{side}vec_{kind}_ratio": "vec_ns" for side in ("aiv_", "") for kind in ("fp32", "fp16", "int32", "misc")},
}
OCCUPIED = "cube_utilization(%)"  # per cent of a call's time, where the others are ratios
CYCLES = {"aic": ("aic_total_cycles", "total_cycles"), "aiv": ("aiv_total_cycles",)}  # of all cores of a sort
# Traffic with the memory: a rate over the cycles of the side's cores (set Memory), or an amount (MemoryAccess).
RATES = {
    **{f"{side}_main_mem_{way}_bw": side for side in CYCLES for way in ("read", "write")},
    **{f"main_mem_{way}_bw": "aic" for way in ("read", "write")},
}
AMOUNTS = frozenset(f"{side}_{way}_main_memory_datas" for side in CYCLES for way in ("read", "write"))
GIB, KIB = 1 << 30, 1 << 10  # what the tables mean by GB and KB
PIPE_FIELDS = (*dict.fromkeys(PIPES.values()), "occupied_ns", "core_ns", "moved_bytes")

_DIGITS = re.compile(r"\d{1,9}\Z")
_VERSIONED = re.compile(r"(\w{1,200}?[a-z0-9]V\d)\d{0,8}\Z")
_LONGEST = 512  # characters of a name that are looked at


@lru_cache(maxsize=16_384)
def kernel_by_name(name: str) -> str:
    """What sort of kernel it is by its name, for tables that do not tell the type (Level0); else the name itself.

    Names that the operator library makes end in the type ("aclnnAdd_AddAiCore_Add"). Those that a framework makes carry
    a number: the kernel's place in its graph ("Conv2D1", "trans_TransData_0", "Conv2DBackpropFilter6_MemSet").
    """
    parts = [part for part in re.split(r"[_/]", name[:_LONGEST]) if part and not part.isdigit()]
    if name.startswith("triton") or not parts or not parts[-1][:1].isupper():
        return name
    return parts[-1] if name.startswith("aclnn") and len(parts) > 1 else _without_number(parts[-1])


def _without_number(name: str) -> str:
    """Without the number at the end; the digit of a version ("MatMulV2") is none."""
    versioned = _VERSIONED.match(name)
    return versioned[1] if versioned else _DIGITS.sub("", name) or name
