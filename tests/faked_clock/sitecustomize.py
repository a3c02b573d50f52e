"""For processes under libfaketime 0.9.10, where ``time.sleep`` of Python 3.11 always fails: sleep by another call."""

import select
import time


def sleep(seconds: float) -> None:
    """As time.sleep."""
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)


time.sleep = sleep
