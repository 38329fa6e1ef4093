"""Nothing that stands in a log, a file name or a host name is ever more than text."""

import json
import re
from dataclasses import fields, is_dataclass, replace
from itertools import cycle

import pytest

import diagnose
from diagnose.diagnosis import Alternative, WaitGraph
from diagnose.infer.collectives.parallelism import Axis, Topology
from diagnose.report.html import render

from .corpus import ALL, CHARACTERS, RUN

pytestmark = pytest.mark.browser

WATCHDOG = (
    "[rank{rank}]:[E602 08:25:12.100000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=7, OpType={op}, NumelIn=4, NumelOut=4, "
    "Timeout(ms)=600000) ran for 600100 milliseconds before timing out."
)
EXPECTED = {"script": 3, "style": 1}


# These hold one of a few words; a log has no part in them.
FIXED = (
    "verdict", "confidence", "kind", "when", "risk", "needs", "advice", "longer_timeout_helps",
    "time", "step", "outcome", "tier",
)  # fmt: skip


def with_every_text(value, texts, name=""):
    """A diagnosis in which every string that may come from a log is hostile."""
    if isinstance(value, str):
        return value if name in FIXED else next(texts)
    if isinstance(value, list):
        return [with_every_text(item, texts, name) for item in value]
    if isinstance(value, dict):
        return {next(texts): next(texts) for _ in value}
    if is_dataclass(value):
        changes = {
            f.name: with_every_text(getattr(value, f.name), texts, f.name) for f in fields(value)
        }
        return replace(value, **changes)
    return value


def harmless(opened) -> None:
    """Use the page as a reader would, then look what happened."""
    page = opened.page
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    for box in page.query_selector_all("input.role"):
        box.check()
    page.mouse.wheel(0, 500)
    for area in ("#lanes .canvas", "#graph", "#grid", "#steps"):
        element = page.query_selector(area)
        box = element.bounding_box() if element else None
        if box is None:
            continue
        element.scroll_into_view_if_needed()
        box = element.bounding_box()
        for across in range(10, int(box["width"]), 60):
            page.mouse.move(box["x"] + across, box["y"] + min(60, box["height"] / 2))
    page.emulate_media(media="print")
    page.emulate_media(media="screen")
    assert opened.harm() == []
    found = page.evaluate(
        "[...document.querySelectorAll('script,style,img,svg,math,iframe,object,embed,link,base,"
        "form,video,audio,marquee,dialog,x,template')].map((e) => e.localName)"
    )
    assert {name: found.count(name) for name in found} == EXPECTED
    handlers = page.evaluate(
        "[...document.querySelectorAll('*')].flatMap((e) => [...e.attributes])"
        ".filter((a) => a.name.startsWith('on') || /^\\s*javascript:/i.test(a.value)).length"
    )
    assert handlers == 0


def test_the_corpus_is_large() -> None:
    assert len(set(ALL)) >= 100


def test_lines_of_a_log(show, tmp_path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    lines = []
    image = f"<img src=x onerror={RUN}>"
    for number, text in enumerate([image, *ALL]):
        rank = number % 8
        lines += [
            text,
            f"[rank{rank}]: ValueError: {number} {text}",
            WATCHDOG.format(rank=rank, op=text[:60]),
        ]
    (folder / "train.log").write_text("\n".join(lines), encoding="utf-8", errors="surrogatepass")
    job = diagnose.load(folder)
    diagnosis = diagnose.diagnose(job)
    opened = show(render(job, diagnosis, title=ALL[0]))
    harmless(opened)
    assert f"<script>{RUN}</script>" in opened.page.inner_text("header")
    text = opened.page.evaluate("document.body.textContent")
    assert image in text
    quoted = [line.text for line in diagnosis.evidence]
    assert len(quoted) > 4
    assert [line for line in quoted if line not in text] == []


def test_each_string_as_the_one_error_of_a_job(show) -> None:
    for text in ALL:
        job = diagnose.load_text(f"[rank0]: start\n[rank0]: RuntimeError: {text}\nend {text}")
        opened = show(render(job, diagnose.diagnose(job), title=text))
        assert opened.harm() == [], text[:80]
        opened.page.close()


def test_names_of_files_and_folders(show, tmp_path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for number, text in enumerate(ALL):
        name = (
            re.sub(r"[/\0]", "_", text)[:60].encode("utf-8", "replace").decode() + f" {number}.log"
        )
        (folder / name).write_text(WATCHDOG.format(rank=number % 4, op="ALLREDUCE"))
    assert len(list(folder.iterdir())) == len(ALL)
    job = diagnose.load(folder)
    harmless(show(render(job, diagnose.diagnose(job))))


def test_hosts_groups_stacks_and_every_field_of_a_diagnosis(show) -> None:
    ranks = len(ALL)
    log = "\n".join(WATCHDOG.format(rank=rank, op="ALLREDUCE") for rank in range(1, ranks))
    job = diagnose.load_text(log)
    names = {rank: ALL[rank] for rank in range(ranks)}
    job.timeline["host"] = job.timeline["rank"].map(names).astype("category")
    job.timeline["text"] = job.timeline["rank"].map(names).astype("str")
    states = dict.fromkeys(range(ranks), "waiting") | {0: "culprit"}
    hostile = replace(
        with_every_text(diagnose.diagnose(job), cycle(ALL)),
        graph=WaitGraph(states, [(rank, 0, ALL[rank]) for rank in range(1, ranks)]),
        topology=Topology(
            (Axis(ALL[0], 2, tuple((r, r + 1) for r in range(0, ranks - 1, 2))),),
            {rank: {ALL[0]: rank % 2} for rank in range(ranks)},
        ),
        notes=list(ALL),
        alternatives=[Alternative(text, "low", text) for text in ALL],
    )
    harmless(show(render(job, hostile, title=CHARACTERS[1])))


def test_text_is_shown_as_it_is_in_the_hover_box(show) -> None:
    text = f"<img src=x onerror={RUN}>"
    log = "\n".join(
        [
            WATCHDOG.format(rank=0, op="X"),
            f"[rank1]: ValueError: {text}",
        ]
    )
    job = diagnose.load_text(log)
    opened = show(render(job, diagnose.diagnose(job)))
    page = opened.page
    data = json.loads(page.text_content("#data"))
    assert any(text in line for item in data["findings"] for line in item["texts"])
    page.locator("#lanes").scroll_into_view_if_needed()
    box = page.locator("#lanes .canvas").bounding_box()
    shown = ""
    for down in range(24, int(box["height"]) - 20, 6):
        for across in range(4, int(box["width"]), 6):
            page.mouse.move(box["x"] + across, box["y"] + down)
            if page.is_visible("#tip") and text in page.inner_text("#tip"):
                shown = page.inner_text("#tip")
                break
        if shown:
            break
    assert text in shown
    assert opened.harm() == []
