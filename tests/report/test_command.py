"""``roofwatch report`` as a user runs it: the whole program, real files, a real store."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from report_scene import KERNELS, RIDGE, Read, window
from store_builders import GEMM, H100, MI300, RunningStore, process_of, running_store, segment_of, send, stat, window_of

from roofwatch.model.record import Padding, Window

Roofwatch = Callable[..., "subprocess.CompletedProcess[str]"]
MIB = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunningStore]:
    """A store with two of the scene's windows, an hour apart."""
    hour, start = 3_600_000_000_000, 2_000_000_000_000_000_000
    with running_store(tmp_path) as running:
        send(running.address, [segment_of([window("a", start), window("b", start + hour)], 1)], replies=1)
        yield running


def test_from_a_store_and_from_its_database(store: RunningStore, roofwatch: Roofwatch, tmp_path: Path) -> None:
    """The same page both ways, apart from when it was made; the file there before is replaced; stdout stays empty."""
    (tmp_path / "db.html").write_text("an older report")

    over_wire = roofwatch("report", "--store", store.address, "--since", "all", "-o", "wire.html")
    opened = roofwatch("report", "--db", f"sqlite:///{tmp_path}/store.db", "--since", "all", "-o", "db.html")

    assert (over_wire.returncode, opened.returncode) == (0, 0), over_wire.stderr + opened.stderr
    assert over_wire.stdout == ""
    assert re.fullmatch(r"roofwatch: wire\.html written, \S+ [KM]iB: open it in a browser\.\n", over_wire.stderr)
    pages = [(tmp_path / name).read_text(encoding="utf-8") for name in ("wire.html", "db.html")]
    first, second = (re.sub(r"Made \S+ \S+", "Made", page) for page in pages)
    assert first == second
    assert "gpu-07" in first
    assert sorted(path.name for path in tmp_path.glob("*html*")) == ["db.html", "wire.html"]

    piped = roofwatch("report", "--store", store.address, "--since", "all", "-o", "-")
    assert (piped.returncode, piped.stderr) == (0, "")
    assert re.sub(r"Made \S+ \S+", "Made", piped.stdout) == first
    assert not (tmp_path / "-").exists()


def test_nothing_to_report(store: RunningStore, roofwatch: Roofwatch, tmp_path: Path) -> None:
    """An empty selection: one sentence that names what there is, exit code 4, and no file."""
    nobody = roofwatch("report", "--store", store.address, "--since", "all", "--node", "gpu-99", "-o", "no.html")

    assert nobody.returncode == 4
    assert nobody.stderr == "roofwatch: no node 'gpu-99' here: there is gpu-07.\n"
    assert not (tmp_path / "no.html").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("trace.json",), 2, "--output"),
        (("trace.json", "--node", "gpu-07", "-o", "x.html"), 2, "--node is for a store"),
        (("trace.json", "--left", "version=v1", "-o", "x.html"), 2, "--left chooses windows of a store"),
        (("--here", "-o", "x.html"), 2, "--here says how a FILE is read"),
        (("--before", "v=1", "--after", "v=1", "-o", "x.html"), 2, "--before and --after mean the same windows"),
        (("none.json", "-o", "x.html"), 1, "none.json"),
    ],
)
def test_what_cannot_be(arguments: tuple[str, ...], code: int, said: str, roofwatch: Roofwatch, tmp_path: Path) -> None:
    """One sentence and no file."""
    done = roofwatch("report", *arguments)

    assert done.returncode == code
    assert said in done.stderr
    assert not list(tmp_path.glob("*.html"))


def test_a_folder_that_is_not_there(traces: Path, roofwatch: Roofwatch, tmp_path: Path) -> None:
    """The sentence names the file and says why."""
    done = roofwatch("report", str(traces / "kineto/cpu_only.json.gz"), "-o", "nowhere/x.html")

    assert done.returncode == 1
    assert done.stderr == "roofwatch: nowhere/x.html cannot be written: No such file or directory.\n"
    assert not (tmp_path / "nowhere").exists()


def of_version(version: str, factor: int) -> list[Window]:
    """Six windows of a version, whose GEMM takes so many times as long; its job told the lengths 30 and 70."""
    owner = process_of(pid=factor, labels={"version": version}, model="llama-7b")
    told = Padding(1, 100, 140, 5800, 9800, lengths=((30, 1), (70, 1)), shapes=((2, 70, 1),))
    kernels = (stat(GEMM, [100_000 * factor] * 2, roof_ns=50_000.0, ridge=RIDGE), *KERNELS[1:])
    start = 2_000_000_000_000_000_000
    return [
        window(f"{version}{i}", start + i * 10**9, process=owner, kernels=kernels, steps=1, padding=told)
        for i in range(6)
    ]


def test_two_sides_and_padding(roofwatch: Roofwatch, read: Read, tmp_path: Path) -> None:
    """Each section that was asked for is there, with the other commands' own words; the page draws without a word."""
    with running_store(tmp_path) as running:
        send(running.address, [segment_of([*of_version("v1", 1), *of_version("v2", 2)], 1)], replies=1)
        sides = ("--left", "version=v1", "--right", "version=v2", "--before", "version=v1", "--after", "version=v2")
        asked = ("report", "--store", running.address, "--since", "all", "-o", "x.html")

        done = roofwatch(*asked, *sides)
        nobody = roofwatch(*asked[:-1], "no.html", "--left", "version=v1", "--right", "version=v9")
        one = roofwatch(*asked[:-1], "no.html", "--before", "version=v1")

    assert done.returncode == 0, done.stderr
    reader = read(tmp_path / "x.html")
    assert reader.said == []
    titles = reader.page.locator("h2").all_inner_texts()
    assert titles[:3] == [
        "The two sides compared",
        "What became slower",
        "Where the time went",
    ]  # what was asked for first
    assert titles.index("Padding") < titles.index("Under the roof")
    leads = [told.split(":")[0] for told in reader.page.locator("main > .lead").all_inner_texts()]
    assert leads[1:] == ["Padding", "The two sides compared", "What became slower"]
    assert reader.page.locator("main > .lead").last.inner_text().startswith("What became slower: Found, of")
    headers = reader.page.locator("section", has_text="Kernels that changed").last.locator("thead th").all_inner_texts()
    assert headers[:3] == ["verdict", "kernel", "before"]  # the op is under the kernel, where it is another word
    main = reader.page.inner_text("main").replace("\u00a0", " ")
    assert "Used: 71.4 % of the tokens, 59.2 % of their squares" in main  # 100 ÷ 140, 5,800 ÷ 9,800
    assert reader.page.locator("#plot-sides .mark-rect path").count() > 4
    assert "1 slower by more than 3 %" in main, main[main.index("What became slower") :][:900]
    assert (nobody.returncode, one.returncode) == (4, 2)
    assert "version=v9: there is version=v1, version=v2" in nobody.stderr
    assert "--after is missing" in one.stderr
    assert not (tmp_path / "no.html").exists()


def test_several_device_models_are_told(roofwatch: Roofwatch, read: Read, tmp_path: Path) -> None:
    """An H100 and an MI300X in one report: a sentence at the top names both; of one there is none."""
    with running_store(tmp_path) as running:
        both = [window_of("a", [stat(GEMM, [500])]), window_of("b", [stat(GEMM, [500])], device=MI300)]
        send(running.address, [segment_of(both, 1)], replies=1)
        asked = ("report", "--store", running.address, "--since", "all", "-o")
        roofwatch(*asked, "both.html")
        roofwatch(*asked, "one.html", "--device", "h100")
    (told,) = read(tmp_path / "both.html").page.locator(".note").all_inner_texts()
    assert told.startswith(f"2 device models are in this, {MI300.model}, {H100.model}: ")
    assert read(tmp_path / "one.html").page.locator(".note").count() == 0


REAL = {
    "kineto/h100_Qwen_Qwen1.5-0.5B-Chat.json.gz": "NVIDIA H100 80GB HBM3",
    "kineto/mi300_xdit_sd35_triton2076.json.gz": "AMD Instinct MI300X",
    "ascend/pytorch_alexnet_910B_ddp2/text/level1/rank0_ascend_pt": "Ascend 910B2",
}


@pytest.mark.parametrize("name", REAL)
def test_real_files(name: str, traces: Path, roofwatch: Roofwatch, read: Read, tmp_path: Path) -> None:
    """Real traces of three vendors: exit code 0, a page below 5 MB that names its device and draws without a word."""
    done = roofwatch("report", str(traces / name), "-o", "x.html")

    assert done.returncode == 0, done.stderr
    page = tmp_path / "x.html"
    assert page.stat().st_size < 5 * MIB
    reader = read(page, width=390)
    assert reader.said == []
    assert reader.asked_for == [page.as_uri()]
    assert REAL[name] in reader.page.inner_text("header")
    assert reader.page.locator("#plot-roofline-0 .mark-symbol path").count() > 20
    assert reader.page.evaluate("document.documentElement.scrollWidth") == 390
    assert reader.page.locator(".sortable tbody tr").count() > 40


def test_a_damaged_file(traces: Path, roofwatch: Roofwatch, tmp_path: Path) -> None:
    """What can be read is reported, exit code 4, and page and stderr say what is missing."""
    done = roofwatch("report", str(traces / "kineto_broken/unescaped_quote_in_name.json.gz"), "-o", "x.html")

    assert done.returncode == 4
    problem = "1 damaged place at byte 2827: a quote inside a name."
    assert problem in done.stderr
    assert problem in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_help_needs_no_plots(roofwatch: Roofwatch) -> None:
    """--help of the command, with its examples."""
    done = roofwatch("report", "--help")

    assert done.returncode == 0
    assert "roofwatch report trace.json.gz -o report.html" in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines())
