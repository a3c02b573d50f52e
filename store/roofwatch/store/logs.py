"""The store's log on stderr: what it and its libraries say, for people or as JSON, thinned where it repeats."""

from __future__ import annotations

import logging
import sys
import traceback

from roofwatch.proto.lines import Thinner, let_go, line, stamp

BURST = 10  # lines that one place of the code may write in a minute
MAX_TRACEBACK = 8000  # characters
AUDIT = "roofwatch.audit"  # who asked agents for what: each time, at every level


class Lines(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes records; of one place, whose text is the same but for its values, a few a minute."""

    def __init__(self, form: str) -> None:
        super().__init__(sys.stderr)
        self.form = form
        self._thinner = Thinner(BURST)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it."""
        suppressed = 0 if record.name == AUDIT else self._thinner.admit(f"{record.name}:{record.lineno}")
        if suppressed is None:
            return
        record.suppressed = suppressed
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Where nobody reads the program goes on, and its counters still tell."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            let_go(self.stream, error)
        else:
            super().handleError(record)

    def format(self, record: logging.LogRecord) -> str:
        """Its line; a fault of ours brings its traceback."""
        left_out = getattr(record, "suppressed", 0)
        trace = "".join(traceback.format_exception(*record.exc_info))[-MAX_TRACEBACK:] if record.exc_info else ""
        if self.form == "json":
            fields = {"logger": record.name, "message": record.getMessage(), "suppressed": left_out or None}
            text = line(record.levelname.lower(), "log", fields, self.form)
            return text if not trace else text[:-1] + f', "traceback": {_quoted(trace)}}}'
        more = f" ({left_out} more like this were left out)" if left_out else ""
        return f"{stamp()} {record.levelname}: {record.getMessage()}{more}" + (f"\n{trace.rstrip()}" if trace else "")


def _quoted(text: str) -> str:
    import json  # noqa: PLC0415 - for faults of ours only

    return json.dumps(text)


def set_up(form: str, level: str) -> None:
    """Begin to write, or write otherwise from now on."""
    root = logging.getLogger()
    handler = next((h for h in root.handlers if isinstance(h, Lines)), None)
    if handler is None:
        root.addHandler(handler := Lines(form))
    handler.form = form
    root.setLevel(level.upper())


def audit(text: str, *values: object) -> None:
    """A line about who asked agents for what. Never thinned, and whatever the level."""
    logger = logging.getLogger(AUDIT)
    logger.setLevel(logging.INFO)
    logger.info(text, *values)


def say(text: str, event: str, form: str, **fields: object) -> None:
    """A line that is written at every level: that the store listens, and where."""
    try:
        sys.stderr.write((line("info", event, fields, form) if form == "json" else text) + "\n")
        sys.stderr.flush()
    except OSError as error:
        let_go(sys.stderr, error)
