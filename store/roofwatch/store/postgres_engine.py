"""Postgres 15 and later, by psycopg: settings of a session, one writer at a time, and failures in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from roofwatch.model.errors import RoofwatchError, UsageError
from roofwatch.model.extras import install

OLDEST = 15  # major version of the server
BUSY_S = 30  # how long a writer waits for another one: a second store, an import
STUCK_S = 60  # after that a session that holds a transaction and says nothing is ended: another one may wait for it
_BUSY = "55P03"  # lock_not_available
WRITER = 0x526F6F66  # the advisory lock of writers; locks are of one database
# TCP: a server that vanished is noticed within half a minute, not after hours.
_ARGUMENTS = {
    "connect_timeout": 10,
    "application_name": "roofwatch",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "client_encoding": "utf8",
}
_SECRET = {"password", "sslpassword"}
_SETTINGS = {
    "lock_timeout": f"{BUSY_S}s",
    "idle_in_transaction_session_timeout": f"{STUCK_S}s",
    "jit": "off",  # compiling a statement costs more than these read
    "extra_float_digits": "1",  # a double comes back as it went
    "bytea_output": "hex",
}


def check(url: URL, given: str) -> URL:
    """A URL for psycopg.

    Raises:
        UsageError: it names another driver, or no database.
    """
    if url.drivername not in {"postgresql", "postgresql+psycopg"}:
        raise UsageError(f"Postgres is reached by psycopg: give postgresql+psycopg://…, not {url.drivername}://…")
    if not url.database:
        shown = shown_url(url) if url.password else given
        raise UsageError(f"'{shown}' names no database: give postgresql+psycopg://USER@HOST:PORT/DATABASE")
    return url.set(drivername="postgresql+psycopg")


def shown_url(url: URL) -> str:
    """For messages: without passwords."""
    hidden = {name: "***" for name in url.query if name in _SECRET}
    return url.update_query_dict(hidden).render_as_string()


def engine(url: URL) -> Engine:
    """An engine whose writers take turns, and whose sums of whole numbers are whole numbers.

    Raises:
        RoofwatchError: psycopg is not installed.
    """
    arguments: dict[str, Any] = {name: value for name, value in _ARGUMENTS.items() if name not in url.query}
    # A statement with thousands of values is sent once; preparing it would keep it on the server for nothing.
    arguments["prepare_threshold"] = None
    try:
        from roofwatch.store import postgres_types  # noqa: PLC0415  # psycopg is an extra

        made = create_engine(
            url, connect_args=arguments, pool_size=4, pool_pre_ping=True, use_native_hstore=False,
        )  # fmt: skip
    except ImportError as error:
        raise RoofwatchError(f"Postgres needs psycopg ({error}): {install('postgres')}") from None
    values = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in _SETTINGS.items())

    @event.listens_for(made, "connect")
    def _settings(connection: Any, _record: object) -> None:
        postgres_types.register(connection)
        connection.autocommit = True
        connection.execute(f"SELECT {values}")
        connection.autocommit = False

    @event.listens_for(made, "begin")
    def _begin(connection: Connection) -> None:
        # Writers take turns, as they do on SQLite: what one sums up, no other adds to meanwhile.
        if connection.get_execution_options().get("roofwatch_write", False):
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITER})")

    return made


@contextmanager
def limited(connection: Connection, within_s: float) -> Iterator[None]:
    """End a statement of this transaction that runs for so long: who asked has gone."""
    connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(1, int(within_s * 1000))}")
    yield


def check_server(made: Engine, name: str) -> None:
    """Refuse a server that is too old, or a database whose texts are not UTF-8.

    Raises:
        RoofwatchError: it is.
    """
    with made.connect() as connection:
        version = int(connection.exec_driver_sql("SELECT current_setting('server_version_num')").scalar_one())
        encoding = connection.exec_driver_sql("SELECT current_setting('server_encoding')").scalar_one()
    if version < OLDEST * 10_000:
        raise RoofwatchError(f"{name} is Postgres {version // 10_000}: Roofwatch needs {OLDEST} or later")
    if encoding != "UTF8":
        raise RoofwatchError(f"{name} stores texts as {encoding}: create the database with ENCODING 'UTF8'")


def lost(error: BaseException) -> bool:
    """Whether the connection, not the statement, failed: what was not committed may be tried again."""
    state = getattr(error, "sqlstate", None)
    if state is None:
        return type(error).__name__ in {"OperationalError", "InterfaceError"}  # no server said anything
    return state[:2] in {"08", "40"} or state in {"57P01", "57P02", "57P03", "25P03", "25006"}


def busy(error: DBAPIError) -> bool:
    """Whether a lock could not be had in time: somebody reads or writes for long, and it may be tried again."""
    return getattr(error.orig, "sqlstate", None) == _BUSY


def unreachable(error: BaseException) -> bool:
    """Whether no server answers."""
    return getattr(error, "sqlstate", None) in {None, "57P03"} and not _answered(str(error)) and lost(error)


def _answered(message: str) -> bool:
    """Whether it was a server that said no: libpq gives no code for that."""
    return "FATAL:" in message or "no password supplied" in message


_ADVICE_BY_STATE = {
    "42501": "let a role with that right run 'roofwatch store serve' once, or grant it",
    "53100": "free some space",
    "57014": "this answer takes too long; ask for a shorter time, or for one node",
    _BUSY: "another store or import writes for long; try again",
    "25006": "this server only reads; name the one that writes",
    "3D000": "create the database first",
}
_ADVICE_BY_TEXT = (
    ("authentication failed", "check user and password, e.g. in ~/.pgpass or $PGPASSWORD"),
    ("no password supplied", "give a password, e.g. in ~/.pgpass or $PGPASSWORD"),
    ("no pg_hba.conf entry", "let the server's pg_hba.conf admit this user and address"),
    ("does not exist", "create it first"),
    ("too many", "raise the server's max_connections"),
    ("Connection refused", "is the server running?"),
    ("No such file", "is the server running, and is its socket there?"),
    ("timeout", "check host and port"),
    ("timed out", "check host and port"),
)


def sentence(error: BaseException) -> str:
    """What went wrong in one line, with what to do about it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    line = next((one for one in reversed(lines) if "failed:" in one), lines[0])
    state = getattr(error, "sqlstate", None)  # of what a session was told; libpq gives none for a failure to connect
    known = _ADVICE_BY_TEXT if state is None else ()
    advice = _ADVICE_BY_STATE.get(state or "") or next((advice for part, advice in known if part in line), None)
    return f"{line}: {advice}" if advice else line
