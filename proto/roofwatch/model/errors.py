"""The one family of errors a user can see: one sentence, an exit code, no traceback."""

from __future__ import annotations


class RoofwatchError(Exception):
    """A failure told in one sentence: what is wrong, where, and what to do."""

    exit_code = 1


class UsageError(RoofwatchError):
    """The request itself is wrong."""

    exit_code = 2


class UnreachableError(RoofwatchError):
    """A store or agent does not answer."""

    exit_code = 3


class IncompleteError(RoofwatchError):
    """The data that would answer is missing or partial."""

    exit_code = 4
