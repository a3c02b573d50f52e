"""Roofs are read as they lie; where rows of one say different things, the engine makes one of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clickhouse_server import ClickHouse

from roofwatch.store import database
from roofwatch.store.clickhouse import plain
from roofwatch.store.clickhouse.opening import ClickHouse as Opened

ROWS = "INSERT INTO roofs (signature_id, peaks_id, roof_ns, ridge) VALUES "
PEAKS = 1


@pytest.fixture
def db(clickhouse: ClickHouse) -> Iterator[Opened]:
    """A fresh database whose parts stay as they were inserted."""
    opened = database.open(clickhouse.url(clickhouse.create()))
    assert isinstance(opened, Opened)
    with opened.engine.connect() as connection:
        connection.exec_driver_sql("SYSTEM STOP MERGES roofs")
    yield opened
    opened.close()


def roofs(db: Opened, wanted: set[int], named_most: int) -> dict[tuple[int, int], tuple[float | None, float | None]]:
    """Roof time and ridge by signature and peaks."""
    with db.engine.connect() as connection:
        columns = plain.roofs_of(connection, wanted, named_most)
    return {(s, p): (roof, ridge) for s, p, roof, ridge in zip(*(of.tolist() for of in columns), strict=True)}


@pytest.mark.parametrize("named_most", [10, 1])  # some by name, and all there are
def test_rows_of_one_roof(db: Opened, named_most: int) -> None:
    """Twice alike they are one; a ridge alone is added to the rest; a newer value replaces an older one."""
    with db.engine.connect() as connection:
        connection.exec_driver_sql(f"{ROWS} (7, {PEAKS}, 100, 2), (8, {PEAKS}, 3, NULL)")
        connection.exec_driver_sql(f"{ROWS} (7, {PEAKS}, 100, 2), (9, {PEAKS}, 5, 6)")
    assert roofs(db, {7, 8, 9}, named_most) == {(7, PEAKS): (100, 2), (8, PEAKS): (3, None), (9, PEAKS): (5, 6)}
    with db.engine.connect() as connection:
        connection.exec_driver_sql(f"{ROWS} (8, {PEAKS}, NULL, 4), (9, {PEAKS}, 7, 6)")
    assert roofs(db, {7, 8, 9}, named_most) == {(7, PEAKS): (100, 2), (8, PEAKS): (3, 4), (9, PEAKS): (7, 6)}
