"""Where the ``roofwatch`` program begins: with the job's PYTHONPATH out of the way of ``run``'s own imports."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # of ``typing``, which takes a while
if TYPE_CHECKING:
    from types import TracebackType
    from typing import NoReturn


def main() -> NoReturn:
    """``roofwatch.cli.main.main``; only ``sys`` and ``os`` may be imported before it."""
    sys.excepthook = _failed  # until all is imported nothing else takes a Ctrl-C
    if sys.argv[1:2] == ["run"]:
        sys.path[:] = own_first(sys.path, os.environ.get("PYTHONPATH", ""))
    from roofwatch.cli.main import main as program  # noqa: PLC0415  # imports click

    program()


def _failed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Tell a bug, but no Ctrl-C: Python then ends with SIGINT, as a shell expects."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


def own_first(path: list[str], pythonpath: str) -> list[str]:
    """The path with PYTHONPATH's entries last: they are the job's, but roofwatch itself may have been put there."""
    if not pythonpath:
        return path
    # site has made the entries absolute; an empty one is the working folder. pathlib would import much.
    theirs = {os.path.abspath(entry) for entry in pythonpath.split(os.pathsep)}  # noqa: PTH100
    home = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))  # noqa: PTH100, PTH118, PTH120
    theirs.discard(home)
    return [entry for entry in path if entry not in theirs] + [entry for entry in path if entry in theirs]


if __name__ == "__main__":
    main()
