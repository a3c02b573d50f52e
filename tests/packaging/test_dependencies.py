"""What we depend on: declared, pinned, used, described, under a licence that we may ship with. Without a network."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCUMENT = (ROOT / "docs" / "dependencies.md").read_text()
ROOTS = ("agent", "collectors", "proto", "store", "cli")
OURS = {"roofwatch", "roofwatch-hook"}
OWN_MODULES = {"roofwatch", "_roofwatch_doctor", "sitecustomize"}  # the last: another's, which the hook's passes on to
TOOLS = {"pip", "setuptools", "wheel"}  # of the environment itself
HARDWARE = {"cuda", "npu"}  # extras that name the user's own torch
ALLOWED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "HPND", "ISC", "MIT", "MIT-0", "MPL-2.0",
    "PSF-2.0", "Python-2.0", "Unlicense", "Zlib", "BlueOak-1.0.0",
}  # fmt: skip
# Not permissive, imported and never part of what we ship, and only where an extra is asked for.
BY_NAME = {"psycopg": "LGPL-3.0", "psycopg-binary": "LGPL-3.0"}
# Texts of licences in files that have no expression yet.
SPOKEN = {
    "apache": "Apache-2.0", "mit": "MIT", "bsd": "BSD-3-Clause", "python software foundation": "PSF-2.0",
    "mozilla public license 2.0": "MPL-2.0", "psf": "PSF-2.0", "isc": "ISC",
}  # fmt: skip


def requirements(*extras: str) -> list[Requirement]:
    """What the project names, with the extras."""
    named = list(PROJECT["project"]["dependencies"])
    for extra in extras:
        named += PROJECT["project"]["optional-dependencies"][extra]
    return [Requirement(line) for line in named]


def shipped_extras() -> list[str]:
    """Extras that bring more than the user's own torch."""
    return sorted(PROJECT["project"]["optional-dependencies"].keys() - HARDWARE)


@cache
def pins() -> dict[str, str]:
    """Name → version in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [line.partition("==") for line in lines if line.strip() and not line.startswith("#")]
    assert all(version for _, _, version in found), "each line is NAME==VERSION"
    return {canonicalize_name(name): version for name, _, version in found}


def installed() -> dict[str, str]:
    """What ``make setup`` has installed here."""
    named = {canonicalize_name(d.metadata["Name"]): d.version for d in metadata.distributions()}
    return {name: version for name, version in named.items() if name not in OURS | TOOLS}


def closure() -> set[str]:
    """All that comes with the wheel and its extras, on this machine."""
    waiting = [(canonicalize_name(r.name), tuple(r.extras)) for r in requirements(*shipped_extras())]
    seen: set[str] = set()
    while waiting:
        name, extras = waiting.pop()
        seen.add(name)
        for line in metadata.requires(name) or []:
            needed = Requirement(line)
            wanted = [{**default_environment(), "extra": extra} for extra in ("", *extras)]
            if needed.marker is not None and not any(needed.marker.evaluate(each) for each in wanted):
                continue
            below = canonicalize_name(needed.name)
            if below not in seen:
                waiting.append((below, tuple(needed.extras)))
    return seen


def imported() -> dict[str, set[str]]:
    """Top-level module → our files that import it; the standard library and what is ours left out."""
    found: dict[str, set[str]] = {}
    for root in ROOTS:
        for path in (ROOT / root).rglob("*.py"):
            if "roofwatch" not in path.relative_to(ROOT).parts:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names = [node.module]
                for name in names:
                    top = name.partition(".")[0]
                    if top not in sys.stdlib_module_names and top not in OWN_MODULES:
                        found.setdefault(top, set()).add(str(path.relative_to(ROOT)))
    return found


# Libraries of torch's CUDA build, which pins them itself: they are there or not as torch was installed.
OF_CUDA = re.compile(r"(nvidia-(?!ml-py)|cuda-|triton$)")


def test_everything_that_is_installed_is_pinned():
    """Each package at the version of constraints.txt, what others bring too: a release is what was tested."""
    wrong = {
        n: v for n, v in installed().items() if n not in pins() or Version(pins()[n]) != Version(Version(v).public)
    }
    assert [name for name in wrong if not OF_CUDA.match(name)] == []


def test_nothing_is_pinned_that_nobody_brings():
    """A name that is left over says nothing of what is tested."""
    assert sorted(pins().keys() - installed().keys()) == []


def test_every_dependency_has_a_lower_bound_and_its_pin_fits():
    """Without an upper one, which would fight with a user's other packages."""
    for needed in requirements(*PROJECT["project"]["optional-dependencies"]):
        operators = {one.operator for one in needed.specifier}
        assert operators == {">="}, needed
        name = canonicalize_name(needed.name)
        assert name == "torch-npu" or needed.specifier.contains(pins()[name]), needed


def test_what_is_imported_is_declared_and_what_is_declared_is_imported():
    """No package that nobody uses, and none that is there by luck."""
    of_module = metadata.packages_distributions()
    declared = {canonicalize_name(r.name) for r in requirements(*PROJECT["project"]["optional-dependencies"])}
    used: set[str] = set()
    for module, files in imported().items():
        brought = {canonicalize_name(name) for name in of_module.get(module, [])}
        if module == "torch_npu":
            brought = {"torch-npu"}
        if module in {"google", "grpc_tools"}:  # a namespace of several; grpc_tools is of `make proto`
            brought = {"protobuf"}
        assert brought & declared, (module, sorted(files)[:3])
        used |= brought & declared
    # "psycopg[binary]" is asked for by SQLAlchemy by its name, as "clickhouse-connect" and "torch-npu" may be.
    assert declared - used <= {"psycopg", "torch-npu", "clickhouse-connect"}


def test_every_dependency_is_described():
    """A line in docs/dependencies.md that says why it is there; no line for what is gone."""
    runtime = {canonicalize_name(r.name) for r in requirements(*shipped_extras())}
    described: set[str] = set()
    for line in DOCUMENT.partition("Compared for the report")[0].splitlines():
        if line.startswith("| ") and not line.startswith(("| package", "|---")):
            described |= {canonicalize_name(Requirement(n.strip()).name) for n in line.split("|")[1].split(",")}
    assert described == runtime
    dev = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependency-groups"]["dev"]}
    prose = DOCUMENT.partition("For development:")[2]
    missing = [name for name in dev - runtime if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", prose)]
    assert sorted(missing) == []


def licences(name: str) -> set[str]:
    """Of a package, as its own metadata say."""
    told = metadata.metadata(name)
    if expression := told["License-Expression"]:
        return set(re.findall(r"[\w.+-]+", expression)) - {"AND", "OR", "WITH", "LLVM-exception"}
    spoken = [c.rpartition(" :: ")[2] for c in told.get_all("Classifier") or [] if c.startswith("License ::")]
    words = " ".join(spoken or [(told["License"] or "").partition("\n")[0]]).lower()
    return {spdx for word, spdx in SPOKEN.items() if re.search(rf"\b{word}\b", words)}


def test_every_licence_is_one_that_we_may_ship_with():
    """Of all that comes with the wheel and its extras; a package that tells none is not allowed."""
    for name in sorted(closure()):
        if name in BY_NAME:
            assert name in DOCUMENT or name.startswith("psycopg"), "its licence has to be described"
            assert BY_NAME[name] in DOCUMENT
            continue
        found = licences(name)
        assert found, f"{name} tells no licence that is known here: {metadata.metadata(name)['License']}"
        assert found <= ALLOWED, (name, found)


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [
        ({"dependencies": [{"name": "click", "version": "8", "vulns": []}]}, 0, "1 packages, no known vulnerability"),
        (
            {"dependencies": [{"name": "click", "version": "8", "vulns": [{"id": "GHSA-1", "fix_versions": ["9"]}]}]},
            1, "click 8: GHSA-1, mended in 9",
        ),
        ({"dependencies": [{"name": "click", "skip_reason": "not found"}]}, 0, "NOT AUDITED"),
        (None, 0, "NOT AUDITED"),
    ],
)  # fmt: skip
def test_what_the_audit_makes_of_an_answer(tmp_path, answer, code, told):
    """A hole fails, a network that is not there does not, and is told."""
    import json  # noqa: PLC0415 - one use

    file = tmp_path / "answer.json"
    file.write_text("" if answer is None else json.dumps(answer))
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "audit.py", "--answer", file], capture_output=True, text=True, check=False
    )
    assert (done.returncode, told in done.stdout) == (code, True), done.stdout + done.stderr
