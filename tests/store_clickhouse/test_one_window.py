"""A window that is named by its whole uid is found without reading the others."""

from __future__ import annotations

import hashlib

import pytest
from clickhouse_connect.driver.binding import finalize_query
from clickhouse_server import ClickHouse
from clickhouse_windows import many_windows
from sqlalchemy import event

from roofwatch.store import database
from roofwatch.store.queries import one_window


@pytest.mark.parametrize(("digits", "read"), [(32, "1/7"), (12, "7/7")])
def test_by_its_uid(clickhouse: ClickHouse, digits: int, read: str) -> None:
    """Of 50,000 windows in 7 pieces one is read; the begin of a uid says nothing of where it is."""
    name = clickhouse.create()
    db = database.open(clickhouse.url(name))
    many_windows(clickhouse, name, 50_000)
    asked: list[str] = []
    event.listen(db.engine, "before_cursor_execute", lambda *args: asked.append(str(finalize_query(args[2], args[3]))))
    uid = hashlib.md5(b"12345").hexdigest()  # noqa: S324 - as any hash would do
    with db.read() as connection:
        assert one_window._named(connection, {"uid": uid[:digits]})["uid"] == uid
    found = f"SELECT explain FROM (EXPLAIN indexes = 1 {asked[-1]}) WHERE explain LIKE '%Granules: %/%'"  # noqa: S608 - the store's own
    told = [line[0].split("Granules: ")[1] for line in clickhouse.run(found, name)]
    assert [one for one in told if one.endswith("/7")][-1] == read
    db.close()
