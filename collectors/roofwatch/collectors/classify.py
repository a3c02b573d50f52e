"""From signatures to verdicts: the peaks of the device they ran on, and what a backlog record may borrow. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from roofwatch.collectors import ascend_kernels
from roofwatch.collectors.base import Category, Grid, RawGroup
from roofwatch.collectors.measured import Ran, measured
from roofwatch.collectors.names import judge_by_name
from roofwatch.collectors.normalize import Normalized
from roofwatch.model.devices import vector_units
from roofwatch.model.formulas import views
from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Device, Evidence, KernelStat, Ledger, Phase, Signature, Vendor
from roofwatch.model.roofline import MOST_ROOF_NS, UNKNOWN, Verdict, judge, peak_of

LENDERS_AGREE = (
    0.9  # share of a kernel's classified time in one bound, for a record of unknown shape to take that bound
)

# Whose FLOPs are the model's: what MFU is made of in the literature, without elementwise work.
MODEL_KINDS = frozenset({Kind.MATMUL, Kind.GROUPED_MATMUL, Kind.CONV, Kind.ATTENTION})

MOST_FLOPS = 1 << 62  # of one window: a thousand of today's fastest devices for an hour

_BY_NAME = frozenset({views.VIEW.name, views.WRAPPER.name})
_PROVEN = frozenset({Evidence.COUNTERS, Evidence.SHAPES, Evidence.BORROWED})


@dataclass(slots=True)
class _Merged:
    """Records of one signature on one device: the sums, and whether they may only borrow.

    ``captured``: the signature is of the call that a graph was captured from.
    """

    signature: Signature
    device: int
    backlog: bool
    category: Category
    captured: bool
    groups: list[RawGroup] = field(default_factory=list)

    @property
    def calls(self) -> int:
        return sum(g.calls for g in self.groups)

    @property
    def total_ns(self) -> int:
        return sum(g.total_ns for g in self.groups)

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.calls if self.calls else 0.0

    @property
    def blocks(self) -> int | None:
        known = [g.blocks for g in self.groups if g.blocks is not None]
        return min(known) if known else None

    @property
    def grid(self) -> Grid | None:
        """The one grid of all records."""
        grids = {g.grid for g in self.groups}
        return next(iter(grids)) if len(grids) == 1 else None


@dataclass(frozen=True, slots=True)
class _Loan:
    """What a kernel's linked records lend to its backlog: a whole signature, or a bound, or nothing."""

    signature: Signature | None = None
    bound: Bound | None = None


_NOTHING = _Loan()


def classify(
    items: Sequence[Normalized], devices: Sequence[Device], *, borrowed: bool = False
) -> tuple[list[KernelStat], Ledger]:
    """Kernel stats, unique by (signature, device, evidence), and the ledger's sums of device time.

    ``borrowed``: the shapes are those of another window.

    The ledger's counts of events and records are the reader's: the caller fills them in.
    """
    merged = _merge(items)
    verdicts = [_verdict(m, devices[m.device]) for m in merged]
    if borrowed:
        verdicts = [replace(v, evidence=Evidence.BORROWED) if v.evidence is Evidence.SHAPES else v for v in verdicts]
    loans = _loans(merged, verdicts)
    stats: dict[tuple[int, int, Evidence], KernelStat] = {}
    told = 0 if any(device.vendor is Vendor.ASCEND for device in devices) else None
    ledger = Ledger(0, 0, 0, has_host_events=False, layout_ns=told)
    for item, found in zip(merged, verdicts, strict=True):
        signature, verdict = item.signature, found
        if item.backlog and not item.captured and verdict.evidence is not Evidence.DEFINITION:
            signature, verdict = _borrow(item, _offered(loans, item), devices[item.device])
        ledger = _counted(ledger, item, signature, verdict, devices[item.device])
        stat = _stat(item, signature, verdict)
        key = (signature.id, item.device, verdict.evidence)
        stats[key] = _joined(stats[key], stat) if key in stats else stat
    return sorted(stats.values(), key=lambda s: -s.total_ns), ledger


def _merge(items: Sequence[Normalized]) -> list[_Merged]:
    """Records of one signature, and of one grid where only name and grid tell about them."""
    merged: dict[tuple[Signature, int, bool, Category, bool, Grid | None], _Merged] = {}
    for item in items:
        group = item.group
        told_apart = group.grid if group.backlog or item.signature.formula is None else None
        captured = group.graph is not None and item.signature.formula is not None
        key = (item.signature, group.device, group.backlog, group.category, captured, told_apart)
        if key not in merged:
            merged[key] = _Merged(item.signature, group.device, group.backlog, group.category, captured)
        merged[key].groups.append(group)
    return list(merged.values())


# What has no roof: moved by other engines, done on the device's own CPU, or nothing but waiting for another stream.
_BY_DEFINITION = {Kind.COMM: Bound.COMMUNICATION, Kind.AICPU: Bound.HOST, Kind.EVENT: Bound.LATENCY}


def _verdict(item: _Merged, device: Device) -> Verdict:
    if item.category in (Category.MEMCPY, Category.MEMSET):
        return Verdict(Bound.COPY, Evidence.DEFINITION)
    if item.signature.kind in _BY_DEFINITION:
        return Verdict(_BY_DEFINITION[item.signature.kind], Evidence.DEFINITION)
    found = _by_formula(item, device)
    if device.vendor is not Vendor.ASCEND:
        return found
    ran = Ran(item.groups, item.signature, item.mean_ns, item.blocks, _units(item, device))
    return measured(found, ran, device)


def _units(item: _Merged, device: Device) -> int | None:
    """How many cores there are of the sort that blocks are counted in: an Ascend chip has more vector cores."""
    if device.vendor is Vendor.ASCEND and ascend_kernels.on_vector(item.groups[0]):
        return vector_units(device)
    return device.units


def _by_formula(item: _Merged, device: Device) -> Verdict:
    signature = item.signature
    evidence = Evidence.BORROWED if item.captured else Evidence.SHAPES
    found = UNKNOWN if signature.formula is None else _by_shapes(signature, item, device, evidence)
    if found is UNKNOWN and item.category is not Category.CPU_OP:
        return _by_name(item, device)  # without a formula, or without the peaks that its judgement needs
    return found


def _by_name(item: _Merged, device: Device) -> Verdict:
    return judge_by_name(
        item.signature.kind, item.signature.kernel, item.mean_ns, device.peaks,
        blocks=item.blocks, units=_units(item, device), grid=item.grid,
    )  # fmt: skip


def _by_shapes(signature: Signature, item: _Merged, device: Device, evidence: Evidence) -> Verdict:
    if signature.flops is None or signature.bytes is None:
        return UNKNOWN
    if evidence is Evidence.SHAPES and signature.formula in _BY_NAME:
        evidence = Evidence.NAME  # that the op does no work of its own is known by its name; shapes tell nothing here

    def judged(flops: int, moved: int) -> Verdict:
        return judge(
            flops, moved, item.mean_ns, device.peaks,
            precision=signature.precision, unit=signature.unit, blocks=item.blocks, units=_units(item, device),
            evidence=evidence,
        )  # fmt: skip

    least = judged(signature.flops, signature.bytes)
    if signature.flops_max is None or judged(signature.flops_max, signature.bytes).bound is least.bound:
        return least
    return replace(least, bound=Bound.UNKNOWN)  # the two ends of the range differ: an answer shows both


_Loans = dict[tuple[int, str, Grid | None], _Loan]


def _loans(merged: Sequence[_Merged], verdicts: Sequence[Verdict]) -> _Loans:
    """(device, kernel, grid) → what the records of that kernel whose launch was seen have to lend.

    Those of the same grid, and under None those of all grids.
    """
    seen: dict[tuple[int, str, Grid | None], list[tuple[_Merged, Verdict]]] = {}
    for item, verdict in zip(merged, verdicts, strict=True):
        if not item.backlog and item.category is Category.KERNEL:
            for grid in {item.grid, None}:
                seen.setdefault((item.device, item.signature.kernel, grid), []).append((item, verdict))
    return {key: _loan(lenders) for key, lenders in seen.items()}


def _offered(loans: _Loans, item: _Merged) -> _Loan:
    """What a backlog record may borrow: of the kernel at the same grid, which all but tells the shapes; else of all."""
    kernel = (item.device, item.signature.kernel)
    same = loans.get((*kernel, item.grid), _NOTHING)
    return loans.get((*kernel, None), _NOTHING) if same is _NOTHING else same


def _loan(lenders: Sequence[tuple[_Merged, Verdict]]) -> _Loan:
    """One signature is lent whole; of several only the bound, and only if they agree."""
    proven = [(m, v) for m, v in lenders if v.bound is not Bound.UNKNOWN and v.evidence in _PROVEN]
    signatures = {replace(m.signature, phase=Phase.NONE, module=None) for m, _ in lenders}
    if len(signatures) == 1 and proven:
        phases, modules = {m.signature.phase for m, _ in lenders}, {m.signature.module for m, _ in lenders}
        signature = proven[0][0].signature
        return _Loan(
            signature=replace(
                signature,
                phase=signature.phase if len(phases) == 1 else Phase.NONE,
                module=signature.module if len(modules) == 1 else None,
            )
        )
    total = sum(m.total_ns for m, _ in lenders)
    by_bound: dict[Bound, int] = {}
    for item, verdict in proven:
        by_bound[verdict.bound] = by_bound.get(verdict.bound, 0) + item.total_ns
    agreed = [bound for bound, ns in by_bound.items() if ns >= LENDERS_AGREE * total > 0]
    return _Loan(bound=agreed[0]) if agreed else _NOTHING


def _borrow(item: _Merged, loan: _Loan, device: Device) -> tuple[Signature, Verdict]:
    """A backlog record's verdict from the same kernel later in the window.

    A signature is judged by the backlog's own duration. Without a loan: by name, which the ledger does not count.
    """
    if loan.signature is not None:
        return loan.signature, _by_shapes(loan.signature, item, device, Evidence.BORROWED)
    if loan.bound is not None:
        return item.signature, Verdict(loan.bound, Evidence.BORROWED)
    return item.signature, _by_name(item, device)


def _with_model(ledger: Ledger, item: _Merged, signature: Signature, device: Device) -> Ledger:
    """What MFU needs; of a range of FLOPs the lower end."""
    if signature.kind not in MODEL_KINDS or item.category in (Category.MEMCPY, Category.MEMSET):
        return ledger
    if signature.flops == 0 and signature.bytes == 0:
        return ledger  # a wrapper on a CPU: the op inside it did the work
    ledger = replace(ledger, model_ns=ledger.model_ns + item.total_ns)
    peak = peak_of(device.peaks, signature.precision, signature.unit)
    if signature.flops is None or peak is None:
        return ledger
    flops = signature.flops * item.calls
    if flops + ledger.model_flops >= MOST_FLOPS or flops / peak * 1e9 + ledger.model_peak_ns >= MOST_ROOF_NS:
        return ledger  # shapes that are damage
    return replace(
        ledger,
        model_known_ns=ledger.model_known_ns + item.total_ns,
        model_flops=ledger.model_flops + flops,
        model_peak_ns=ledger.model_peak_ns + round(flops / peak * 1e9),
    )


def _counted(ledger: Ledger, item: _Merged, signature: Signature, verdict: Verdict, device: Device) -> Ledger:
    total = item.total_ns
    lost = item.backlog and verdict.evidence not in _PROVEN  # backlog that could not borrow
    counts = verdict.evidence is not Evidence.DEFINITION and not lost
    known = counts and verdict.bound is not Bound.UNKNOWN
    second = verdict.formula_bound
    inserted = sum(g.total_ns for g in item.groups if ascend_kernels.is_layout_tax(g))
    return replace(
        _with_model(ledger, item, signature, device),
        device_time_ns=ledger.device_time_ns + total,
        linked_ns=ledger.linked_ns + sum(g.total_ns for g in item.groups if g.linked),
        backlog_ns=ledger.backlog_ns + (total if item.backlog else 0),
        classifiable_ns=ledger.classifiable_ns + (total if counts else 0),
        classified_ns=ledger.classified_ns + (total if known and verdict.evidence in _PROVEN else 0),
        named_ns=ledger.named_ns + (total if known and verdict.evidence is Evidence.NAME else 0),
        compared_ns=ledger.compared_ns + (0 if second is None else total),
        disagreed_ns=ledger.disagreed_ns + (0 if second in (None, verdict.bound) else total),
        layout_ns=None if ledger.layout_ns is None else ledger.layout_ns + inserted,
    )


def _stat(item: _Merged, signature: Signature, verdict: Verdict) -> KernelStat:
    groups = item.groups
    return KernelStat(
        signature, item.device, item.calls, item.total_ns, min(g.min_ns for g in groups), max(g.max_ns for g in groups),
        Histogram.merged(g.histogram for g in groups), verdict.bound, verdict.evidence, verdict.roof_ns, verdict.ridge,
        sum(g.step_calls for g in groups), sum(g.step_ns for g in groups), verdict.formula_bound,
    )  # fmt: skip


def _joined(a: KernelStat, b: KernelStat) -> KernelStat:
    """Two stats of one signature and evidence (backlog records that borrowed the same); the larger's bound stands."""
    larger = a if a.total_ns >= b.total_ns else b
    return replace(
        larger, calls=a.calls + b.calls, total_ns=a.total_ns + b.total_ns, min_ns=min(a.min_ns, b.min_ns),
        max_ns=max(a.max_ns, b.max_ns), histogram=Histogram.merged((a.histogram, b.histogram)),
        step_calls=a.step_calls + b.step_calls, step_ns=a.step_ns + b.step_ns,
    )  # fmt: skip
