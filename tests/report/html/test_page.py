import base64
import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import diagnose
from diagnose.catalog.schema import Run
from diagnose.diagnosis import Reason, RemedyStep
from diagnose.report.html import render
from diagnose.report.html.shell import embedded
from tests.sizes import few

from .jobs import ROOT, fixture, pasted, watchdog

FIXTURES = sorted(path.name for path in (ROOT / "fixtures").iterdir())
VENDOR = ROOT / "diagnose/report/html/vendor/echarts"
ALLOWED_URL = re.compile(r"https?://|//[a-z]+\.")


class Reader(HTMLParser):
    """Collects elements with their attributes, scripts, and visible text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: dict[str, list[str]] = {"script": [], "style": []}
        self.text: list[str] = []
        self.inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        (self.blocks.get(self.inside, self.text)).append(data)


def page(name: str) -> str:
    return render(*fixture(name))


@pytest.mark.parametrize("name", few(FIXTURES, 12))
def test_every_fixture_renders_with_its_verdict_and_evidence(name: str) -> None:
    _, diagnosis = fixture(name)
    text = " ".join(" ".join(Reader(page(name)).text).split())
    assert " ".join(diagnosis.root_cause.title.split()) in text
    for step in diagnosis.remedies:
        assert " ".join(step.do.split())[:60] in text
    for item in diagnosis.evidence[:1]:
        assert item.source in text


def test_why_is_folded_and_escaped() -> None:
    job, diagnosis = fixture("torchrun-missing-rank")
    text = '<script>alert("x")</script> HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz'
    hostile = Reason("rival", "lost", "net.socket", "seen_late", text, beaten_by="hw.gpu")
    shown = render(job, replace(diagnosis, reasons=[*diagnosis.reasons, hostile]))
    section = shown.partition('<section id="why"')[2].partition("</section>")[0]
    assert "<details>" in section
    assert "<summary>" in section
    assert " ".join(Reader(section).text).count("desync.missing_rank") >= 1
    assert "&lt;script&gt;alert" in section
    assert "hf_abcdef" not in section
    assert "<script" not in section
    assert '<section id="why"' not in render(job, replace(diagnosis, reasons=[]))


def test_the_traceback_has_own_frames_in_full_and_the_others_folded() -> None:
    text = render(*fixture("lab-key-error"))
    section = text[text.index('<section id="traceback"') :].partition("</section>")[0]
    rows = re.findall(r'<div class="row ([\w ]*)"><span>(.*?)</span>', section)
    own = [shown for look, shown in rows if "own" in look]
    assert own[-2].endswith("train.py:148 in midway")
    assert [shown for look, shown in rows if "marked" in look] == own[-2:]
    assert section.count("<details>") == section.count(" library frame")
    assert "<strong>KeyError: &#39;labels&#39;</strong>" in section


def test_the_page_is_the_same_every_time() -> None:
    assert page("torchrun-missing-rank") == page("torchrun-missing-rank")


def test_nothing_is_requested_and_the_policy_names_what_is_inside() -> None:
    reader = Reader(page("torchrun-missing-rank"))
    for tag, attributes in reader.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form", "svg")
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        assert "style" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    policy = next(
        attributes["content"]
        for tag, attributes in reader.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    data, *scripts = reader.blocks["script"]
    assert json.loads(data)["lanes"]
    for block in [*scripts, *reader.blocks["style"]]:
        digest = base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_a_job_without_anything_to_draw_carries_no_library() -> None:
    text = render(
        *pasted(""" hello
""")
    )
    assert "Apache ECharts" not in text
    assert len(text) < 100_000


def test_data_cannot_end_its_script() -> None:
    hostile = "</script><!--<script>&\u2028\u2029'\""
    text = embedded({"text": hostile})
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == {"text": hostile}


def test_title_and_redaction() -> None:
    token = "hf_" + "a1B2" * 8
    job, diagnosis = pasted(f"{watchdog(1)}\n[rank0]: ValueError: bad token {token} for run 7\n")
    masked = render(job, diagnosis, title=f"run <7> {token}")
    assert token not in masked
    assert "run &lt;7&gt; [" in masked
    assert "Secrets with a known format are masked" in masked
    plain = render(job, diagnosis, redact=False)
    assert token in plain
    assert "Nothing was masked" in plain


def test_context_lines_stand_around_the_evidence() -> None:
    text = page("torchrun-missing-rank")
    assert "14/1218 [02:48&lt;4:00:48, 12.00s/it]" in text
    assert '<div class="row marked"><span class="at">48</span>' in text


def test_eight_ranks_are_small(tmp_path: Path) -> None:
    for rank in range(8):
        (tmp_path / f"rank_{rank}.log").write_text(watchdog(rank) + "\n")
    job = diagnose.load(tmp_path)
    assert len(render(job, diagnose.diagnose(job)).encode()) < 1_500_000


def test_the_library_comes_with_its_licence_and_recipe() -> None:
    assert "Apache License" in (VENDOR / "LICENSE").read_text()
    assert "Apache ECharts" in (VENDOR / "NOTICE").read_text()
    assert {path.name for path in (VENDOR / "licenses").iterdir()} == {
        "LICENSE-d3",
        "LICENSE-zrender",
    }
    recipe = json.loads((VENDOR / "package.json").read_text())
    assert recipe["dependencies"] == {"echarts": "6.1.0"}
    built = (VENDOR / "echarts.slim.js").read_text()
    assert built.startswith("/*! Part of Apache ECharts 6.1.0")
    assert "</script" not in built
    assert "sourceMappingURL" not in built


def test_what_to_run_is_told_apart() -> None:
    step = RemedyStep(
        "fix",
        "Do it",
        "",
        [
            Run("shell", ["ls", "pwd"]),
            Run("python", ["if x:", "    y()"]),
            Run("note", ["ask <them>"], "aws"),
        ],
        "changes_state",
        "admin",
    )
    job, diagnosis = fixture("torchrun-missing-rank")
    html = render(job, replace(diagnosis, remedies=[step]))
    assert '<p class="caution">Needs an administrator. Changes state.</p>' in html
    assert 'aria-label="Command of step 1">ls\npwd</pre>' in html
    assert 'aria-label="Python of step 1">if x:\n    y()</pre>' in html
    assert "For aws: ask &lt;them&gt;." in html


@pytest.mark.slow
def test_a_page_needs_neither_pandas_nor_numpy_nor_rich() -> None:
    script = (
        "import sys, diagnose\n"
        "from diagnose.report.html import render\n"
        f"job = diagnose.load_text({watchdog(0)!r})\n"
        "assert render(job, diagnose.diagnose(job)).startswith('<!doctype')\n"
        "print({'pandas', 'numpy', 'rich'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
