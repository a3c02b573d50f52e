"""Folders that MindStudio Insight imports: a capture's own files as it names them, or a window's records.

Insight tells files by their names and writes into databases that it opens, so what is exported is a copy.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from roofwatch.cli.insight_tables import GZIP, TABLE, VIEW, convert, write_view
from roofwatch.cli.render import text
from roofwatch.collectors import registry
from roofwatch.collectors.ascend.folder import HELPERS
from roofwatch.collectors.base import RawProfile
from roofwatch.model import insight
from roofwatch.model.errors import RoofwatchError
from roofwatch.model.record import Vendor

OUTPUT = "ASCEND_PROFILER_OUTPUT"
_DATABASE = re.compile(r"(?:ascend_pytorch_profiler(?:_\d{1,16})?|msprof_\d{1,16})\.db")
# What else of an analysis Insight shows; raw data is not among it.
_BESIDE = re.compile(
    r"analysis\.db|communication(?:_matrix)?\.json|step_trace_time\.csv|operator_(?:details|memory)\.csv|op_statistic\.csv"
    r"|api_statistic\.csv|memory_record\.csv|npu_module_mem\.csv|l2_cache\.csv"
)
_CAPTURE = re.compile(r"profiler_(?:info(?:_\d{1,9})?|metadata)\.json")  # of these the folder above has its own


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: the folder to import, its files, and sentences about what is not as it was."""

    folder: Path
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()


@contextmanager
def filled(out: Path, name: str) -> Iterator[Path]:
    """The folder for the files, made inside ``out``; where filling it fails or is interrupted, all that was made goes.

    Raises:
        RoofwatchError: something is in ``out``, or it cannot be made.
    """
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        try:
            out.mkdir(parents=True, exist_ok=True)
            if any(out.iterdir()):
                raise RoofwatchError(f"{out} is not empty: name a folder that is, or a new one.")
        except OSError as error:
            raise RoofwatchError(f"{out} cannot be made: {error.strerror or error}.") from error
        root = out / f"{name}_ascend_pt"
        try:
            (root / OUTPUT).mkdir(parents=True)
            yield root
        except BaseException:
            shutil.rmtree(root, ignore_errors=True)
            raise
    except BaseException:
        for folder in made:
            with suppress(OSError):  # what somebody else has put there stays
                folder.rmdir()
        raise


def of_capture(path: Path, out: Path) -> Exported:
    """Copies a file or folder of an Ascend profiler as Insight takes it.

    Raises:
        RoofwatchError: it is none, holds no kernel, or cannot be read or written.
    """
    found = registry.read_path(path)
    _require_ascend(path, found.profile)
    try:
        with filled(out, _word(path.resolve().name)) as root:
            notes = _source(found.profile, found.files, root / OUTPUT)
            if path.is_dir():
                _beside(path, found.files[0].parent, root)
            _tell_rank(found.profile.rank, root)
    except OSError as error:
        raise RoofwatchError(f"{path} cannot be exported: {error.strerror or error}.") from error
    return Exported(root, _listed(root), (*notes, *([found.profile.problem] if found.profile.problem else [])))


def of_window(name: str, calls: Sequence[insight.Call], rank: int | None, out: Path) -> Exported:
    """Writes the calls of a window.

    Raises:
        RoofwatchError: it cannot be written.
    """
    try:
        with filled(out, _word(name)) as root:
            with (root / OUTPUT / TABLE).open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(insight.table(calls))
            view = insight.View()
            write_view(root / OUTPUT / VIEW, (event for call in calls for event in view.events(call)))
            _tell_rank(rank, root)
    except OSError as error:
        raise RoofwatchError(f"{out} cannot be written: {error.strerror or error}.") from error
    return Exported(root, _listed(root))


def _require_ascend(path: Path, profile: RawProfile) -> None:
    if not any(device.vendor == Vendor.ASCEND for device in profile.devices):
        raise RoofwatchError(
            f"{path} is no profile of an Ascend device, which MindStudio Insight is for: open it in Perfetto as it is."
        )
    if not any(group.core != insight.COMMUNICATION.upper() for group in profile.groups):
        raise RoofwatchError(f"{path} holds collectives and no kernel: export what it was made from.")


def _word(name: str) -> str:
    """A name for a folder: Insight takes letters, digits and few signs, and no long paths."""
    stem = name.removesuffix("_ascend_pt").partition(".")[0]
    return re.sub(r"[^A-Za-z0-9_-]+", "_", stem)[:60].strip("_") or "capture"


def _source(profile: RawProfile, files: Sequence[Path], inner: Path) -> list[str]:
    """The files with the records; sentences about what had to be made."""
    first = files[0]
    if profile.collector == "ascend_db":
        rank = 0 if profile.rank is None else profile.rank
        target = inner / (first.name if _DATABASE.fullmatch(first.name) else f"ascend_pytorch_profiler_{rank}.db")
        shutil.copyfile(first, target)
        log = first.with_name(f"{first.name}-wal")
        if log.is_file() and not log.is_symlink():
            shutil.copyfile(log, target.with_name(f"{target.name}-wal"))
        return []
    if profile.collector == "ascend_trace_view":
        _copied(first, inner / VIEW)
        return []
    view = first.parent / VIEW
    made = not (view.is_file() and not view.is_symlink())
    if not made:
        _copied(view, inner / VIEW)
    lost = convert(files, inner, with_view=made)
    notes = ["there was no trace view beside the table: one is made of its rows, without the host"] if made else []
    return notes + ([f"{text.plural(lost, 'damaged row')} left out"] if lost else [])


def _copied(source: Path, target: Path) -> None:
    """A copy, decompressed."""
    with source.open("rb") as file:
        packed = file.read(2) == GZIP
    if not packed:
        shutil.copyfile(source, target)
        return
    try:
        with gzip.open(source) as plain, target.open("wb") as out:
            shutil.copyfileobj(plain, out)
    except (EOFError, gzip.BadGzipFile) as error:
        raise RoofwatchError(f"{source} is a damaged archive: decompress what can be of it first.") from error


def _beside(folder: Path, output: Path, root: Path) -> None:
    """What a capture's folder has beside its records."""
    capture = output if output == folder else output.parent
    for path in sorted({*output.iterdir(), *capture.iterdir()}):
        if path.is_symlink() or not path.is_file():
            continue
        if HELPERS.fullmatch(path.name) and _CAPTURE.fullmatch(path.name):
            shutil.copyfile(path, root / path.name)
        elif path.parent == output and _BESIDE.fullmatch(path.name):
            shutil.copyfile(path, root / OUTPUT / path.name)


def _tell_rank(rank: int | None, root: Path) -> None:
    if rank is not None and not any(root.glob("profiler_info_*.json")):
        (root / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": str(rank)}), "utf-8")


def _listed(root: Path) -> tuple[str, ...]:
    return tuple(sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()))
