"""The regular windows of two nodes' agents fall on the same steps of a job, without a word between them."""

from __future__ import annotations

import json
from itertools import islice

import pytest
from capture_site import Site, wait_for

from roofwatch.agent.ranks import key_of, meetings

NODES = ("node-a", "node-b")


@pytest.mark.slow
def test_two_nodes_take_the_same_steps(site: Site) -> None:
    """About a window a second; once both nodes know the job's pace, two steps are soon seen on both of them."""
    for node in NODES:
        site.agent(node, "--interval", "1")
    job = site.ranks(*NODES)
    site.stepping(job, NODES)

    def steps() -> dict[str, set[int]]:
        done = site.call("windows", "--job", job, "--limit", "0", "--since", "all", "--format", "json")
        rows = json.loads(done.stdout)["rows"]  # none at first
        together = [row for row in rows if row["trigger"] == "synchronized"]
        return {node: {row["first_step"] for row in together if row["node"] == node} for node in NODES}

    seen = wait_for(lambda: len(set.intersection(*(found := steps()).values())) >= 2 and found, "two steps", 60)
    # Steps take 17 ms or more and meetings are half a second apart or more: every 8th step is met at most.
    every = set(islice(meetings(key_of((None, None, job, 2)), 3, -1), 10_000))
    assert set.union(*seen.values()) <= every
    by_chance = len(seen["node-a"]) * len(seen["node-b"]) / max(map(max, seen.values()))
    assert len(set.intersection(*seen.values())) > 2 * by_chance
    ranks = json.loads(site.call("ranks", "--job", job, "--format", "json").stdout)
    assert (ranks["basis"]["unit"], ranks["basis"]["of_moments"] >= 2) == ("step", True)  # side by side over nodes
    assert [(row["rank"], row["node"]) for row in ranks["rows"]] == [(0, "node-a"), (1, "node-b")]
