"""Vega as one script, to be put into a page: drawn without a network, by the reader's own browser."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from roofwatch.model.errors import RoofwatchError
from roofwatch.model.extras import install

PACKAGE = "vl-convert-python"
NEEDED = f"the plots of a report need vl-convert-python, which is not here: {install('report')}"


def script() -> str:
    """The script that defines ``vegaEmbed``; kept in the user's cache, as putting it together takes seconds.

    Raises:
        RoofwatchError: the package that holds it is not installed.
    """
    try:
        kept = _cache() / f"vega-{version(PACKAGE)}.js"
    except PackageNotFoundError:
        raise RoofwatchError(NEEDED) from None
    found = _kept(kept)
    if found is None:
        found = _bundled()
        with suppress(OSError):  # without a home it is put together each time
            _keep(kept, found)
    return found


def _bundled() -> str:
    try:
        import vl_convert  # noqa: PLC0415  # 84 MB, and only where the script is not kept
    except ImportError:
        raise RoofwatchError(NEEDED) from None
    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return text.replace("</script", r"<\/script").replace("<!--", r"\x3c!--")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "roofwatch"


def _kept(path: Path) -> str | None:
    """What is kept there, None where it is not what was put there."""
    try:
        digest, _, text = path.read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return text if digest == _digest(text) else None


def _keep(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".vega-") as folder:
        written = Path(folder) / path.name
        written.write_text(f"{_digest(text)}\n{text}", encoding="utf-8")
        written.replace(path)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
