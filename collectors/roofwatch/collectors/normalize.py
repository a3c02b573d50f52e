"""From a reader's groups to signatures: kind, canonical inputs, FLOPs and bytes of a call. Pure; no verdicts yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofwatch.collectors import ascend_kernels
from roofwatch.collectors.base import Category, RawGroup, RawProfile
from roofwatch.collectors.carriers import cpu_formula, kernel_formulas, operands
from roofwatch.model.formulas.base import Formula, Work
from roofwatch.model.formulas.precision import precision_of
from roofwatch.model.formulas.table import MAX_COUNT, work_of
from roofwatch.model.kinds import kind_of
from roofwatch.model.record import Device, Signature, Vendor
from roofwatch.model.shapes import Argument, Call, call_of, compact

LONGEST_TEXT = 16_384  # characters of shapes or arguments in a signature; only lists of thousands of tensors are longer


@dataclass(frozen=True, slots=True)
class Normalized:
    """A group and what it is."""

    group: RawGroup
    signature: Signature


def normalize(profile: RawProfile, devices: Sequence[Device]) -> list[Normalized]:
    """The signature of every group; ``devices`` are the profile's, in order.

    An Ascend kernel tells its own inputs and outputs; the kernels of others have those of the op that launched them.
    """
    own = [group for group in profile.groups if _tells_its_own(group, devices)]
    others = [group for group in profile.groups if not _tells_its_own(group, devices)]
    calls = [_call(group) for group in others]
    signatures = [
        _signature(group, call, formula, devices[group.device].vendor)
        for group, call, formula in zip(others, calls, _formulas(others, calls), strict=True)
    ]
    signatures += [
        ascend_kernels.signature_of(group, call, devices[group.device])
        for group, call in zip(own, ascend_kernels.calls_of(own), strict=True)
    ]
    return [Normalized(group, signature) for group, signature in zip([*others, *own], signatures, strict=True)]


def _tells_its_own(group: RawGroup, devices: Sequence[Device]) -> bool:
    return devices[group.device].vendor is Vendor.ASCEND and group.category is not Category.CPU_OP


def _call(group: RawGroup) -> Call | None:
    if group.op is None:
        return None
    call = call_of(group.op, group.shapes, group.dtypes, group.strides, group.concrete, group.kernel)
    if call is None and group.category is Category.CPU_OP:
        return Call(group.op, (), group.kernel)  # views and wrappers are known by name alone
    return call


def _formulas(groups: Sequence[RawGroup], calls: Sequence[Call | None]) -> list[Formula | None]:
    formulas: list[Formula | None] = [None] * len(groups)
    families: dict[tuple[object, ...], list[int]] = {}
    inner = operands([c for c, g in zip(calls, groups, strict=True) if c and g.category is Category.CPU_OP])
    for i, (group, call) in enumerate(zip(groups, calls, strict=True)):
        if call is None:
            continue
        if group.category is Category.CPU_OP:
            formulas[i] = cpu_formula(call, inner)
        elif group.category is Category.KERNEL:
            inputs = (group.shapes, group.dtypes, group.strides, group.concrete)
            families.setdefault((group.device, group.op, *inputs, group.phase, group.module), []).append(i)
    for members in families.values():
        for i, formula in zip(members, kernel_formulas([groups[i] for i in members]), strict=True):
            formulas[i] = formula
    return formulas


def _signature(group: RawGroup, call: Call | None, formula: Formula | None, vendor: Vendor) -> Signature:
    kind = kind_of(group.op, group.kernel, group.category)
    shapes = dtypes = None
    if call is not None and call.arguments:
        shapes, dtypes = _inputs(call)
    work = None if call is None or formula is None else work_of(formula, call)
    if work is None or formula is None or call is None:
        moved = None if group.moved_bytes is None else group.moved_bytes // group.calls
        return Signature(
            group.kernel, kind, group.op, group.phase, group.module, shapes, dtypes, group.arguments,
            bytes=_bounded(moved),
        )  # fmt: skip
    work = _of_one_record(work, group)
    precision, unit = precision_of(formula, call, vendor) if work.flops or work.flops_max else (None, None)
    return Signature(
        group.kernel, kind, group.op, group.phase, group.module, shapes, dtypes, _arguments(call, formula),
        work.flops, work.bytes, formula.name, precision, unit, work.flops_max,
    )  # fmt: skip


def _bounded(count: int | None) -> int | None:
    return count if count is not None and 0 <= count <= MAX_COUNT else None


def _of_one_record(work: Work, group: RawGroup) -> Work:
    """An op that launches its kernel several times (chunks of a list, of a batch) does a part of the work in each."""
    if group.op_calls is None or not 0 < group.op_calls < group.calls:
        return work
    part = [None if n is None else n * group.op_calls // group.calls for n in work]
    return Work(part[0] or 0, part[1] or 0, part[2])


def _inputs(call: Call) -> tuple[str | None, str | None]:
    """Shapes and dtypes of the arguments as compact JSON; arguments after the last tensor are left out."""
    last = max((i for i, a in enumerate(call.arguments) if a.tensor or a.shapes), default=-1)
    kept = call.arguments[: last + 1]
    shapes = compact([_dims(a) for a in kept])
    dtypes = compact([a.tensor.dtype if a.tensor else "" for a in kept])
    return (shapes, dtypes) if len(shapes) <= LONGEST_TEXT else (None, None)


def _dims(argument: Argument) -> list[object]:
    if argument.tensor is not None:
        return list(argument.tensor.shape)
    return [list(shape) for shape in argument.shapes or ()]


def _arguments(call: Call, formula: Formula) -> str | None:
    """What the formula read beside shapes and dtypes: concrete inputs, and strides where they change the bytes."""
    strides = [list(a.tensor.strides) if a.tensor and a.tensor.strides else [] for a in call.arguments]
    read: dict[str, list[object]] = {}
    if any(t.distinct != t.numel for t in call.tensors):
        read["strides"] = list(strides)
    if formula.concrete:
        texts = [a.text or "" for a in call.arguments]
        while texts and not texts[-1]:
            texts.pop()
        if texts:
            read["concrete"] = list(texts)
    text = compact([read])[1:-1] if read else None
    return text if text is None or len(text) <= LONGEST_TEXT else None
