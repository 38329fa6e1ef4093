"""`diagnose serve` in a real browser: paste, drop, cancel, search, compare, delete, dark, phone."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="needs playwright")

from serve.running import LOG, Running, running
from serve.test_desk import Slow

from .conftest import WATCH, Opened, fits
from .corpus import ALL

pytestmark = pytest.mark.browser

FIXTURES = Path(__file__).parents[2] / "fixtures"
HEADLINE = "A rank never reached the collective (reason not logged)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("serve")) as found:
        yield found


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Opened]]:
    """`visit(server, path, **options of the context)`: opens it as a new visitor."""
    contexts = []

    def opener(
        server: Running, path: str = "/", *, width: int = 1280, height: int = 800, **options: Any
    ) -> Opened:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        context.add_init_script(WATCH)
        contexts.append(context)
        opened = Opened(context.new_page())
        page, problems = opened.page, opened.problems
        page.on("console", lambda m: problems.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda d: (problems.append(f"dialog {d.message}"), d.dismiss()))
        page.on(
            "request",
            lambda r: None if r.url.startswith(server.url) else problems.append(r.url),
        )
        page.goto(server.url + path)
        return opened

    yield opener
    for context in contexts:
        context.close()


def drop(page: Any, paths: list[Path]) -> None:
    """Drop files or folders as a person does."""
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        event = {"type": kind, "x": 300, "y": 300, "data": data}
        session.send("Input.dispatchDragEvent", event)


def test_a_paste(server: Running, visit: Callable[..., Opened]) -> None:
    opened = visit(server)
    page = opened.page
    page.fill("#text", LOG)
    page.fill("#title", "job 81922")
    page.click("#send")
    page.wait_for_selector("#headline")
    assert page.inner_text("#headline") == HEADLINE
    assert re.fullmatch(rf"{server.url}/d/[0-9a-z]{{16}}", page.url)
    page.wait_for_selector("html[data-ready]")
    for name, start in (("JSON", "{"), ("Markdown", "### Hung"), ("Masked input", LOG[:30])):
        page.click(f"text={name}")
        assert page.inner_text("body").startswith(start)
        page.go_back()
        page.wait_for_selector("#headline")
    assert opened.harm() == []


def test_a_paste_by_keyboard(server: Running, visit: Callable[..., Opened]) -> None:
    page = visit(server).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.focus("#text")
    page.keyboard.insert_text(LOG)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#headline")


def test_a_paste_without_scripts(server: Running, visit: Callable[..., Opened]) -> None:
    page = visit(server, java_script_enabled=False).page
    assert not page.is_visible("#folder")
    page.fill("#text", LOG)
    page.set_input_files("#files", FIXTURES / "nccl-op-mismatch" / "rank0.log")
    page.click("#send")
    page.wait_for_selector("#headline", timeout=20_000)
    assert "rank0.log" in page.inner_text("#appendix")


def test_an_empty_form_asks_for_something(server: Running, visit: Callable[..., Opened]) -> None:
    page = visit(server).page
    page.click("#send")
    assert page.inner_text("#problem").startswith("There is nothing to diagnose")


def test_a_folder_is_dropped(server: Running, visit: Callable[..., Opened]) -> None:
    opened = visit(server)
    page = opened.page
    drop(page, [FIXTURES / "nccl-op-mismatch"])
    page.wait_for_selector("#chosen li")
    shown = page.locator("#chosen .what").all_inner_texts()
    assert "nccl-op-mismatch/rank0.log" in shown
    page.click('#chosen button[aria-label="Remove nccl-op-mismatch/expected.yaml"]')
    page.click("#send")
    page.wait_for_selector("#headline")
    names = page.locator("#appendix").inner_text()
    assert "rank0.log" in names
    assert "rank3.log" in names
    assert opened.harm() == []


def test_an_archive_is_dropped(
    server: Running, visit: Callable[..., Opened], tmp_path: Path
) -> None:
    archive = tmp_path / "job.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(FIXTURES / "torchrun-missing-rank", "job")
    page = visit(server).page
    drop(page, [archive])
    page.wait_for_selector("#chosen li")
    page.click("#send")
    page.wait_for_selector("#headline")
    assert page.inner_text("#headline") == HEADLINE


def test_an_upload_is_cancelled(
    server: Running, visit: Callable[..., Opened], tmp_path: Path
) -> None:
    large = tmp_path / "large.log"
    large.write_text(LOG * 400)
    page = visit(server).page
    session = page.context.new_cdp_session(page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 200_000}
    session.send("Network.emulateNetworkConditions", slow)
    before = server.served.store.usage()[0]
    page.set_input_files("#files", large)
    page.click("#send")
    page.wait_for_selector("#stage:has-text('Uploading,')")
    page.click("#cancel")
    assert page.is_visible("#text")
    assert page.locator("#chosen li").count() == 1
    assert server.served.store.usage()[0] == before


def test_waiting_and_cancelling_a_job(
    visit: Callable[..., Opened], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("diagnose.serve.desk.Worker", Slow)
    monkeypatch.setattr("diagnose.serve.desk.check", lambda *_: None)
    monkeypatch.setattr("diagnose.serve.pages._WAIT", 0.05)
    monkeypatch.setattr("diagnose.serve.run.STOP_SECONDS", 0.05)
    Slow.gate.clear()
    with running(tmp_path, workers=1) as server:
        first, second = visit(server).page, visit(server).page
        for page in (first, second):
            page.fill("#text", LOG)
            page.click("#send")
            page.wait_for_selector("#waiting")
        first.wait_for_selector("#stage:has-text('Reading, log 2 of 2, 3 MiB of 4 MiB')")
        assert second.inner_text("#stage") == "Waiting: 1 in the queue"
        first.click("text=Cancel")
        first.wait_for_selector("#text")
        second.wait_for_selector("#stage:has-text('Reading')")
        third = visit(server).page
        third.set_input_files("#files", FIXTURES / "nccl-op-mismatch" / "rank0.log")
        third.click("#send")
        third.wait_for_selector("#stage:has-text('Waiting')")
        third.click("#cancel")
        third.wait_for_selector("#text", state="visible")
        for page in (first, second, third):
            page.goto("about:blank")


def test_search_compare_and_delete(server: Running, visit: Callable[..., Opened]) -> None:
    server.post(LOG, title="alpha")
    server.post((FIXTURES / "megatron-xid79" / "train.log").read_text(), title="beta")
    opened = visit(server, "/all")
    page = opened.page
    page.fill("#q", "alpha")
    page.keyboard.press("Enter")
    page.wait_for_url("**/all?q=alpha")
    assert page.locator(".results li").count() == 1
    page.goto(f"{server.url}/all")
    assert page.is_disabled("#compare")
    page.locator(".results li", has_text="alpha").locator("input").check()
    page.locator(".results li", has_text="beta").locator("input").check()
    page.click("#compare")
    page.wait_for_selector(".sides")
    row = page.locator("tr.differs", has_text="Culprits").inner_text()
    assert "rank 5" in row
    assert "rank 11" in row
    page.goto(f"{server.url}/all?q=alpha")
    page.click("text=Delete")
    page.click("button.main")
    page.wait_for_url("**/all")
    assert page.locator(".results li", has_text="alpha").count() == 0
    assert opened.harm() == []


def test_dark_is_remembered(server: Running, visit: Callable[..., Opened]) -> None:
    page = visit(server).page
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.click("#theme")
    dark = page.evaluate(colour)
    assert dark != light
    page.goto(f"{server.url}/all")
    assert page.evaluate(colour) == dark
    page.goto(f"{server.url}/d/{server.post(LOG)['id']}")
    assert page.evaluate(colour) == dark


PATHS = ["/", "/all", "/all?q=nothing-has-this", "/d/{done}", "/d/{done}/delete", "/d/{failed}",
         "/compare?id={done}&id={other}", "/all?with={done}", "/d/0000000000000000"]  # fmt: skip


@pytest.fixture(scope="module")
def names(server: Running) -> dict[str, str]:
    return {
        "done": server.post(LOG, title="a title that is as long as titles get, or almost")["id"],
        "other": server.post("[rank0]: step 1\n" + "x" * 300)["id"],
        "failed": server.post("\n \n")["id"],
    }


@pytest.mark.parametrize("path", PATHS)
def test_every_page_fits_a_phone(
    server: Running, visit: Callable[..., Opened], names: dict[str, str], path: str
) -> None:
    page = visit(server, path.format(**names), width=380, height=800).page
    for width in (380, 320):
        fits(page, width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PATHS)
def test_axe_finds_nothing_serious(
    server: Running, visit: Callable[..., Opened], names: dict[str, str], path: str, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = visit(server, path.format(**names), color_scheme=scheme, bypass_csp=True).page
    found = axe.Axe().run(page).response["violations"]
    serious = [rule for rule in found if rule["impact"] in ("serious", "critical")]
    assert [(rule["id"], rule["nodes"][0]["html"]) for rule in serious] == []


def test_hostile_text_stays_text(server: Running, visit: Callable[..., Opened]) -> None:
    """The corpus in lines, as an exception, a title and the name of a file."""
    short = [text for text in ALL if len(text) < 1000]
    log = "\n".join(f"[rank{n % 8}]: ValueError: {text}" for n, text in enumerate(short))
    ids = [server.post(log, title=short[0])["id"]]
    for number in range(0, len(short), 12):
        ids.append(
            server.post(f"[rank0]: ValueError: {short[number]}\n", title=short[number])["id"]
        )
    files = [("files", (text, LOG.encode())) for text in short[:20] if "\x00" not in text]
    reply = server.http.post("/api/v1/diagnoses", files=files, params={"wait": "30"})
    ids.append(reply.json()["id"])
    opened = visit(server, "/all")
    for path in ["/", *(f"/d/{id_}" for id_ in ids), f"/d/{ids[0]}/json", f"/d/{ids[0]}/markdown",
                 f"/d/{ids[0]}/input", f"/compare?id={ids[0]}&id={ids[1]}"]:  # fmt: skip
        opened.page.goto(server.url + path)
        opened.page.wait_for_load_state()
        assert opened.harm() == [], path


def test_another_site_can_neither_read_nor_write(
    server: Running, visit: Callable[..., Opened]
) -> None:
    """A page of another origin sends a form and a request; a frame stays empty."""
    before = server.served.store.usage()[0]
    evil = server.url.replace("127.0.0.1", "localhost")  # another origin, and another site
    page = visit(server).page
    page.goto(f"{evil}/healthz")
    status = page.evaluate(
        """(url) => fetch(url + "/api/v1/diagnoses", {method: "POST", mode: "no-cors", body: "x",
             headers: {"content-type": "text/plain"}}).then((r) => r.type, () => "no")""",
        server.url,
    )
    assert status in ("opaque", "no")
    assert server.served.store.usage()[0] == before
