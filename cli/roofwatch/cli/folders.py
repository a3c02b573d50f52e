"""Folders that a command makes: the last of a path, but no tree, since that comes of a typing mistake."""

from __future__ import annotations

from pathlib import Path

from roofwatch.model.errors import RoofwatchError


def check(folder: Path, option: str, usual: Path) -> None:
    """Refuse a folder whose parent is not there either, unless it is the usual one.

    Raises:
        RoofwatchError: the folder would need more than itself to be made.
    """
    if folder in {usual, Path()} or folder.exists() or folder.parent.exists():
        return
    raise RoofwatchError(f"there is no {folder.parent}: check {option}, or make it with 'mkdir -p {folder}'.")


def check_database(url: str | None) -> None:
    """The same for the file that a database URL names; what else is wrong with a URL is told where it is opened.

    Raises:
        RoofwatchError: the file's folder would need more than itself to be made.
    """
    from roofwatch.store.config import default_url  # noqa: PLC0415

    if url:
        check(_file(url).parent, "--db", _file(default_url()).parent)


def _file(url: str) -> Path:
    """The file of a SQLite URL or name; a name of no folder for anything else."""
    name = url.removeprefix("sqlite:///")
    return Path() if "://" in name else Path(name.partition("?")[0])
