"""Takes the pictures of this folder: `python docs/screenshots.py`; needs the group `browser`."""

import os
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import diagnose
from diagnose.report.html import render

HERE = Path(__file__).parent
# Fixture, file, colour scheme, height in pixels.
PICTURES = [("torchrun-missing-rank", "report-hang.png", "light", 2250)]


def main() -> None:
    """Render, open and photograph each of PICTURES."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, file, scheme, height in PICTURES:
            job = diagnose.load(HERE.parent / "fixtures" / name)
            page = Path(folder) / f"{name}.html"
            page.write_text(render(job, diagnose.diagnose(job), title=name), encoding="utf-8")
            size = {"width": 1180, "height": height}
            tab = browser.new_page(viewport=size, color_scheme=scheme)
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready]")
            tab.wait_for_timeout(500)  # pictures near the screen are drawn a moment later
            tab.screenshot(path=str(HERE / file))
        browser.close()


if __name__ == "__main__":
    main()
