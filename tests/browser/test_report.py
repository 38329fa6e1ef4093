"""The page as its readers meet it: pictures, tools, sizes of screen, print, no scripts, axe."""

import re
from pathlib import Path

import pytest

import diagnose
from diagnose.report.html import render

from .conftest import fits

pytestmark = pytest.mark.browser

FIXTURES = Path(__file__).parents[2] / "fixtures"
ALL = sorted(path.name for path in FIXTURES.iterdir())
SOME = [
    "torchrun-missing-rank", "two-hosts-collate-error", "healthy-transformers",
    "megatron-tp-blocks-dp", "pasted-device-assert", "k8s-memcg-oom", "generation-straggler",
]  # fmt: skip
# Where a picture has been painted there are pixels of several colours.
COLOURS = """(canvas) => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3]) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
  }
  return seen.size;
}"""
# Milliseconds from the begin of torchrun-missing-rank.
ONSET, MESSAGE, END = 210_853, 811_669, 874_019
_PAGES: dict[str, str] = {}


def page_of(name: str) -> str:
    if name not in _PAGES:
        job = diagnose.load(FIXTURES / name)
        _PAGES[name] = render(job, diagnose.diagnose(job), title=name)
    return _PAGES[name]


def many_ranks(count: int) -> str:
    """A job in which rank 77 does not come."""
    lines = []
    for rank in range(count):
        lines.append(f"[rank{rank}]: 2026-06-02 08:14:00,000 INFO trainer: step 9/100 loss 1.0")
        if rank != 77:
            lines.append(
                f"[rank{rank}]:[E602 08:25:12.100000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] "
                "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE,"
                " NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600100 milliseconds before "
                "timing out."
            )
    job = diagnose.load_text("\n".join(lines))
    return render(job, diagnose.diagnose(job))


@pytest.mark.parametrize("name", ALL)
def test_every_fixture_loads_without_complaint_and_fits(show, name) -> None:
    opened = show(page_of(name))
    for width in (1280, 400, 320):
        fits(opened.page, width)
    assert opened.harm() == []


@pytest.mark.parametrize("name", ALL)
def test_the_verdict_needs_no_scrolling(show, name) -> None:
    page = show(page_of(name)).page
    box = page.locator("#verdict h1").bounding_box()
    assert box["y"] > 0
    facts = page.locator("#verdict .facts div").first.bounding_box()
    assert facts["y"] + facts["height"] < 800


def test_why_opens_without_scripts(show) -> None:
    page = show(page_of("two-hosts-collate-error"), java_script_enabled=False).page
    table = page.locator("#why table").first
    assert not table.is_visible()
    page.locator("#why summary").click()
    assert table.is_visible()
    assert "highest_ranked" in table.inner_text()
    assert "n-01.log:6" in table.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_are_drawn(show, scheme) -> None:
    page = show(page_of("torchrun-missing-rank"), color_scheme=scheme).page
    for area in ("#lanes", "#graph", "#grid", "#steps"):
        page.locator(area).scroll_into_view_if_needed()
        canvas = page.locator(f"{area} canvas")
        canvas.wait_for()
        assert canvas.evaluate(COLOURS) > 3, area


def test_zoom(show) -> None:
    page = show(page_of("torchrun-missing-rank")).page
    view = lambda: [int(n) for n in page.get_attribute("#lanes", "data-view").split()]  # noqa: E731
    begin, end = view()
    page.click("#zoom-in")
    inner = view()
    assert begin < inner[0] < inner[1] < end
    assert (end - begin) // 2 == pytest.approx(inner[1] - inner[0], abs=2)
    page.click("#zoom-onset")
    near = view()
    assert near[0] < ONSET
    assert near[1] > MESSAGE
    page.click("#zoom-all")
    assert view()[0] <= 0
    assert view()[1] >= END
    before = view()
    page.click("#zoom-in")
    page.locator("#lanes .canvas").scroll_into_view_if_needed()
    box = page.locator("#lanes .canvas").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 50, steps=4)
    page.mouse.up()
    moved = view()
    assert before[0] < moved[0]


def test_hover_shows_the_line_and_a_click_leads_to_the_finding(show) -> None:
    opened = show(page_of("torchrun-missing-rank"))
    page = opened.page
    page.locator("#lanes").scroll_into_view_if_needed()
    box = page.locator("#lanes .canvas").bounding_box()
    begin, end = (int(n) for n in page.get_attribute("#lanes", "data-view").split())
    x = box["x"] + (MESSAGE - begin) / (end - begin) * (box["width"] - 10)
    y = box["y"] + 20 + 28 * 2.5  # rank 2
    page.mouse.move(x, y)
    tip = page.inner_text("#tip")
    assert "A rank's watchdog timed out waiting" in tip
    assert "rank 2 · 08:25:12 · console.log:48" in tip
    assert "OpType=ALLREDUCE" in tip
    page.mouse.click(x, y)
    found = page.locator("tr.found")
    assert "A rank's watchdog timed out waiting" in found.inner_text()
    assert found.evaluate("(row) => document.activeElement === row")
    assert opened.harm() == []


def test_search_roles_and_sorting_of_findings(show) -> None:
    page = show(page_of("torchrun-missing-rank")).page
    rows = page.locator("#finding-table tbody tr:visible")
    everything = rows.count()
    held = page.locator("#finding-table tbody tr").count()
    assert everything < held
    assert page.inner_text("#shown") == f"{everything} of {held} findings"
    page.fill("#find", "sigterm")
    assert rows.count() == 1
    assert "Sending process 955 closing signal SIGTERM" in rows.inner_text()
    page.fill("#find", "nothing like this")
    assert rows.count() == 0
    page.fill("#find", "")
    page.uncheck("input.role[value=aftermath]")
    assert rows.count() == everything - 5
    page.check("input.role[value=context]")
    page.click("th[data-sort=number] button")
    counts = [int(text) for text in rows.locator("td.number").all_inner_texts()]
    assert counts == sorted(counts)
    page.click("th[data-sort=number] button")
    assert page.get_attribute("th[data-sort=number]", "aria-sort") == "descending"
    counts = [int(text) for text in rows.locator("td.number").all_inner_texts()]
    assert counts == sorted(counts, reverse=True)


def test_a_class_of_ranks_opens_with_the_keyboard(show) -> None:
    opened = show(many_ranks(200))
    page = opened.page
    names = page.locator("#lanes .names > *")
    assert names.all_inner_texts()[:2] == ["rank 77", "ranks 0-76, 78-199"]
    button = page.locator("#lanes .names button").nth(1)
    button.focus()
    page.keyboard.press("Enter")
    assert page.locator("#lanes .names button").nth(1).get_attribute("aria-expanded") == "true"
    shown = names.all_inner_texts()
    assert shown[2:5] == ["rank 0", "rank 1", "rank 2"]
    assert len(shown) == 40  # the rows in view, not all
    page.locator("#lanes .scroller").evaluate("(e) => { e.scrollTop = e.scrollHeight; }")
    page.wait_for_selector("#lanes .names :text-is('rank 199')")
    assert opened.harm() == []


def test_theme_button(show) -> None:
    page = show(page_of("torchrun-missing-rank"), color_scheme="light").page
    paper = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")  # noqa: E731
    assert paper() == "rgb(255, 255, 255)"
    page.click("#theme")
    assert paper() == "rgb(21, 24, 27)"
    assert page.inner_text("#theme") == "Light"
    page.click("#theme")
    assert paper() == "rgb(255, 255, 255)"


def test_text_is_complete_without_scripts(show) -> None:
    page = show(page_of("torchrun-missing-rank"), java_script_enabled=False).page
    text = page.locator("body").inner_text()
    for wanted in (
        "A rank never reached the collective", "Rank 5: never reached the collective",
        "1.5 GPU-hours",
        "diagnose collect --triage",
        "Ranks 0-4, 6-7 wait for rank 5 in ALLREDUCE, sequence number 3391.",
        "Watchdog caught collective operation timeout", "console.log:48", "All findings",
    ):  # fmt: skip
        assert wanted in text, wanted
    assert "Zoom in" not in text
    rows = page.locator("#finding-table tbody tr")
    assert rows.count() > 20
    assert rows.filter(visible=False).count() == 0


def test_print_is_light_and_opens_what_is_folded(show, tmp_path) -> None:
    opened = show(page_of("torchrun-missing-rank"), color_scheme="dark")
    page = opened.page
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 27)"
    page.pdf(path=str(tmp_path / "report.pdf"), format="A4")
    assert len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "report.pdf").read_bytes())) < 15
    assert opened.harm() == []


def test_a_command_is_copied(show) -> None:
    opened = show(page_of("torchrun-missing-rank"))
    page = opened.page
    page.click(".copy >> nth=0")
    # The clipboard answers when it likes.
    page.wait_for_selector(".copy >> nth=0 >> text=/^(Copied|Selected)$/")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", SOME)
def test_axe_finds_nothing_serious(show, name, scheme) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = show(page_of(name), color_scheme=scheme).page
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    found = axe.Axe().run(page).response["violations"]
    grave = [item for item in found if item["impact"] in ("serious", "critical")]
    assert [
        (item["id"], [node["html"][:200] for node in item["nodes"][:3]]) for item in grave
    ] == []


def test_every_tool_can_be_reached_by_tab(show) -> None:
    page = show(page_of("torchrun-missing-rank")).page
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"theme", "zoom-in", "zoom-out", "zoom-all", "find", "done", "role"} <= reached
