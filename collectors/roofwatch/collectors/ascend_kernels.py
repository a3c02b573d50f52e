"""From groups of Ascend kernels to signatures: by the kernel's own type, inputs and outputs, not by an op's. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from roofwatch.collectors.base import Category, RawGroup
from roofwatch.collectors.pipes import with_occupied
from roofwatch.model.formulas.ascend.operands import PLAIN, KernelCall, Operand, operands_of, outputs_of, relayouts
from roofwatch.model.formulas.ascend.table import KernelFormula, formula_of_type, precision_of_kernel, work_of_kernel
from roofwatch.model.formulas.base import Work
from roofwatch.model.kinds import Kind, kind_of, kind_of_type
from roofwatch.model.record import Device, Signature
from roofwatch.model.roofline import peak_of
from roofwatch.model.shapes import compact

LONGEST_TEXT = 16_384  # characters, as of other signatures
_CUBE_CORE = "AI_CORE"
_LAYOUT_TAX = ("transdata", "transpose", "cast")
_VECTOR = ("VECTOR", "AIV", "AIVEC")
_ON_CUBE = frozenset({Kind.MATMUL, Kind.GROUPED_MATMUL, Kind.CONV, Kind.ATTENTION, Kind.COMM_COMPUTE})
# How much more a formula may count than the cube was measured to do before it is taken for wrong: on real products the
# two differ by 3 % at most, and the cube's figure has the padding of tiles as well.
_BEYOND_THE_CUBE = 1.1


def calls_of(groups: Sequence[RawGroup]) -> list[KernelCall | None]:
    """The call of each group, None where inputs or outputs are not told; tiled tensors with what TransData tells."""
    calls = [_call(group) for group in groups]
    known = relayouts(call for call in calls if call is not None and call.type.lower().startswith("transdata"))
    return [None if call is None else replace(call, known=known) for call in calls] if known else calls


def _call(group: RawGroup) -> KernelCall | None:
    inputs = operands_of(group.shapes, group.dtypes, group.formats)
    outputs = outputs_of(group.outputs)
    if inputs is None and outputs is None:
        return None
    return KernelCall(sort_of(group), inputs or (), outputs or (), group.hf32)


def sort_of(group: RawGroup) -> str:
    """The kernel's type, by its name where the source does not tell it."""
    return group.type or group.kernel


def kind_of_group(group: RawGroup) -> Kind:
    """The kind by core and type, then by the op, then by the kernel's name."""
    if group.category in (Category.MEMCPY, Category.MEMSET):
        return Kind.COPY_FILL
    return kind_of_type(sort_of(group), group.core) or kind_of(group.op, group.kernel)


def on_vector(group: RawGroup) -> bool:
    """Whether its blocks are counted in vector cores; by kind where the source does not tell where it ran."""
    if group.core is not None:
        return any(word in group.core for word in _VECTOR)
    return kind_of_group(group) not in _ON_CUBE


def cores_at_work(groups: Sequence[RawGroup]) -> dict[int, int]:
    """Device → the most blocks of a kernel on cube cores alone: such kernels have a block a core, never more."""
    found: dict[int, int] = {}
    for group in groups:
        if group.core == _CUBE_CORE and group.blocks is not None:
            found[group.device] = max(found.get(group.device, 0), group.blocks)
    return found


def is_layout_tax(group: RawGroup) -> bool:
    """Whether no model asked for it: an operand put into the format, order or dtype that a kernel takes."""
    return group.inserted and sort_of(group).lower().startswith(_LAYOUT_TAX)


def signature_of(group: RawGroup, call: KernelCall | None, device: Device) -> Signature:
    """What the group's kernel is; without FLOPs and bytes where no formula counts it, or the cube did less than it."""
    kind = kind_of_group(group)
    if call is None or kind in (Kind.COMM, Kind.AICPU):
        moved = None if group.moved_bytes is None else group.moved_bytes // group.calls
        return Signature(
            group.kernel, kind, group.op, group.phase, group.module, *_described(call), group.arguments,
            bytes=moved if moved is None or moved >= 0 else None,
        )  # fmt: skip
    formula = formula_of_type(call.type)
    work = None if formula is None else work_of_kernel(formula, call)
    precision = unit = None
    if formula is not None and work is not None and (work.flops or work.flops_max):
        precision, unit = precision_of_kernel(formula, call)
    if formula is None or work is None or _cube_did_less(group, work, device, precision, unit):
        return Signature(group.kernel, kind, group.op, group.phase, group.module, *_described(call))
    return Signature(
        group.kernel, kind, group.op, group.phase, group.module, *_described(call), _arguments(call, formula),
        work.flops, work.bytes, formula.name, precision, unit, work.flops_max,
    )  # fmt: skip


def _cube_did_less(group: RawGroup, work: Work, device: Device, precision: str | None, unit: str | None) -> bool:
    """Whether the pipes show fewer FLOPs than the formula counts: a mask that hides more, for one.

    The cube's share of its cores' time, times the share of the time that cores were taken, is its share of the peak.
    """
    pipes, peak = group.pipes, peak_of(device.peaks, precision, unit)
    if pipes is None or pipes.cube_mte2_ns is None or peak is None or unit != "matrix":
        return False  # without its pipes' set: types of products are told that need not be all there are
    pipes = with_occupied(pipes, device.units)
    if not pipes.mac_ns or not pipes.occupied_ns:
        return False
    share = pipes.mac_ns / pipes.measured_ns * min(1.0, pipes.occupied_ns / pipes.measured_ns)
    mean_s = group.total_ns / group.calls / 1e9
    return work.flops > _BEYOND_THE_CUBE * share * peak * mean_s


def _described(call: KernelCall | None) -> tuple[str | None, str | None]:
    """Shapes and dtypes of the inputs as compact JSON; those after the last that has dimensions are left out."""
    if call is None or not call.inputs:
        return None, None
    last = max((i for i, o in enumerate(call.inputs) if o.shape), default=-1)
    kept = call.inputs[: last + 1]
    shapes = compact([list(o.shape) for o in kept])
    return (shapes, compact([o.dtype for o in kept])) if len(shapes) <= LONGEST_TEXT else (None, None)


def _arguments(call: KernelCall, formula: KernelFormula) -> str | None:
    """What the formula read beside shapes and dtypes: outputs, formats, and whether fp32 products were HF32."""
    read: dict[str, object] = {"outputs": _told(call.outputs)} if call.outputs else {}
    if any(o.format not in PLAIN for o in (*call.inputs, *call.outputs)):
        read["formats"] = [o.format for o in call.inputs]
    if formula.matrix and call.hf32 is not None:
        read["hf32"] = call.hf32
    text = json.dumps(read, separators=(",", ":"))
    return text if read and len(text) <= LONGEST_TEXT else None


def _told(operands: Sequence[Operand]) -> list[list[object]]:
    return [[list(o.shape) for o in operands], [o.dtype for o in operands], [o.format for o in operands]]
