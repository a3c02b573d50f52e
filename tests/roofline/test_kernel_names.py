"""The kinds of several hundred kernels of the common libraries, by their names alone (``kernel_names.txt``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofwatch.model.kinds import Kind, kind_of


def read_table() -> list[tuple[str, Kind]]:
    """(name, kind) of each line of the table; a heading in brackets says the kind of those below it."""
    cases: list[tuple[str, Kind]] = []
    kind = Kind.OTHER
    for line in Path(__file__).with_name("kernel_names.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            kind = Kind(line.strip("[]"))
        elif line and not line.startswith("#"):
            cases.append((line, kind))
    return cases


CASES = read_table()


def test_the_table_is_large_and_names_nothing_twice():
    """More than 300 different names, of every kind that a GPU's kernels can have."""
    assert len(CASES) > 300
    assert len({name for name, _ in CASES}) == len(CASES)
    assert {kind for _, kind in CASES} == set(Kind) - {Kind.COMM_COMPUTE, Kind.AICPU, Kind.EVENT, Kind.OTHER}


@pytest.mark.parametrize(("kernel", "kind"), CASES)
def test_kind_of_a_kernel_by_its_name(kernel, kind):
    """What the kernel is, without any op around it."""
    assert kind_of(None, kernel) is kind
