"""A real Chromium that opens pages from disk, as a reader does, and tells everything it minded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")

# A sandbox needs rights that a container seldom has; the rest keeps the browser from phoning home.
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation",
  (event) => window.violations.push(event.violatedDirective + " " + event.blockedURI));
"""


@dataclass
class Opened:
    """A page in the browser; `problems` are console errors, exceptions, dialogs and requests."""

    page: Any
    problems: list[str] = field(default_factory=list)

    def harm(self) -> list[str]:
        """All that must not have happened."""
        harm = [*self.problems, *self.page.evaluate("window.violations")]
        return harm + ["hacked"] * bool(self.page.evaluate("window.hacked !== undefined"))


def fits(page: Any, width: int) -> None:
    """The page needs no scrolling sideways. Pictures are drawn again some frames after a change of
    size, which takes its time on a loaded machine: hence it waits."""
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """`show(html, **options of the context)`: opens it and waits until its scripts are done."""
    contexts = []

    def opener(html: str, *, width: int = 1280, height: int = 800, **options: Any) -> Opened:
        path = tmp_path / f"report{len(contexts)}.html"
        path.write_text(html, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        context.add_init_script(WATCH)
        contexts.append(context)
        page = context.new_page()
        opened = Opened(page)
        problems = opened.problems
        page.on("console", lambda m: problems.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda d: (problems.append(f"dialog {d.message}"), d.dismiss()))
        page.on(
            "request",
            lambda r: None if r.url.startswith(path.as_uri()) else problems.append(r.url),
        )
        page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready]", timeout=30_000)
        return opened

    yield opener
    for context in contexts:
        context.close()
