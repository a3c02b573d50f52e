"""Examples of idle stretches: what the host was in, the kernel that was waited for, and where and how long."""

from __future__ import annotations

from roofwatch.cli.render import text

BEFORE, PLACE = ", before ", "; at "  # as the readers write them: "in X, before KERNEL; at 1.377 ms, a gap of 0.248 ms"
KERNEL_FLOOR = 16  # columns of a kernel's name: with less of it the rest of the text has a line of its own


def told(example: str, room: int) -> list[str]:
    """The example in one line, or in two, of at most ``room`` columns: only the kernel's name is shortened, inside.

    What has another form is shortened in its middle.
    """
    rest, at, place = text.clean(example).rpartition(PLACE)
    what, before, kernel = rest.rpartition(BEFORE)
    if not at or not before:
        return [text.cut_middle(text.clean(example), room)]
    kernel = text.kernel(kernel)
    left = room - text.width(what + BEFORE + PLACE + place)
    if left >= min(KERNEL_FLOOR, text.width(kernel)):
        return [what + BEFORE + text.cut_middle(kernel, left) + PLACE + place]
    left = room - text.width(BEFORE[2:] + PLACE + place)
    second = BEFORE[2:] + text.cut_middle(kernel, max(1, left)) + PLACE + place
    return [text.cut_middle(what + ",", room), text.cut_middle(second, room)]
