"""The texts that choose a side, as filters."""

from __future__ import annotations

import time

import click
import pytest

from roofwatch.cli.sides import side
from roofwatch.store.filter import Filter

BASE = Filter(since_unix_ns=5, model="llama", labels={"team": "a"})


def test_selectors_and_labels() -> None:
    """Known words are the filter's fields, all else is a label, also one that is named like a known word."""
    found = side(
        ["vendor=ascend", "device=910B", "node=n1", "job=slurm:1", "process=4711", "image=v1", "label.node=x",
         "label=version=2=3"],
        BASE,
    )  # fmt: skip
    assert found == Filter(
        since_unix_ns=5, node="n1", process="4711", model="llama", device="910B", vendor="ascend", job="slurm:1",
        labels={"team": "a", "image": "v1", "node": "x", "version": "2=3"},
    )  # fmt: skip
    assert side(["label=v1"], Filter()).labels == {"label": "v1"}


def test_times_of_a_side_replace_the_shared_ones() -> None:
    """A duration is before now, all is no limit."""
    found = side(["since=2h", "until=1h"], BASE)
    now = time.time_ns()
    assert (found.until_unix_ns or 0) - (found.since_unix_ns or 0) == pytest.approx(3600e9, rel=1e-6)
    assert found.since_unix_ns == pytest.approx(now - 7200e9, abs=60e9)
    assert side(["since=all"], BASE).since_unix_ns is None


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (["image"], "write k=v; a side is chosen by vendor, device"),
        (["=v1"], "write k=v"),
        (["image="], "write k=v"),
        (["label.=v1"], "write k=v"),
        (["vendor=intel"], "only nvidia, ascend, amd, cpu"),
        (["since=tuesday"], "a duration like 30m or 2d"),
        (["since=9999-01-01"], "out of range"),
        (["node=a", "node=b"], "contradicts 'a'"),
        (["model=qwen"], "contradicts 'llama'"),
        (["team=b"], "contradicts 'a'"),
        (["since=1h", "until=2h"], "nothing can lie between"),
    ],
)
def test_sides_that_cannot_be_meant(texts: list[str], named: str) -> None:
    """One sentence that names what there is."""
    with pytest.raises(click.UsageError) as error:
        side(texts, BASE)
    assert named in str(error.value)
