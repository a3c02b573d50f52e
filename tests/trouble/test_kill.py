"""SIGKILL of the store and of Postgres while a fleet sends: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet, Place
from postgres_server import Postgres
from store_builders import RunningStore

from roofwatch.cli.fleet import synthetic
from roofwatch.cli.fleet.local import Local

MEMORY_MOST = 600 << 20
Start = Callable[..., RunningStore]


def fleet_of(long: bool, seconds: float) -> Fleet:
    """A few small agents, or many with windows as large as real ones."""
    return Fleet(40, seconds, 2.0, 4, synthetic.windows(2)) if long else Fleet(10, seconds)


def largest(store: RunningStore) -> int:
    """The most memory a store ever had, in bytes."""
    return Local(store.address, store.process.pid).largest_bytes()


def left_behind(folder: Path) -> list[str]:
    """Files beside a database that was closed."""
    return sorted(p.name for p in folder.iterdir() if p.is_file() and p.name != "store.db")


@pytest.mark.slow
def test_killed_store_loses_and_repeats_nothing(tmp_path: Path, place: Place, start: Start, long: bool) -> None:
    """The store is killed at any moment, again and again; what was acknowledged by then is there, each time."""
    kills = 20 if long else 3 if place.postgres is None else 2
    fleet, draw = fleet_of(long, kills * 1.8), random.Random(2)
    store = start(place)
    most = 0
    with fleet.sending(store.address):
        for _ in range(kills):
            time.sleep(draw.uniform(0.2, 1.5))
            most = max(most, largest(store))
            acked = fleet.acked()
            store.kill()
            assert acked <= set(place.uids())
            store = start(place, store.port)
    assert max(most, largest(store)) < MEMORY_MOST
    assert store.terminate()[0] == 0
    fleet.check(place)
    assert fleet.tally.connections > fleet.nodes  # they did come again
    assert left_behind(tmp_path) == []
    report(f"{kills} kills of a store, {place.url.split(':')[0]}", fleet, most)


@pytest.mark.slow
def test_killed_postgres_loses_and_repeats_nothing(
    tmp_path: Path, postgres: Postgres, template: str, start: Start, long: bool
) -> None:
    """Every process of the server gets SIGKILL; it is started again, and the store goes on by itself."""
    kills = 5 if long else 1
    fleet, draw = fleet_of(long, kills * 3.0), random.Random(3)
    place = Place(tmp_path / "none", postgres, postgres.create(template))
    store = start(place)
    with fleet.sending(store.address):
        for _ in range(kills):
            time.sleep(draw.uniform(0.5, 2.0))
            acked = fleet.acked()
            postgres.kill()
            postgres.start()
            assert acked <= set(place.uids())
            assert store.process.poll() is None
    most = largest(store)
    assert most < MEMORY_MOST
    assert store.terminate()[0] == 0
    fleet.check(place)
    report(f"{kills} kills of Postgres", fleet, most)


@pytest.mark.slow
def test_two_stores_on_one_database(
    tmp_path: Path, postgres: Postgres, template: str, start: Start, long: bool
) -> None:
    """Half of the agents speak to each; the server is killed, then one store: all is there once."""
    fleet = fleet_of(long, 4.0)
    place = Place(tmp_path / "none", postgres, postgres.create(template))
    stores = [start(place), start(place)]
    with fleet.sending(*(store.address for store in stores)):
        time.sleep(1.0)
        acked = fleet.acked()
        postgres.kill()
        postgres.start()
        assert acked <= set(place.uids())
        stores[1].kill()
        stores[1] = start(place, stores[1].port)
    assert [store.terminate()[0] for store in stores] == [0, 0]
    fleet.check(place)
    report("two stores, one and Postgres killed", fleet, 0)


def report(what: str, fleet: Fleet, most: int) -> None:
    """Figures for who asks for them: pytest -s."""
    waits = sorted(fleet.tally.waits_s)
    print(
        f"\n{what}: {fleet.nodes} agents, {fleet.tally.sent} windows sent, {fleet.tally.stored} acknowledged at once, "
        f"{fleet.tally.duplicate} again, {fleet.tally.connections} streams, longest ack {waits[-1]:.1f} s, "
        f"store at most {most >> 20} MiB, told: {dict(fleet.told().most_common(4))}"
    )
