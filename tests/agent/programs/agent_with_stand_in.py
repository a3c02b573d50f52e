"""The real agent, whose parse worker is the stand-in beside this file, and which gathers windows for 0.3 s only.

GATHER_S in the environment says otherwise.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from roofwatch.agent import config, daemon, sealer
from roofwatch.model.errors import RoofwatchError

if __name__ == "__main__":
    stand_in = Path(__file__).with_name("stand_in_worker.py")
    sealer.GATHER_S = float(os.environ.get("GATHER_S", "0.3"))
    try:
        given, command = config.typed(sys.argv[1:]), (sys.executable, "-P", str(stand_in))
        sys.exit(daemon.run(config.resolve(given), command, lambda: config.resolve(given)))
    except RoofwatchError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
