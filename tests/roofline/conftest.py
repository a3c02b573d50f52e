"""How the tests of this folder ask for the work of a call."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from roofwatch.model.formulas.base import Work
from roofwatch.model.formulas.table import formula_of, work_of
from roofwatch.model.shapes import call_of

sys.path.append(str(Path(__file__).parent))  # raw_profiles, profiled_ops; the import mode leaves the path alone


class Exact(NamedTuple):
    """Work that is no range."""

    flops: int
    bytes: int


Count = Callable[..., Work | Exact | None]


def count_work(
    op: str,
    dims: list[Any],
    types: list[str],
    concrete: list[str] | None = None,
    *,
    strides: list[Any] | None = None,
    kernel: str = "",
) -> Work | Exact | None:
    """FLOPs and bytes of a call given as Kineto writes it; arguments after the last one named are absent.

    Where the FLOPs are a range, its upper end is the third.
    """
    texts = [json.dumps(part) if part is not None else None for part in (dims, types, strides, concrete)]
    call = call_of(op, *texts, kernel)
    formula = formula_of(op)
    assert call is not None
    assert formula is not None, f"no formula for {op}"
    work = work_of(formula, call)
    return work if work is None or work.flops_max is not None else Exact(work.flops, work.bytes)


@pytest.fixture
def count() -> Count:
    """Counts the work of one call."""
    return count_work


@pytest.fixture(scope="module")
def few_threads() -> Iterator[None]:
    """Two of torch's threads: the machine is shared."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
