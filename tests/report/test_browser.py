"""The page in a headless Chromium: it draws, says nothing, asks for nothing, and can be read by everybody."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import Page
from report_scene import KERNELS, MakePage, Read, answer_of, window
from store_builders import GEMM, stat

from roofwatch.cli.report import palette
from roofwatch.model.record import Signature

HOUR = 3_600_000_000_000
MIB = 1 << 20
AXE = next(Path(axe_playwright_python.__file__).parent.rglob("axe.min.js"))
DOT = "#plot-roofline-0 .mark-symbol path"


@pytest.fixture
def full_answer(scene_answer: dict[str, Any]) -> dict[str, Any]:
    """The scene's answer with two devices and a morning of moments, so that every section is there."""
    answer = copy.deepcopy(scene_answer)
    (device,) = answer["by_device"]
    answer["by_device"] = [{**device, "node": "gpu-07", "index": i} for i in range(2)]
    shares = {key: value for key, value in answer["summary"].items() if key.endswith("_share")}
    start = 2_000_000_000_000_000_000
    answer["moments"]["rows"] = [
        {"start_unix_ns": start + i * HOUR, "windows": 3, "est_span_ns": 10, **shares} for i in range(4)
    ]
    answer["moments"]["bucket_ns"] = HOUR
    answer["cost"] = {"windows": 2, "of_windows": 3, "lost_ns": 12, "represented_ns": 10_000, "share": 0.0012}
    return answer


def test_it_draws_and_says_and_asks_for_nothing(full_answer: dict[str, Any], make_page: MakePage, read: Read) -> None:
    """Every plot has its marks; the console is silent, and no request leaves but the file's own."""
    path = make_page(full_answer)

    reader = read(path)

    places = reader.page.eval_on_selector_all(".plot", "all => all.map(one => [one.id, one.dataset.drawn])")
    assert places == [["plot-where", "yes"], ["plot-moments", "yes"], ["plot-roofline-0", "yes"]]
    assert reader.page.locator(DOT).count() == 2
    assert reader.page.locator("#plot-where .mark-rect path").count() == 5 + 2 * 4  # parts; a device's kernels are one
    assert reader.page.locator("#plot-moments .mark-rect path").count() == 4 * 3  # exposed, and two causes
    assert reader.said == []
    assert reader.asked_for == [path.as_uri()]
    assert path.stat().st_size < 5 * MIB


def test_hovering_shows_the_row(scene_answer: dict[str, Any], make_page: MakePage, read: Read) -> None:
    """Over the largest dot: what report_scene works out for the GEMM."""
    page = read(make_page(scene_answer)).page

    page.locator(DOT).first.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")

    told = dict(line.split("\t") for line in page.inner_text("#vg-tooltip-element").splitlines())
    assert told["kernel"] == "nvjet_tst_128x256"
    assert told["op"] == "aten::addmm"
    assert told["shapes"] == "8×512·512×512"
    assert (told["time"], told["calls"], told["mean"]) == ("200 µs", "2", "100 µs")
    assert (told["of its roof"], told["winnable"]) == ("50 %", "100 µs")
    assert (told["FLOP/byte"], told["reached"]) == ("7.76", "41.9 GFLOP/s")


def test_a_kind_can_stand_out(scene_answer: dict[str, Any], make_page: MakePage, read: Read) -> None:
    """Pressing a kind fades the dots of the others; pressing it again brings them back."""
    page = read(make_page(scene_answer)).page

    def opacities() -> list[str]:
        return page.eval_on_selector_all(DOT, "all => all.map(one => one.getAttribute('opacity'))")  # type: ignore[no-any-return]

    button = page.locator(".legend button", has_text="norm")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert opacities() == ["0.12", "0.85"]
    button.click()
    assert opacities() == ["0.85", "0.85"]


def test_the_table_sorts(scene_answer: dict[str, Any], make_page: MakePage, read: Read) -> None:
    """Figures largest first, words from A; unknown always last; the header says which way."""
    page = read(make_page(scene_answer)).page

    def order() -> list[str]:
        return page.locator("#kernels ~ .scroll tbody summary").all_inner_texts()

    assert order() == ["nvjet_tst_128x256", "layer_norm", "Memcpy HtoD"]
    header = page.locator(".sortable thead th", has_text="mean")
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    header.locator("button").click()
    assert order() == ["Memcpy HtoD", "nvjet_tst_128x256", "layer_norm"]
    page.locator(".sortable thead button", has_text="kernel").click()
    assert order() == ["layer_norm", "Memcpy HtoD", "nvjet_tst_128x256"]
    page.locator(".sortable thead button", has_text="winnable").click()
    assert order()[0] == "nvjet_tst_128x256"
    page.locator(".sortable thead button", has_text="winnable").click()
    assert order()[0] == "nvjet_tst_128x256"


def test_anybody_can_read_it(full_answer: dict[str, Any], make_page: MakePage, read: Read) -> None:
    """No rule of axe-core is broken, in the light or in the dark; plots have colours that test_page measures."""
    page = read(make_page(full_answer, notes=["a note"], command="roofwatch diagnose"), bypass_csp=True).page
    page.add_script_tag(content=AXE.read_text(encoding="utf-8"))

    assert broken(page, "") == []
    assert colours_of(page) == (rgb(palette.LIGHT["bg"]), {rgb(palette.LIGHT[ink]) for ink in ("ink", "soft")})
    page.emulate_media(color_scheme="dark")
    assert broken(page, "{runOnly: ['color-contrast']}") == []
    assert colours_of(page) == (rgb(palette.DARK["bg"]), {rgb(palette.DARK[ink]) for ink in ("ink", "soft")})


def broken(page: Page, options: str) -> list[list[str]]:
    """Rules of axe-core that the page breaks, each with an element that does."""
    script = f"axe.run({options}).then(all => all.violations.map(one => [one.id, one.nodes[0].html]))"
    return page.evaluate(script)  # type: ignore[no-any-return]


def colours_of(page: Page) -> tuple[str, set[str]]:
    """The page's ground, and what the texts of its plots are painted with."""
    ground, inks = page.evaluate(
        """() => [getComputedStyle(document.body).backgroundColor,
            [...document.querySelectorAll('.plot text')].map(one => getComputedStyle(one).fill)]"""
    )
    return ground, set(inks)


def rgb(colour: str) -> str:
    """As a browser tells it."""
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


@pytest.mark.parametrize("width", [390, 1440])
def test_names_of_roofs_stand_apart(scene_answer: dict[str, Any], make_page: MakePage, read: Read, width: int) -> None:
    """Of 989, 300, 110 and 40 TFLOP/s and 3.35 TB/s: the slope's finds room between the levels'."""
    levels = {"bf16/matrix": 989e12, "tf32/matrix": 300e12, "fp32/matrix": 110e12, "fp32/vector": 40e12}
    (device,) = scene_answer["devices"]
    device["peaks"]["flops"] = {name: {"value": value, "source": "datasheet"} for name, value in levels.items()}
    device["peaks"]["bandwidth"] = {"value": 3.35e12, "source": "datasheet"}
    dot = scene_answer["signatures"]["dots"][0]
    scene_answer["signatures"]["dots"] = [{**dot, "ridge": value / 3.35e12} for value in levels.values()]
    page = read(make_page(scene_answer), width=width).page

    texts = page.eval_on_selector_all(
        "#plot-roofline-0 .mark-text text", "all => all.map(one => [one.textContent, one.getBoundingClientRect()])"
    )
    boxes = {name: box for name, box in texts if name.endswith("/s") and name != "FLOP/s"}  # an axis has that
    assert len(boxes) == 5
    for (name, one), (other_name, other) in itertools.combinations(boxes.items(), 2):
        apart = one["right"] <= other["left"] or other["right"] <= one["left"] or (
            one["bottom"] <= other["top"] + 1 or other["bottom"] <= one["top"] + 1
        )  # fmt: skip
        assert apart, (name, other_name)


def test_a_phone(full_answer: dict[str, Any], make_page: MakePage, read: Read) -> None:
    """390 pixels: nothing scrolls sideways; a row is a paragraph whose figures follow their headers; plots fit."""
    page = read(make_page(full_answer), width=390).page

    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for right in page.eval_on_selector_all(
        ".scroll :is(th, td)", "all => all.map(one => one.getBoundingClientRect().right)"
    ):
        assert right <= 390
    figure = page.locator(".sortable td[data-h=winnable]").first
    assert figure.evaluate("one => getComputedStyle(one, '::before').content").startswith('"winnable')
    name, time = (page.locator(".sortable tbody tr").first.locator(one).bounding_box() for one in ("th", "td >> nth=1"))
    assert name is not None
    assert time is not None
    assert name["y"] + name["height"] <= time["y"] + 1  # a name, and its figures under it
    page.locator(".sortable thead button", has_text="mean").click()  # and it can be sorted still
    assert page.locator(".sortable th[aria-sort]").inner_text().startswith("mean")
    for svg in page.locator(".plot svg").all():
        assert svg.bounding_box()["width"] <= 390  # type: ignore[index]


def test_hostile_names_are_only_shown(make_page: MakePage, read: Read) -> None:
    """Markup, quotes and 64 KB in names, in the table, the plot and on hovering; none of it runs, none is lost."""
    attack = "<script>window.hacked=1</script><img src=x onerror=window.hacked=2>\"'`${window.hacked=3}"
    names = [attack, f"{attack}{'x' * 65_536}"]
    kernels = [
        stat(replace(GEMM, kernel=name, op=name, module=name), [1000 * (3 - i)], roof_ns=500.0, ridge=295.0)
        for i, name in enumerate(names)
    ]
    answer = answer_of(replace(window(), kernels=(*KERNELS, *kernels)))
    path = make_page(answer, title=[attack, "javascript:alert(1)"], notes=[attack], command=attack)

    reader = read(path)
    reader.page.locator(DOT).last.hover()
    reader.page.wait_for_selector("#vg-tooltip-element.visible")

    assert reader.page.evaluate("window.hacked") is None
    assert reader.said == []
    assert reader.asked_for == [path.as_uri()]
    assert attack in reader.page.inner_text("h1")
    assert reader.page.locator("img").count() == 0
    assert path.stat().st_size < 5 * MIB


def test_a_window_with_nothing_classified(make_page: MakePage, read: Read) -> None:
    """No dot and no roof: a sentence instead of an empty plot, and all the rest is there."""
    unknown = [stat(Signature(kernel=name, kind=GEMM.kind), [1000]) for name in ("a", "b")]
    reader = read(make_page(answer_of(replace(window(), kernels=tuple(unknown)))))

    assert "None of 2 signatures has a place in the plot" in reader.page.inner_text("main")
    assert reader.page.locator(".sortable tbody tr").count() == 2
    assert reader.said == []


def test_it_prints(full_answer: dict[str, Any], make_page: MakePage, read: Read) -> None:
    """On paper it is light, without what can only be pressed, and no wider than the sheet."""
    page = read(make_page(full_answer), scheme="dark", width=720).page

    page.emulate_media(media="print", color_scheme="dark")

    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
    assert page.pdf().startswith(b"%PDF")


def test_many_signatures_stay_small(make_page: MakePage, read: Read) -> None:
    """2,100 signatures: the plot has the 2,000 with most time, says so, and the page stays below 5 MB."""
    names = [f"kernel_{i}{'_with_a_name' * 20}" for i in range(2100)]
    kernels = [stat(replace(GEMM, kernel=name), [1000 + i], roof_ns=500.0, ridge=295.0) for i, name in enumerate(names)]
    path = make_page(answer_of(replace(window(), kernels=tuple(kernels)), limit=0))

    reader = read(path)

    assert path.stat().st_size < 5 * MIB
    assert reader.page.locator(DOT).count() == 2000
    assert "100 more, with least time" in reader.page.inner_text("main")
    assert reader.page.locator(".sortable tbody tr").count() == 500
