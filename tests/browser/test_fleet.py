"""The page in a real browser: no complaint, fits small screens, sorts and searches, axe."""

import pytest

pytest.importorskip("playwright.sync_api", reason="needs playwright")

from fleet import samples
from fleet.frames import typed

from diagnose.fleet import summarise
from diagnose.report.fleet.html import render

from .conftest import fits

pytestmark = pytest.mark.browser


def page_of(name: str, by: str = "cause") -> str:
    return render(summarise(typed(getattr(samples, name)()), by=by), links="", title="nightly")


@pytest.mark.parametrize("name", ["small", "hostile"])
@pytest.mark.parametrize("by", ["cause", "host"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_loads_without_complaint_and_fits(show, name, by, scheme) -> None:
    opened = show(page_of(name, by), color_scheme=scheme)
    for width in (1280, 400, 320):
        fits(opened.page, width)
    assert opened.harm() == []


def test_a_table_sorts_both_ways_and_is_searched(show) -> None:
    page = show(page_of("small", "host")).page
    first = page.locator("#groups-table tbody tr td strong").first.inner_text
    assert first() == "node004"
    head = page.locator("#groups-table thead th", has_text="Affected")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert first() == "node004"
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert first() == "node006"
    page.locator("#groups-table thead button", has_text="Host").click()
    assert first() == "node001"
    page.fill("input[data-table=groups-table]", "node00")
    assert page.locator("#groups-table tbody tr:visible").count() == 9
    assert page.locator("[data-shown=groups-table]").inner_text() == "9 of 12"


def test_pictures_have_their_size(show) -> None:
    page = show(page_of("small")).page
    boxes = page.locator("#trend rect").evaluate_all("a => a.map(r => r.getBoundingClientRect())")
    assert len(boxes) == 9
    assert all(box["width"] > 50 and box["height"] > 10 for box in boxes)
    suspect = page.locator("#nodes circle.suspect").bounding_box()
    others = page.locator("#nodes circle:not(.suspect)").all()
    assert all(suspect["y"] < dot.bounding_box()["y"] - 50 for dot in others)


def test_without_scripts_all_is_there(show) -> None:
    page = show(page_of("small"), java_script_enabled=False).page
    assert page.locator("#theme").is_hidden()
    assert page.locator("#trend svg").is_visible()
    assert page.locator("#causes-table tbody tr").count() == 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe(show, scheme) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = show(page_of("small", "host"), color_scheme=scheme).page
    # The policy of the page forbids what axe adds; the driver's own evaluation is not bound by it.
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    results = axe.Axe().run(page)
    assert results.violations_count == 0, results.generate_report()
