"""Windows with a known report, pages of them, and a browser to read these in."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "store"))  # store_builders
sys.path.insert(0, str(Path(__file__).parent))  # report_scene

import in_process
import report_scene
from playwright.sync_api import Browser, sync_playwright
from report_scene import MakePage, Read, Reader

from roofwatch.cli.report import library, page, zone

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NOW_NS = 2_000_100_000_000_000_000  # 2033-05-19 07:20 UTC


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the plots' script is kept: put together once for all tests, and not in the user's home."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    yield folder
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture
def scene_answer() -> dict[str, Any]:
    """The answer of the scene's window."""
    return report_scene.answer_of(report_scene.window())


@pytest.fixture
def make_page(tmp_path: Path) -> MakePage:
    """Write an answer's page."""

    def make(answer: dict[str, Any], title: Sequence[str] = ("gpu-07", "last 1 h"), **more: Any) -> Path:
        about = page.About(title, NOW_NS, "0.1.0", zone.Zone(zone.timedelta(hours=2)), **more)
        path = tmp_path / "page.html"
        path.write_text(page.page(answer, about, [], library.script()), encoding="utf-8")
        return path

    return make


@pytest.fixture
def roofwatch(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., in_process.Done]:
    """Run the program in this process, with the plots' script that is there already."""
    monkeypatch.chdir(tmp_path)
    return partial(in_process.call, env=in_process.environment(tmp_path, cache))


# Of the module: its event loop and its processes would be in the way of other modules' tests.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium, of the system."""
    found = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def read(browser: Browser) -> Iterator[Read]:
    """Open a file as a reader does: on a laptop in the light, unless said otherwise."""
    contexts = []

    def open_(path: Path, *, width: int = 1440, scheme: str = "light", bypass_csp: bool = False) -> Reader:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            bypass_csp=bypass_csp,
            timezone_id="America/New_York",  # not the reporter's
        )
        contexts.append(context)
        reader = Reader(context.new_page())
        reader.page.on("console", lambda message: reader.said.append(message.text))
        reader.page.on("pageerror", lambda error: reader.said.append(str(error)))
        reader.page.on("request", lambda request: reader.asked_for.append(request.url))
        reader.page.goto(path.as_uri())
        reader.page.wait_for_function("document.documentElement.dataset.ready === 'yes'")
        return reader

    yield open_
    for context in contexts:
        context.close()
