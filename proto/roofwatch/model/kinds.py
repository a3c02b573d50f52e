"""Kernel kinds: the coarse families in which work is compared across vendors."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """The family of a kernel."""

    MATMUL = "matmul"
    GROUPED_MATMUL = "grouped_matmul"
    CONV = "conv"
    ATTENTION = "attention"
    NORM = "norm"
    SOFTMAX = "softmax"
    ACTIVATION = "activation"
    ROPE = "rope"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    POOLING = "pooling"
    GATHER_SCATTER = "gather_scatter"
    SORT_TOPK = "sort_topk"
    LAYOUT = "layout"
    CAST = "cast"
    COPY_FILL = "copy_fill"
    RANDOM = "random"
    LOSS = "loss"
    OPTIMIZER = "optimizer"
    MOE = "moe"
    COMM = "comm"
    COMM_COMPUTE = "comm_compute"
    AICPU = "aicpu"
    OTHER = "other"
