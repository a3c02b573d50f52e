"""Calls are read from untrusted text.

Everything odd gives None or an empty argument, never a crash or an evaluation.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.model.formulas.base import broadcast, promoted
from roofwatch.model.formulas.table import FORMULAS, MAX_COUNT, formula_of, work_of
from roofwatch.model.shapes import MAX_TEXT, Tensor, call_of, dtype_of


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("float", "fp32"), ("double", "fp64"), ("c10::BFloat16", "bf16"), ("c10::Half", "fp16"), ("long int", "int64"),
        ("long", "int64"), ("signed char", "int8"), ("unsigned char", "uint8"), ("bool", "bool"), ("int", "int32"),
        ("c10::Float8_e4m3fn", "fp8_e4m3"), ("c10::complex<float>", "complex64"), ("bf16", "bf16"),
        ("Scalar", None), ("ScalarList", None), ("TensorList", None), ("", None),
    ],
)  # fmt: skip
def test_dtypes_as_kineto_writes_them(text, name):
    """C++ names in both spellings have one name; what is not a tensor's dtype has none."""
    assert dtype_of(text) == name


@pytest.mark.parametrize(
    ("shape", "strides", "distinct"),
    [
        ((4, 5), (5, 1), 20),
        ((4, 5), (1, 4), 20),  # transposed
        ((4, 5), (0, 1), 5),  # rows expanded
        ((8, 3), (1, 1), 10),  # a window of 3 sliding over 10 elements
        ((4, 5), (100, 1), 20),  # rows far apart
        ((0, 5), (5, 1), 0),
        ((), (), 1),
        ((4, 5), None, 20),
    ],
)
def test_elements_in_memory(shape, strides, distinct):
    """Expanded dimensions are there once; overlapping windows share; a stride's gaps are not read."""
    assert Tensor(shape, "fp32", strides).distinct == distinct


def test_a_call_with_all_sorts_of_arguments():
    """Tensors, a scalar, a list of numbers, a list of tensors, an absent tensor: each at its place."""
    call = call_of(
        "aten::x",
        "[[2, 3], [], [], [[4], [5, 6]], []]",
        '["float", "Scalar", "ScalarList", "TensorList", ""]',
        "[[3, 1], [], [], [[1], [6, 1]], []]",
        '["", "0.5", "[1, 2]", "", ""]',
    )
    assert call is not None
    assert call.tensor(0) == Tensor((2, 3), "fp32", (3, 1))
    assert (call.value(1), call.integers(2), call[3].shapes) == (0.5, (1, 2), ((4,), (5, 6)))
    assert (call.tensor(4), call.tensor(99), call.flag(0), call.integer(1)) == (None, None, None, None)


@pytest.mark.parametrize(
    ("text", "value"), [("True", True), ("0.", 0.0), ("1e-05", 1e-5), ("[True, False]", [True, False])]
)
def test_concrete_inputs_as_kineto_writes_them(text, value):
    """Python's booleans and C++'s trailing-dot numbers."""
    call = call_of("x", "[[]]", '["Scalar"]', None, json.dumps([text]))
    assert call is not None
    assert call.value(0) == value


@pytest.mark.parametrize(
    "shapes",
    [
        None, "", "{}", "3", "[[1,2]", "[" * 100_000, "[[" + "9" * 5000 + "]]", '"[[1]]"', "__import__('os')",
        "[" + "[1]," * (MAX_TEXT // 4) + "[1]]",
    ],
)  # fmt: skip
def test_damaged_shapes_are_no_call(shapes):
    """What is not a JSON list of bounded size gives no call at all."""
    assert call_of("aten::mm", shapes, '["float", "float"]') is None


@pytest.mark.parametrize(
    "dims", ["[[-1, 2]]", "[[1.5]]", "[[true]]", '[["a"]]', "[[281474976710656]]", "[5]", f"[{[1] * 26}]"]
)
def test_damaged_dimensions_are_no_tensor(dims):
    """Negative, fractional, absurdly large or not numbers: the argument has no tensor."""
    call = call_of("aten::neg", dims, '["float"]')
    assert call is not None
    assert call.tensor(0) is None


def test_absurd_work_is_unknown():
    """2·2⁴⁷·2⁴⁷ FLOPs do not fit a signed 64-bit column: unknown."""
    call = call_of("aten::mm", "[[140737488355328, 1], [1, 140737488355328]]", '["bool", "bool"]')
    formula = formula_of("aten::mm")
    assert call is not None
    assert formula is not None
    assert work_of(formula, call) is None


DIMS = st.lists(st.integers(-1, 5), max_size=5) | st.lists(st.lists(st.integers(0, 3), max_size=3), max_size=3)
TYPES = st.sampled_from(["float", "c10::BFloat16", "long int", "bool", "Scalar", "ScalarList", "TensorList", ""])
TEXTS = st.sampled_from(
    ["", "0", "1", "-7", "True", "0.5", "[0, 0]", "[1]", "[True, False, True]", "[-1]", "x", "[[]]"]
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_formula_crashes_on_any_arguments(data):
    """Whatever the arguments, every formula answers None or a sane count."""
    size = data.draw(st.integers(0, 12))
    dims = data.draw(st.lists(DIMS, min_size=size, max_size=size))
    types = data.draw(st.lists(TYPES, min_size=size, max_size=size))
    strides = data.draw(st.lists(st.lists(st.integers(-2, 9), max_size=5), max_size=size))
    texts = data.draw(st.lists(TEXTS, max_size=size))
    for op, formula in FORMULAS.items():
        call = call_of(op, *(json.dumps(part) for part in (dims, types, strides, texts)))
        assert call is not None
        work = work_of(formula, call)
        assert work is None or (0 <= work.flops <= MAX_COUNT and 0 <= work.bytes <= MAX_COUNT)


def test_broadcasting_and_promotion():
    """(3,1) and (4,) give (3,4); (3,) and (4,) nothing. Half types mix to fp32; a 0-dim double does not widen bf16."""
    a, b = Tensor((3, 1), "bf16"), Tensor((4,), "fp16")
    assert broadcast((a, b)) == (3, 4)
    assert broadcast((Tensor((3,), "fp32"), Tensor((4,), "fp32"))) is None
    assert promoted((a, b)) == "fp32"
    assert promoted((a, Tensor((), "fp64"))) == "bf16"
    assert promoted((Tensor((2,), "int64"), Tensor((), "fp64"))) == "fp32"
