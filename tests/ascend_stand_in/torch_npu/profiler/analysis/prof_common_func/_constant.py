"""Where everything is printed."""

import os
import time


def _line(level: str, message: str) -> str:
    moment = time.strftime("[%Y-%m-%d %H:%M:%S]", time.localtime())
    return f"{moment} [{level}] [{os.getpid()}] profiler.py: {message}"


def print_info_msg(message: str) -> None:
    """On stdout."""
    print(_line("INFO", message), flush=True)


def print_warn_msg(message: str) -> None:
    """On stdout, of the first rank only."""
    if os.environ.get("RANK") in (None, "0"):
        print(_line("WARNING", message), flush=True)


def print_error_msg(message: str) -> None:
    """On stdout."""
    print(_line("ERROR", message), flush=True)
