"""``python -m roofwatch.agent``: the agent without the command line's libraries."""

from __future__ import annotations

import sys

from roofwatch.agent import config, daemon
from roofwatch.model.errors import RoofwatchError


def main() -> int:
    """Run an agent; the exit code."""
    try:
        given = config.typed(sys.argv[1:], prog="python -m roofwatch.agent")
        return daemon.run(config.resolve(given), again=lambda: config.resolve(given))
    except RoofwatchError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
