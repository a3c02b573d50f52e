"""``python -m roofwatch``: the program, where its script is not on the path."""

from __future__ import annotations

from roofwatch.cli.entry import main

main()
