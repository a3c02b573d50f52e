"""The two wheels: what is in them, and that the small one stands alone."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def build(project: Path, into: Path) -> zipfile.ZipFile:
    """Build a wheel with what is installed, without a network."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(into), str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return zipfile.ZipFile(next(into.glob("*.whl")))


@pytest.fixture(scope="module")
def hook_wheel(tmp_path_factory):
    """The wheel of roofwatch-hook."""
    return build(ROOT / "collectors" / "hook", tmp_path_factory.mktemp("hook"))


def test_the_hook_wheel_holds_the_hook_and_nothing_else(hook_wheel):
    """Every file is in roofwatch/hook, none of them compiled, and the injected sitecustomize is among them."""
    files = [n for n in hook_wheel.namelist() if ".dist-info/" not in n]
    assert all(n.startswith("roofwatch/hook/") and not n.endswith(".pyc") for n in files)
    assert {"roofwatch/hook/__init__.py", "roofwatch/hook/inject/sitecustomize.py"} <= set(files)
    metadata = hook_wheel.read(next(n for n in hook_wheel.namelist() if n.endswith("METADATA"))).decode()
    assert "Requires-Python: >=3.8" in metadata
    assert "Requires-Dist" not in metadata


def test_the_hook_imports_without_torch_and_without_the_rest(hook_wheel, tmp_path):
    """In a bare interpreter, away from the repository, attach() and batch() of the wheel raise nothing."""
    hook_wheel.extractall(tmp_path)
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from roofwatch.hook import attach, batch, protocol\n"
        "batch([3, 5])\n"
        "assert not [m for m in sys.modules if m.startswith('roofwatch.') and not m.startswith('roofwatch.hook')]\n"
        "print(protocol.PROTOCOL)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_the_main_wheel_holds_all_five_roots(tmp_path):
    """Code, data and migrations of the five roots, one version with the hook, no file that hides the namespace."""
    names = set(build(ROOT, tmp_path).namelist())
    assert {
        "roofwatch/model/devices.toml",
        "roofwatch/proto/v1/roofwatch_pb2.py",
        "roofwatch/collectors/kineto/reader.py",
        "roofwatch/hook/inject/sitecustomize.py",
        "roofwatch/agent/daemon.py",
        "roofwatch/store/migrations/versions/r0001_first.py",
        "roofwatch/cli/demo_jobs/inference.py",
        "roofwatch/__main__.py",
    } <= names
    assert "roofwatch/__init__.py" not in names
    projects = (ROOT / "pyproject.toml", ROOT / "collectors" / "hook" / "pyproject.toml")
    assert len({tomllib.loads(p.read_text())["project"]["version"] for p in projects}) == 1


def test_no_root_hides_the_others():
    """A roofwatch/__init__.py in any root would hide the other four."""
    assert [str(p) for p in ROOT.glob("*/roofwatch/__init__.py")] == []
