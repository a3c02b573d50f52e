"""What the names of host calls, ops and ranges mean. Matched once for each distinct name, never once for each event."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

_LAUNCH = re.compile(r"Launch(?!HostFunc)|Mem(?:cpy|set)")
_GRAPH_LAUNCH = re.compile(r"\A(?:cu|cuda|hip)GraphLaunch")
_CAPTURE_BEGIN = re.compile(r"\A(?:cu|cuda|hip)StreamBeginCapture")
_CAPTURE_END = re.compile(r"\A(?:cu|cuda|hip)StreamEndCapture")
_ANY_COPY = re.compile(r"Memcpy")
_COPY = re.compile(r"Memcpy(?!.*Async)")  # returns when the copy is done
_SYNC = re.compile(
    r"(?:Stream|Device|Event|Ctx)Synchronize|ThreadSynchronize|\A(?:cuda|hip)Free\Z|\A(?:AscendCL@)?aclrtSynchronize"
)
_FREE = re.compile(r"\A(?:cuda|hip)Free\Z")
_SYNC_OPS = frozenset({"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"})
_COPY_OP = "aten::copy_"
_PAGEABLE = re.compile(r"Pageable")  # a copy from or to ordinary host memory blocks its caller, even when asynchronous
_ITEM_GRID = re.compile(r"\Ahip(?:Ext|Hcc)ModuleLaunchKernel")
_BACKWARD = re.compile(r"\Aautograd::engine::evaluate_function|Backward\d*\Z")
_EVALUATE = re.compile(r"\Aautograd::engine::evaluate_function")
_OPTIMIZER = re.compile(r"\AOptimizer\.(?:step|zero_grad)#")
_RECORD = re.compile(r"\APyTorch Profiler \(\d+\)\Z")  # how long the profiler itself says that it recorded
_STEP = re.compile(r"\AProfilerStep#\d+\Z")
# A data loader's next, as torch has named it over the years (torchdata's stateful one by its own class), and Lightning.
# A range that merely holds the word (an epoch over a loader) is not one: all that is done in it would be input.
_INPUT = re.compile(
    r"\Aenumerate\(\w*DataLoader\)(?:#\w+\.__next__)?\Z|\A\w*DataLoaderIter\.__next__\Z|"
    r"\A\[pl\]\[profile\]\S*_dataloader_next\Z"
)
_COMMUNICATION_CALL = re.compile(r"\A(?:c10d::|nccl:|gloo:|mpi:|ucc:|record_param_comms|hccl:)")
_MODULE = re.compile(r"\Ann\.Module: (.*?)(?:_\d+)?\Z", re.DOTALL)

Mask = NDArray[np.bool_]
Test = Callable[[str], object]


def mask(names: Sequence[str], test: Test) -> Mask:
    """For each name whether it passes ``test``."""
    return np.fromiter((bool(test(name)) for name in names), dtype=np.bool_, count=len(names))


is_launch: Test = _LAUNCH.search
is_graph_launch: Test = _GRAPH_LAUNCH.match
is_capture_begin: Test = _CAPTURE_BEGIN.match
is_capture_end: Test = _CAPTURE_END.match
is_item_grid: Test = _ITEM_GRID.match  # its grid counts work items, where all others' count blocks
is_copy_call: Test = _ANY_COPY.search
is_blocking_copy: Test = _COPY.search
is_sync_call: Test = _SYNC.search
is_free_call: Test = _FREE.match
is_copy_op: Test = _COPY_OP.__eq__
is_pageable: Test = _PAGEABLE.search
is_sync_op: Test = _SYNC_OPS.__contains__
is_backward: Test = _BACKWARD.search
is_evaluate: Test = _EVALUATE.match
is_optimizer: Test = _OPTIMIZER.match
is_record: Test = _RECORD.match
is_step: Test = _STEP.match
is_input: Test = _INPUT.match
is_communication_call: Test = _COMMUNICATION_CALL.match


def module_of(range_name: str) -> str:
    """The class of a module from the name of its range: "nn.Module: Linear_3" → "Linear"."""
    found = _MODULE.match(range_name)
    return found[1] if found else range_name
