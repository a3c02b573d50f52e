"""Names of collectives as libraries, ops and kernels write them."""

from __future__ import annotations

import pytest

from roofwatch.model.collectives import COLLECTIVES, collective_of, collective_of_kernel, collective_of_op


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("allreduce", "all_reduce"),
        ("allreduce_coalesced", "all_reduce"),
        ("allreduce_sparse", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("all_gather", "all_gather"),
        ("allgather_into_tensor_coalesced", "all_gather"),
        ("all_gather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("all_to_all", "all_to_all"),
        ("all_to_allv", "all_to_all"),
        ("all_to_all_single", "all_to_all"),
        ("broadcast", "broadcast"),
        ("_broadcast_oop", "broadcast"),
        ("reduce", "reduce"),
        ("_reduce_oop", "reduce"),
        ("gather", "gather"),
        ("scatter", "scatter"),
        ("send", "send"),
        ("recv", "recv"),
        ("recvAnySource", "recv"),
        ("barrier", "barrier"),
        ("hcom_allReduce_", "all_reduce"),
        ("wait", None),
        ("init", None),
        ("coalesced", None),
        ("", None),
        ("all_reduce_rmsnorm_fused", None),
        ("matmul_all_reduce", None),
        ("allreduce" * 1000, None),
    ],
)
def test_words_of_libraries(word: str, name: str | None) -> None:
    """What ``record_param_comms`` names, of all torch versions; what is no collective has no name."""
    assert collective_of(word) == name
    assert name is None or name in COLLECTIVES


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("c10d::allreduce_", "all_reduce"),
        ("c10d::_allgather_base_", "all_gather"),
        ("c10d::alltoall_base_", "all_to_all"),
        ("c10d::gather_", "gather"),
        ("c10d::barrier", "barrier"),
        ("_c10d_functional::all_gather_into_tensor", "all_gather"),
        ("_c10d_functional::wait_tensor", None),
        ("nccl:all_reduce", "all_reduce"),
        ("nccl:all_reduce_barrier", "barrier"),
        ("nccl:_all_gather_base", "all_gather"),
        ("nccl:coalesced", None),
        ("nccl:recv 0<-1", "recv"),
        ("gloo:recvAnySource", "recv"),
        ("_C_custom_ar::all_reduce", "all_reduce"),
        ("symm_mem::multimem_all_reduce_", "all_reduce"),
        ("vllm::reduce_scatter", "reduce_scatter"),
        ("fsdp::all_gather_copy_in", None),
        ("aten::gather", None),
        ("aten::all_reduce", None),
        ("other::broadcast", None),
        ("allreduce", None),
        ("record_param_comms", None),
    ],
)
def test_ops_and_ranges(op: str, name: str | None) -> None:
    """Words that mean other things elsewhere count only under a library of collectives."""
    assert collective_of_op(op) == name


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all_reduce"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*)", "reduce_scatter"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevComm*)", "reduce"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*)", "broadcast"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", None),
        ("ncclDevKernel_Generic(ncclDevComm*)", None),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", "all_reduce"),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", "all_reduce"),
    ],
)
def test_kernels(kernel: str, name: str | None) -> None:
    """A kernel that serves several collectives names none."""
    assert collective_of_kernel(kernel) == name
