"""From hand-built raw profiles to windows: who carries the FLOPs, verdicts, borrowing."""

from __future__ import annotations

import pytest
from raw_profiles import ADD, ADDS, GEMM, MM, group, only, window

from roofwatch.collectors.base import Category, Grid, RawDevice
from roofwatch.model.kinds import Kind
from roofwatch.model.record import (
    Bound,
    Evidence,
    Phase,
)
from roofwatch.model.roofline import beyond


@pytest.fixture(autouse=True)
def _no_calibration(monkeypatch, tmp_path):
    """No calibration of the machine that runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_gemm():
    """4096³ in bf16 on an H100: 137.4e9 / 989.4e12 = 138,911 ns.

    In 200 µs a roof fraction of 0.695, compute, ridge 295.
    """
    stat = only(window(group(GEMM, 200_000, 3, **MM)))
    assert (stat.bound, stat.evidence, stat.signature.formula) == (Bound.COMPUTE, Evidence.SHAPES, "matmul")
    assert (stat.signature.flops, stat.signature.bytes) == (137_438_953_472, 100_663_296)
    assert (stat.signature.precision, stat.signature.unit) == ("bf16", "matrix")
    assert stat.roof_fraction == pytest.approx(0.6946, abs=1e-4)
    assert stat.ridge == pytest.approx(295.3, abs=0.1)
    assert stat.signature.shapes == "[[4096,4096],[4096,4096]]"
    assert stat.signature.dtypes == '["bf16","bf16"]'


def test_elementwise():
    """3 · 64 MiB at 3.35 TB/s take 60,097 ns at the roof; in 75 µs 0.80: memory, against the fp32 vector unit."""
    stat = only(window(group(ADD, 75_000, **ADDS)))
    assert (stat.bound, stat.signature.unit, stat.signature.kind) == (Bound.MEMORY, "vector", Kind.ELEMENTWISE)
    assert stat.roof_fraction == pytest.approx(0.8013, abs=1e-4)


def test_flops_go_to_the_main_kernel_once():
    """A split-K product: GEMM and its reduction. Only the GEMM carries the FLOPs; the helper's are unknown."""
    found = window(group(GEMM, 200_000, 4, **MM), group("splitKreduce_kernel<32, 16, int>", 20_000, 4, **MM))
    flops = {s.signature.kernel: s.signature.flops for s in found.kernels}
    assert flops == {GEMM: 137_438_953_472, "splitKreduce_kernel<32, 16, int>": None}


def test_a_mangled_tensor_op_kernel_is_no_helper():
    """A cutlass kernel whose mangled name says OpClassTensorOp carries the convolution beside its relayouts."""
    call = {
        "op": "aten::cudnn_convolution",
        "shapes": "[[8,64,56,56],[64,64,3,3],[],[],[],[]]",
        "dtypes": '["c10::Half","c10::Half","ScalarList","ScalarList","ScalarList","Scalar"]',
        "concrete": '["","","[1, 1]","[1, 1]","[1, 1]","1"]',
    }
    main = "_ZN19cutlass_cudnn_infer6KernelINS_4conv6kernel23ImplicitGemmConvolutionIN4arch13OpClassTensorOpEE"
    found = window(group(main, 200_000, **call), group("void cudnn::ops::nchwToNhwcKernel<__half>", 300_000, 2, **call))
    flops = {s.signature.kernel: s.signature.flops for s in found.kernels}
    assert flops[main] == 2 * 8 * 56 * 56 * 64 * 64 * 9
    assert len([f for f in flops.values() if f is None]) == 1


def test_two_products_launched_together_count_once():
    """Two GEMM kernels with equal calls under one op: together they are the op, so one carries it all."""
    found = window(group(GEMM, 200_000, 4, **MM), group("nvjet_tst_128x256_64x4_2x1_v_bz_TNT", 100_000, 4, **MM))
    assert sorted(s.signature.flops or 0 for s in found.kernels) == [0, 137_438_953_472]


def test_alternative_kernels_each_carry_the_op():
    """5 calls of one GEMM and 3 of another for the same inputs: one or the other ran, each did all the work."""
    found = window(group(GEMM, 200_000, 5, **MM), group("nvjet_tst_128x256_64x4_2x1_v_bz_TNT", 100_000, 3, **MM))
    assert [s.signature.flops for s in found.kernels] == [137_438_953_472] * 2


def test_an_op_that_launches_its_kernel_in_chunks():
    """8 records of 2 calls: each record did a quarter of a call's work."""
    stat = only(window(group(GEMM, 50_000, 8, op_calls=2, **MM)))
    assert (stat.signature.flops, stat.signature.bytes) == (137_438_953_472 // 4, 100_663_296 // 4)


def test_bias_copy_beside_the_product():
    """Addmm that copies the bias first: the copy has its own bytes, the product all the FLOPs."""
    call = {
        "op": "aten::addmm", "shapes": "[[512],[1024,256],[256,512],[],[]]",
        "dtypes": '["float","float","float","Scalar","Scalar"]', "concrete": '["","","","1","1"]',
    }  # fmt: skip
    copy = "void at::native::elementwise_kernel<128, 2, direct_copy>"
    found = window(group("volta_sgemm_128x64_nn", 100_000, 2, **call), group(copy, 4_000, 2, **call))
    work = {s.signature.formula: (s.signature.flops, s.signature.bytes) for s in found.kernels}
    assert work["addmm"] == (2 * 1024 * 512 * 256, (512 + 1024 * 256 + 256 * 512 + 1024 * 512) * 4)
    assert work["addend_copy"] == (0, (512 + 1024 * 512) * 4)


def test_copies_and_communication_by_definition():
    """A memcpy is bound by the copy, a collective by communication; neither is part of what could be classified."""
    found = window(
        group(
            "Memcpy HtoD (Pinned -> Device)", 50_000, 2, category=Category.MEMCPY, op="aten::copy_", moved_bytes=2048
        ),
        group("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 80_000, op="record_param_comms"),
        group(GEMM, 200_000, **MM),
    )
    bounds = {s.signature.kernel: (s.bound, s.evidence) for s in found.kernels}
    assert bounds["Memcpy HtoD (Pinned -> Device)"] == (Bound.COPY, Evidence.DEFINITION)
    assert bounds["ncclDevKernel_AllReduce_Sum_f32_RING_LL"] == (Bound.COMMUNICATION, Evidence.DEFINITION)
    assert (found.ledger.classifiable_ns, found.ledger.classified_ns) == (200_000, 200_000)
    copied = next(s for s in found.kernels if s.bound is Bound.COPY)
    assert (copied.signature.bytes, copied.signature.flops) == (1024, None)


def test_backlog_borrows_the_signature_of_its_kernel():
    """Launched before the window, seen later with one signature: all of it is borrowed, the duration is its own."""
    late = group(GEMM, 400_000, 2, backlog=True, linked=False, phase=Phase.NONE)
    found = window(group(GEMM, 200_000, **MM), late)
    borrowed = next(s for s in found.kernels if s.evidence is Evidence.BORROWED)
    assert borrowed.signature.flops == 137_438_953_472
    assert borrowed.roof_fraction == pytest.approx(0.3473, abs=1e-4)
    ledger = found.ledger
    assert (ledger.device_time_ns, ledger.backlog_ns, ledger.linked_ns) == (1_000_000, 800_000, 200_000)
    assert (ledger.classifiable_ns, ledger.classified_ns) == (1_000_000, 1_000_000)


def test_backlog_borrows_a_bound_where_signatures_differ():
    """The kernel runs two shapes later, both compute: the bound is borrowed, FLOPs are not."""
    other = {**MM, "shapes": "[[4096,8192],[8192,4096]]"}
    late = group(GEMM, 300_000, backlog=True, linked=False)
    found = window(group(GEMM, 200_000, **MM), group(GEMM, 400_000, **other), late)
    borrowed = next(s for s in found.kernels if s.evidence is Evidence.BORROWED)
    assert (borrowed.bound, borrowed.signature.flops, borrowed.roof_ns) == (Bound.COMPUTE, None, None)


def test_backlog_that_cannot_borrow_is_left_out_of_the_share():
    """A kernel not seen again: unknown, and neither numerator nor denominator of the classified share."""
    found = window(group(GEMM, 200_000, **MM), group("other_gemm", 300_000, backlog=True, linked=False))
    assert (found.ledger.classifiable_ns, found.ledger.classified_ns) == (200_000, 200_000)
    assert found.ledger.device_time_ns == 500_000


def test_a_copy_of_the_backlog_is_a_copy_by_definition():
    """What was launched before the window and needs no shapes borrows nothing: bound copy, and not classifiable."""
    old = group("Memcpy DtoH (Device -> Pinned)", 300_000, backlog=True, linked=False)
    old.category = Category.MEMCPY
    found = window(group(GEMM, 200_000, **MM), old)
    (copy,) = (k for k in found.kernels if k.signature.kernel != GEMM)
    assert (copy.bound, copy.evidence) == (Bound.COPY, Evidence.DEFINITION)
    assert (found.ledger.classifiable_ns, found.ledger.device_time_ns) == (200_000, 500_000)


def test_backlog_borrows_from_the_same_grid_first():
    """The kernel runs two shapes later, of like time and different bounds, at 16 and 8 blocks: the grid tells which.

    A third grid, seen at neither, borrows nothing. The lenders' places differ, so the borrowed signature has none.
    """
    thin = {**MM, "shapes": "[[16,4096],[4096,65536]]"}
    wide = [group(GEMM, 200_000, grid=Grid(16, 128), module=m, **MM) for m in ("A", "B")]
    late = [group(GEMM, 210_000, backlog=True, linked=False, grid=Grid(n, 128)) for n in (16, 8, 4)]
    found = window(*wide, group(GEMM, 400_000, grid=Grid(8, 128), **thin), *late)
    borrowed = {s.signature.shapes: s for s in found.kernels if s.evidence is Evidence.BORROWED}
    assert {shapes: (s.bound, s.calls) for shapes, s in borrowed.items()} == {
        MM["shapes"]: (Bound.COMPUTE, 1), thin["shapes"]: (Bound.MEMORY, 1),
    }  # fmt: skip
    assert borrowed[MM["shapes"]].signature.module is None
    assert borrowed[thin["shapes"]].signature.phase is Phase.FORWARD
    assert [s.total_ns for s in found.kernels if s.bound is Bound.UNKNOWN] == [210_000]


def test_launches_of_one_kernel_without_shapes_are_told_apart_by_their_grids():
    """Adds of 10 and of 100,000 blocks of 512 floats: latency at 3 µs, memory at 300 µs; one signature, summed."""
    kernel = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3>>"
    )
    small, large = (group(kernel, ns, grid=Grid(n, 128), blocks=n) for ns, n in ((3_000, 10), (300_000, 100_000)))
    assert [only(window(g)).bound for g in (small, large)] == [Bound.LATENCY, Bound.MEMORY]
    both = window(small, large)
    assert (only(both).bound, only(both).calls, only(both).total_ns) == (Bound.MEMORY, 2, 303_000)
    assert both.ledger.named_ns == 303_000


def test_without_peaks_a_name_still_tells():
    """An add with shapes on a device that nothing is known of: memory bound as all adds are, by name."""
    device = RawDevice("nvidia", "", 0, span_ns=1_000_000)
    found = only(window(group(ADD, 75_000, **ADDS), device=device))
    assert (found.bound, found.evidence, found.signature.flops) == (Bound.MEMORY, Evidence.NAME, 16_777_216)


def test_records_beyond_their_roof_are_listed():
    """4096³ in bf16 is 0.139 ms at 989.4 TFLOP/s: at 100 µs that is 1.39 of the roof, at 200 µs 0.69."""
    found = window(group(GEMM, 200_000, **MM), group("other_" + GEMM, 100_000, phase=Phase.BACKWARD, **MM))
    assert [k.signature.kernel for k in beyond(found.kernels)] == ["other_" + GEMM]


def test_disagreeing_lenders_lend_nothing():
    """The kernel is memory bound in one shape and compute bound in another of like time: the backlog stays unknown."""
    thin = {**MM, "shapes": "[[16,4096],[4096,65536]]"}
    late = group(GEMM, 300_000, backlog=True, linked=False)
    found = window(group(GEMM, 200_000, **MM), group(GEMM, 200_000, **thin), late)
    unknown = [s for s in found.kernels if s.bound is Bound.UNKNOWN]
    assert [s.total_ns for s in unknown] == [300_000]


def test_stats_are_unique():
    """Groups that differ in what no signature holds (strides of a dense tensor) become one stat, exactly summed."""
    first = group(ADD, 75_000, 2, strides="[[1],[1],[]]", step_calls=1, step_ns=75_000, **ADDS)
    second = group(ADD, 95_000, 1, strides=None, **ADDS)
    stat = only(window(first, second))
    assert (stat.calls, stat.total_ns, stat.min_ns, stat.max_ns) == (3, 245_000, 75_000, 95_000)
    assert (stat.step_calls, stat.step_ns, stat.histogram.total) == (1, 75_000, 3)


def test_concrete_inputs_that_a_formula_reads_are_in_the_signature():
    """Causal and full attention of the same shapes are two signatures, with their own FLOPs."""
    call = {
        "op": "aten::_scaled_dot_product_flash_attention",
        "shapes": "[[1,8,1024,64],[1,8,1024,64],[1,8,1024,64],[],[]]",
        "dtypes": '["c10::BFloat16","c10::BFloat16","c10::BFloat16","Scalar","Scalar"]',
    }  # fmt: skip
    causal, full = (group("flash_fwd_kernel", 50_000, concrete=f'["","","","0.","{c}"]', **call) for c in (True, False))
    found = window(causal, full)
    flops = sorted(s.signature.flops or 0 for s in found.kernels)
    assert flops == [2 * 8 * (1024 * 1025 // 2) * 128, 2 * 8 * 1024 * 1024 * 128]
    assert all(s.signature.arguments and "concrete" in s.signature.arguments for s in found.kernels)


def test_names_without_shapes():
    """Elementwise by its functor is memory bound if it is long enough.

    A short one stays unknown, and so does a bf16 GEMM.
    """
    nothing = {"op": None, "linked": False}
    long, short, gemm = (
        group(ADD, 50_000, **nothing),
        group(ADD + " ", 5_000, **nothing),
        group(GEMM, 90_000, **nothing),
    )
    found = window(long, short, gemm)
    verdicts = {s.signature.kernel: (s.bound, s.evidence) for s in found.kernels}
    assert verdicts[ADD] == (Bound.MEMORY, Evidence.NAME)
    assert verdicts[ADD + " "] == (Bound.UNKNOWN, Evidence.NONE)
    assert verdicts[GEMM] == (Bound.UNKNOWN, Evidence.NONE)
    assert (found.ledger.classifiable_ns, found.ledger.classified_ns, found.ledger.named_ns) == (145_000, 0, 50_000)


def test_a_kernel_under_a_view_is_not_the_hosts_time():
    """A device kernel tied to an op that is only a view did something: unknown by shapes, memory by its name."""
    stat = only(window(group("void at::native::vectorized_elementwise_kernel<FillFunctor>", 50_000, op="aten::empty",
                             shapes="[[64]]", dtypes='["float"]')))  # fmt: skip
    assert (stat.signature.formula, stat.signature.bytes) == (None, None)
    assert (stat.bound, stat.evidence) == (Bound.MEMORY, Evidence.NAME)
