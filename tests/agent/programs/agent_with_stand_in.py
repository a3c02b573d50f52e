"""The real agent, whose parse worker is the stand-in beside this file."""

from __future__ import annotations

import sys
from pathlib import Path

from roofwatch.agent import config, daemon
from roofwatch.model.errors import RoofwatchError

if __name__ == "__main__":
    stand_in = Path(__file__).with_name("stand_in_worker.py")
    try:
        sys.exit(daemon.run(config.parse(sys.argv[1:]), command=(sys.executable, "-P", str(stand_in))))
    except RoofwatchError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
