"""Names of dtypes as Ascend's tables and collectives write them."""

from __future__ import annotations

import pytest

from roofwatch.model.shapes import ITEM_BYTES, call_of, dtype_of


@pytest.mark.parametrize(
    ("text", "name", "size"),
    [
        ("FLOAT", "fp32", 4), ("FLOAT16", "fp16", 2), ("DT_BF16", "bf16", 2), ("DOUBLE", "fp64", 8),
        ("BOOL", "bool", 1), ("INT8", "int8", 1), ("UINT8", "uint8", 1), ("INT16", "int16", 2),
        ("UINT16", "uint16", 2), ("INT32", "int32", 4), ("UINT32", "uint32", 4), ("INT64", "int64", 8),
        ("UINT64", "uint64", 8), ("COMPLEX64", "complex64", 8), ("FP32", "fp32", 4), ("FP16", "fp16", 2),
        ("BFP16", "bf16", 2), ("FP64", "fp64", 8), ("DT_FLOAT", "fp32", 4), ("DT_INT64", "int64", 8),
        ("FLOAT8_E4M3FN", "fp8_e4m3", 1), ("FP8E5M2", "fp8_e5m2", 1),
    ],
)  # fmt: skip
def test_names_of_ascend_are_known(text: str, name: str, size: int) -> None:
    """Each name of a type with whole bytes is the one name that formulas use."""
    assert dtype_of(text) == name
    assert ITEM_BYTES[name] == size


@pytest.mark.parametrize(
    "text", ["DT_UNDEFINED", "N/A", "", "INT4", "HIF8", "FLOAT4_E2M1", "INT128", "RESERVED", "UINT1"]
)
def test_what_has_no_whole_bytes_stays_unknown(text: str) -> None:
    """Absent tensors, and types of which the tables do not say how they are packed."""
    assert dtype_of(text) is None


def test_a_kernels_inputs_are_read_as_tensors() -> None:
    """Shapes and dtypes of a FlashAttention row: an absent tensor and a scalar look alike but for the dtype."""
    call = call_of("FlashAttentionScore", "[[4096,1,2048],[],[2048,2048]]", '["DT_BF16","DT_UNDEFINED","BOOL"]')
    assert call is not None
    assert [(t.shape, t.dtype) for t in call.tensors] == [((4096, 1, 2048), "bf16"), ((2048, 2048), "bool")]
