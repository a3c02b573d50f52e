"""One fleet on every engine: each answer is the same JSON, raw, summed up with late windows, and after retention."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from clickhouse_server import ClickHouse
from postgres_server import Postgres
from rollup_builders import BEGIN_NS, DAY_NS, DAYS, HOUR_NS, processes, window
from sqlalchemy import BigInteger, update

from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import (
    BudgetState,
    Collective,
    DeviceState,
    Node,
    Padding,
    Process,
    ProcessState,
    Trigger,
    Window,
)
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store import checks, database, schema
from roofwatch.store.clickhouse import gather, named, opening, plain, states, upkeep
from roofwatch.store.clickhouse import writer as batches
from roofwatch.store.config import Keep
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.load import Hello, Loader
from roofwatch.store.queries import Queries
from roofwatch.store.queries.run import ASKED, QUERIES
from roofwatch.store.queries.scope import windows_of
from roofwatch.store.retention import Dropped, prune_all
from roofwatch.store.unpack import Unpacked, Unpacker
from roofwatch.store.whose import Whose

END_NS = BEGIN_NS + DAYS * DAY_NS
pytestmark = pytest.mark.timeout(600)  # the fixtures live through it three times

GROUPED = {
    f"top_by {by}": {"by": by, "every_ns": every} if every else {"by": by}
    for by, every in (("op", 0), ("kind", HOUR_NS), ("module", 0), ("node", DAY_NS), ("device", 0))
}
NAMES = (*QUERIES, *ASKED, *GROUPED)  # what is asked of every engine
STAGES = ("raw", "late", "pruned", "summed")
KEEP = Keep(3600, 2 * 86_400, 400 * 86_400)
SCOPES = (
    Filter(),
    Filter(BEGIN_NS + HOUR_NS // 3, BEGIN_NS + 2 * DAY_NS + HOUR_NS, device="h100", labels={"version": "v1"}),
)


def filled(draw: random.Random, name: str, process: Process) -> Window:
    """A window of everything, with collectives, lengths and the device's state; names sort otherwise by language."""
    made = window(draw, name, process)
    calls = tuple(
        Collective(0, "all_reduce", "0 (0-5)", made.start_unix_ns + i * 1000, draw.randrange(1, 900), 6, i, 4096)
        for i in range(draw.randrange(4))
    )
    state = DeviceState(1.4e9, 1.98e9, 0.1 + draw.randrange(700), 700.0, 61.5, draw.choice(("", "power_cap", None)))
    devices = tuple(dataclasses.replace(d, state=draw.choice((state, None))) for d in made.devices)
    padding = draw.choice((None, Padding(1, 12, 16, 80, 128, ((4, 1), (8, 1)), ((2, 8, 1),))))
    trigger = draw.choice((Trigger.PERIODIC, Trigger.SYNCHRONIZED))
    spent = made.duration_ns % 97 / 9000
    budget = BudgetState("budget", 0.005, 0.01, spent, -5, 7, False, 6 * 10**10, 900) if spent > 0.002 else None
    return dataclasses.replace(
        made, devices=devices, collectives=calls, padding=padding, trigger=trigger, budget=budget
    )


def standing(of: list[Window]) -> list[ProcessState]:
    """How their processes stood; one beside them took no window."""
    idle = dataclasses.replace(of[0].process, pid=10**6 + of[0].process.pid)
    known = [w for w in of if w.budget is not None]
    return [
        ProcessState(p, w.start_unix_ns, BEGIN_NS, w.budget or BudgetState("schedule"), {"no_steps": w.duration_ns % 7})
        for w in known
        for p in (w.process, idle)
    ]


def chunks(of: list[Any], size: int) -> list[list[Any]]:
    """In pieces of that size."""
    return [of[at : at + size] for at in range(0, len(of), size)]


class Engine:
    """A database, and what it answered at each stage."""

    stages: Sequence[str] = STAGES  # at which it is asked
    briefly = False  # each query once a stage

    def __init__(self, url: str) -> None:
        self.db: Database = database.open(url)
        self.loader = Loader(now_ns=lambda: END_NS)
        self.unpacker = Unpacker()
        self.sequence = 0
        self.outcomes: list[int] = []
        self.answers: dict[tuple[str, str], list[str]] = {}

    def store(self, windows: list[Window]) -> None:
        """Segments of four windows, three of them a transaction; the last is sent twice."""
        segments = []
        for of in chunks(windows, 4):
            self.sequence += 1
            message = codec.segment(of, {}, standing(of))
            segments.append(self.unpacker.unpack(codec.seal(message, "agent-a", "boot-a", self.sequence)))
        for group in (*chunks(segments, 3), segments[-1:]):
            self.outcomes += self.load(group)
        self.settled()

    def hello(self, hello: Hello) -> None:
        """An agent connects."""
        with self.db.write() as connection:
            self.loader.load(connection, [hello])

    def load(self, group: list[Unpacked]) -> list[int]:
        """All of them in one transaction; gives what became of each."""
        with self.db.write() as connection:
            outcomes = self.loader.load(connection, group)
        self.loader.commit()
        return [outcome.status for outcome in outcomes]

    def settled(self) -> None:
        """What is acknowledged is there."""

    def prune(self, now_ns: int, keep: Keep) -> Dropped:
        """Sum up what is over, remove what is old."""
        return prune_all(self.db, now_ns, keep)

    def close(self) -> None:
        """Let go of it."""
        self.db.close()

    def ask(self, stage: str, uid: str) -> None:
        """Every query there is; while there is everything to answer from also of a part, and with a limit."""
        if stage not in self.stages:
            return
        own: dict[str, Any] = {"window": {"uid": uid[:12]}, "whatif": {"bandwidth": 2.0}, **GROUPED}
        queries = Queries(self.db)
        for name in NAMES:
            sides = name in {"compare", "regressions"}
            other = Filter(device="h100", labels={"version": "v2"}) if sides else None
            more: dict[str, Any] = {"device": "h100", "labels": {"version": "v1"}} if sides else {}
            more |= {"job": "slurm:1"} if name == "ranks" else {}
            told = self.answers[stage, name] = []
            scopes = list(zip(SCOPES, (0, 3) if stage == "late" else (0,), strict=False))
            for scope, limit in scopes[-1:] if self.briefly else scopes:
                asked = dataclasses.replace(scope, **more)
                try:
                    answer = queries.run(name.partition(" ")[0], asked, limit, other, own.get(name))
                    answer.pop("upto", None)  # a number of the store's own: repetitions leave gaps on Postgres
                    told.append(json.dumps(answer, allow_nan=False))
                except RoofwatchError as error:
                    told.append(str(error))


class RowsEngine(Engine):
    """ClickHouse: through journal and batches, as a store does."""

    stages = ("late", "summed")
    briefly = True

    def __init__(self, url: str, journal: Path) -> None:
        super().__init__(url)
        assert isinstance(self.db, opening.ClickHouse)
        self.writer = batches.start(self.db, Keep(99 * 86_400, 99 * 86_400), journal, now_ns=lambda: END_NS)

    def hello(self, hello: Hello) -> None:
        """It is written down, and comes with the next batch."""
        self.writer.submit(hello).result(30)

    def load(self, group: list[Unpacked]) -> list[int]:
        """All of them at once; gives what became of each."""
        waiting = [self.writer.submit(segment) for segment in group]
        return [future.result(30).status for future in waiting]

    def settled(self) -> None:
        """Until ClickHouse has all that was acknowledged."""
        deadline = time.monotonic() + 60
        while self.writer.journal.waiting()[0]:
            assert time.monotonic() < deadline, self.writer.failed
            time.sleep(0.02)

    def prune(self, now_ns: int, keep: Keep) -> Dropped:
        """As a store does between batches."""
        with self.db.engine.connect() as connection:
            return upkeep.prune_all(connection, self.writer.journal, now_ns, keep)

    def close(self) -> None:
        """Let go of it."""
        self.writer.close()
        super().close()


def life(engine: Engine) -> None:
    """A fleet's days: what comes in time, what late, what goes."""
    draw = random.Random(7)
    of = processes(draw)
    of[1] = dataclasses.replace(of[1], node=Node("Node-É", "boot-1"), model="ÄB_a%")
    windows = [filled(draw, f"{i}", draw.choice(of)) for i in range(80)]
    engine.hello(Hello("agent-a", "boot-a", "0.1.0", of[0].node))
    engine.store(windows[:60])
    keep = Keep(99 * 86_400, 99 * 86_400, 400 * 86_400)
    engine.ask("raw", windows[3].uid)
    assert engine.prune(END_NS + DAY_NS, keep).nothing
    engine.store(windows[60:])
    engine.ask("late", windows[65].uid)
    assert not engine.prune(END_NS + HOUR_NS, KEEP).nothing
    engine.store([dataclasses.replace(w, uid=f"{i:032x}") for i, w in enumerate(windows[:8])])
    engine.ask("pruned", windows[65].uid)
    engine.prune(END_NS + HOUR_NS, KEEP)
    engine.ask("summed", windows[65].uid)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, template: str) -> Iterator[dict[str, Engine]]:
    """SQLite, which the others are held against, and Postgres, after the same days."""
    folder: Path = tmp_path_factory.mktemp("engines")
    found = {
        "sqlite": Engine(str(folder / "store.db")),
        "postgresql": Engine(postgres.url(postgres.create(template))),
    }
    for engine in found.values():
        life(engine)
    yield found
    for engine in found.values():
        engine.close()


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, clickhouse: ClickHouse) -> Iterator[Engine]:
    """ClickHouse, after the same days; asked where windows and sums are mixed, and at the end."""
    folder: Path = tmp_path_factory.mktemp("rows")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batches, "BATCH_S", 0.05)
        engine = RowsEngine(clickhouse.url(clickhouse.create()), folder / "journal.db")
        life(engine)
        yield engine
        engine.close()


def test_what_became_of_segments(engines: dict[str, Engine], rows: Engine) -> None:
    """Stored once, and known when they come again: everywhere alike."""
    outcomes = engines["sqlite"].outcomes
    assert engines["postgresql"].outcomes == rows.outcomes == outcomes
    assert (outcomes.count(pb.STORED), outcomes.count(pb.DUPLICATE)) == (22, 3)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", NAMES)
def test_answers_are_identical(engines: dict[str, Engine], stage: str, name: str) -> None:
    """The same text, to the last digit."""
    expected, found = (engine.answers[stage, name] for engine in engines.values())
    assert found == expected
    assert len(expected[0]) > 300


def without_sources(told: str) -> Any:
    """An answer without the tables that it was taken from: which hours are summed up is a matter of when."""
    if not told.startswith("{"):
        return told
    answer = json.loads(told)
    for name in ("coverage", "coverage_other"):
        answer.get(name, {}).pop("sources", None)
    return answer


@pytest.mark.parametrize("name", NAMES)
def test_answers_of_clickhouse_are_identical(engines: dict[str, Engine], rows: Engine, name: str) -> None:
    """The same once all is summed up; before that but for the tables, as ClickHouse sums up at its own time."""
    late, summed = (engines["sqlite"].answers[stage, name] for stage in ("late", "summed"))
    assert list(map(without_sources, rows.answers["late", name])) == list(map(without_sources, late[-1:]))
    assert rows.answers["summed", name] == summed
    assert len(summed[0]) > 300


WHOLE = Filter(BEGIN_NS // DAY_NS * DAY_NS, (END_NS // DAY_NS + 1) * DAY_NS)
PARTS = (
    WHOLE,
    dataclasses.replace(WHOLE, device="H1"),
    dataclasses.replace(WHOLE, vendor="ascend"),
    dataclasses.replace(WHOLE, node="Node-É"),
    dataclasses.replace(WHOLE, labels={"version": "v1"}),
    dataclasses.replace(WHOLE, until_unix_ns=END_NS - HOUR_NS // 3),  # hours of the day that it cuts
)


@pytest.mark.parametrize(
    ("module", "name"), [(states, "MOST"), (plain, "MOST"), (gather, "FEW"), (named, "FEW"), (named, "READ_MOST")]
)
def test_pieces_are_read_or_added_up_by_clickhouse(
    rows: Engine, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    """Which of both is a matter of how many there are."""
    queries, h100 = Queries(rows.db), dataclasses.replace(WHOLE, device="h100")

    def told() -> list[str]:
        found = [queries.run("top", part, 4) for part in PARTS]
        found.append(queries.run("compare", h100, 9, dataclasses.replace(h100, labels={"version": "v2"})))
        return [json.dumps(answer) for answer in found]

    expected = told()
    assert {answer["coverage"]["sources"]["daily"] > 0 for answer in map(json.loads, expected[:2])} == {True}
    assert json.loads(expected[len(PARTS) - 1])["coverage"]["sources"].keys() == {"hourly", "daily"}
    assert len(set(expected)) == len(expected)
    monkeypatch.setattr(module, name, 0)
    assert told() == expected


def test_whose_a_window_is(engines: dict[str, Engine], rows: Engine) -> None:
    """The node under which it is stored; of one that is not there, nothing."""
    with engines["sqlite"].db.read() as connection:
        query = windows_of(Filter(), schema.windows.c.uid, schema.nodes.c.host)
        there = {bytes(uid): host for uid, host in connection.execute(query)}
    assert {"Node-É"} < set(there.values())
    for engine in (*engines.values(), rows):
        assert asyncio.run(Whose(engine.db).nodes([*there, bytes(16)])) == there


def test_figures_as_large_as_are_accepted(tmp_path: Path, postgres: Postgres, template: str) -> None:
    """What SQLite adds up beyond 64 bits, Postgres refuses to: no answer may come to that (limits: checks.py)."""
    found = []
    for url in (str(tmp_path / "store.db"), postgres.url(postgres.create(template))):
        engine, draw = Engine(url), random.Random(3)
        of = processes(draw)
        windows = [filled(draw, f"{i}", draw.choice(of)) for i in range(8)]
        windows = [dataclasses.replace(w, start_unix_ns=checks.MAX_UNIX_NS - 1) for w in windows]
        engine.store(windows)
        with engine.db.write() as connection:
            for table in (schema.windows, schema.window_devices, schema.idle_causes, schema.graphs):
                most = {c.name: checks.MAX_NS for c in table.c if isinstance(c.type, BigInteger) and "id" not in c.name}
                most |= {name: 1 << 62 for name in most if name.startswith("padding") or name == "model_flops"}
                most.pop("start_unix_ns", None)  # by which they were stored
                connection.execute(update(table).values(most))
        engine.ask("raw", windows[3].uid)
        engine.db.close()
        found.append(engine.answers)
    assert found[0] == found[1]
    assert all(answer[0].startswith("{") for (_, name), answer in found[0].items() if name not in {"compare", "window"})
