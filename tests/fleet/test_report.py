"""The exact text of the report. After a wanted change: UPDATE_EXPECTED=1 pytest tests/fleet."""

import csv
import io
import json
import os
import re
from dataclasses import replace
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from diagnose.batch.names import page_of
from diagnose.catalog.load import load_catalog
from diagnose.fleet import Fleet, summarise
from diagnose.report.fleet import terminal
from diagnose.report.fleet.html import link_base, render, scale
from diagnose.report.fleet.words import as_csv, as_json, chance, slurm_exclude, sparkline

from . import samples
from .frames import typed

EXPECTED = Path(__file__).parent / "expected"
TITLES = {"hw.gpu": "A GPU failed", "crash.cuda_error": "A CUDA kernel failed"}


@lru_cache
def fleet(name: str = "small", by: str = "cause") -> Fleet:
    shipped = load_catalog()
    classes = {id_: replace(one, title=TITLES.get(id_, "")) for id_, one in shipped.classes.items()}
    catalog = replace(shipped, classes=classes)
    return summarise(typed(getattr(samples, name)()), by=by, catalog=catalog)


def compare(name: str, text: str) -> None:
    path = EXPECTED / name
    if os.environ.get("UPDATE_EXPECTED"):
        path.write_text(text, encoding="utf-8")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines()


def plain(found: Fleet, width: int, file: io.StringIO | None = None) -> str:
    console = Console(file=file or io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        terminal.render(found, console)
    return capture.get()


class Ascii(io.StringIO):
    encoding = "ascii"


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("by", ["cause", "host", "week", "user-label"])
def test_terminal(by: str, width: int) -> None:
    compare(f"small.{by}.{width}.txt", plain(fleet(by=by), width))


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("name", ["small", "hostile"])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    for by in ("cause", "host"):
        for line in plain(fleet(name, by), width).splitlines():
            assert len(line) < width or line.strip().startswith("sbatch")
            assert line == line.rstrip()


def test_hostile_text_cannot_reach_the_terminal() -> None:
    text = plain(fleet("hostile"), 80)
    assert all(char == "\n" or char.isprintable() for char in text)
    assert "owned" not in text
    assert "hf_" not in text


def test_an_ascii_terminal_gets_ascii() -> None:
    text = plain(fleet(), 80, Ascii())
    assert text.isascii()
    assert "hw.gpu                  18   15.1 %  64.3 %        225  #*#*" in text


def test_json() -> None:
    data = json.loads(as_json(fleet()))
    compare("small.json", as_json(fleet()) + "\n")
    assert data["schema"] == "diagnose-fleet/1"
    assert [node["host"] for node in data["nodes"]["suspects"]] == ["node004"]
    assert {key for gap in data["recurring"] for key in gap} >= {"class", "began_with"}
    assert "hf_" not in as_json(fleet("hostile"))


def test_json_has_the_same_keys_without_any_job_of_note() -> None:
    few = json.loads(as_json(summarise(typed(samples.frame(samples.row("a"))))))
    assert list(few) == list(json.loads(as_json(fleet())))
    assert few["overview"]["gpu_hours_lost"] is None


@pytest.mark.parametrize("by", ["cause", "host", "week", "user-label"])
def test_csv(by: str) -> None:
    compare(f"small.{by}.csv", as_csv(fleet(by=by)))


def test_csv_holds_no_formula() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(fleet("hostile", "user")))))
    assert rows[0]["name"].startswith("'=HYPERLINK")
    assert not any(cell.startswith(("=", "@", "+")) for row in rows for cell in row.values())


def test_slurm_exclude() -> None:
    assert slurm_exclude(fleet()) == "node004\n"
    assert slurm_exclude(fleet("hostile")) == ""


def test_post_mortems_are_linked_where_they_exist(tmp_path: Path) -> None:
    rows = samples.small()
    rows.loc[rows["job"] == "job-003", ["job", "source"]] = ["a b/c#", "/x/a b/c#"]
    sources = dict(zip(rows["job"], rows["source"], strict=True))
    pages = {job: page_of(sources[job]) for job in ("job-002", "a b/c#")}
    for page in pages.values():
        (tmp_path / "results" / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "results" / page).touch()
    found = summarise(typed(rows), results=tmp_path / "results")
    assert found.reports == pages
    assert f"\n    {pages['job-002']}\n" in plain(found, 80)
    page = render(found, links=link_base(tmp_path / "out" / "fleet.html", tmp_path / "results"))
    assert f'<a href="../results/{pages["job-002"]}">job-002</a>' in page
    assert f'<a href="../results/{pages["a b/c#"]}">a b/c#</a>' in page
    assert '<a href="../' not in render(found)
    assert link_base(tmp_path / "results" / "f.html", tmp_path / "results") == ""
    odd = tmp_path / os.fsdecode(b"r\xff")
    assert link_base(tmp_path / "f.html", odd) == "r%FF/"


def test_jobs_that_look_alike_are_not_linked(tmp_path: Path) -> None:
    rows = samples.small()
    rows.loc[rows["job"] == "job-002", "job"] = "same\x01"
    rows.loc[rows["job"] == "job-003", "job"] = "same\x02"
    path = tmp_path / page_of("job-003.tar.gz")
    path.parent.mkdir()
    path.touch()
    found = summarise(typed(rows), results=tmp_path)
    assert list(found.reports) == ["same\x02"]
    page = render(found, links="")
    assert "same" in page
    assert '<a href="reports/' not in page
    assert "reports/" not in plain(found, 80)


def test_names_that_no_encoding_takes() -> None:
    rows = samples.small()
    rows["labels"] = '{"team": "x\\udcff", "\\udcfe": "y"}'
    rows["versions"] = '{"torch": "2\\udcff"}'
    rows.loc[rows["job"] == "job-003", "job"] = 'new\nline, "quoted" \x1b[31mred\x9b\u202e'
    for by, name in (("team", r"x\udcff"), (r"\udcfe", "y")):
        found = summarise(typed(rows), by=by)
        assert [group.name for group in found.groups] == [name]
        for text in (plain(found, 80), as_json(found), as_csv(found), render(found)):
            text.encode()
        assert len(list(csv.reader(io.StringIO(as_csv(found))))) == 2
        assert all(char == "\n" or char.isprintable() for char in plain(found, 80))


class _Tags(HTMLParser):
    """Tags and attributes of a page, and whether tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", ["small", "hostile"])
@pytest.mark.parametrize("by", ["cause", "host", "week", "user"])
def test_the_page_is_whole_and_closed(name: str, by: str) -> None:
    page = render(fleet(name, by), links="", title="<b>title")
    tags = _Tags(page)
    assert tags.open == []
    assert "style" not in {key for _, attributes in tags.found for key in attributes}
    assert not any(key.startswith("on") for _, attributes in tags.found for key in attributes)
    for tag, attributes in tags.found:
        assert tag not in ("img", "b", "link", "iframe")
        assert not (attributes.get("src") or "").strip()
        assert not re.match(r"[a-z]+:", attributes.get("href") or "#")
    ids = [attributes["id"] for _, attributes in tags.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    [policy] = [a["content"] for _, a in tags.found if a.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert [tag for tag, _ in tags.found].count("script") == 2
    assert "hf_" not in page


def test_the_page_says_what_the_terminal_says() -> None:
    page = render(fleet())
    for text in ("25 of 120 jobs hung or failed; check node004", "--exclude=node004",
                 "First seen with torch 2.7.1+cu128", "p &lt; 1e-23", "job-050"):  # fmt: skip
        assert text in page


def test_without_redaction_secrets_stay() -> None:
    assert "hf_" in render(fleet("hostile"), redact=False)


@pytest.mark.parametrize(
    ("most", "top", "step"),
    [(0, 1, 1), (5, 5, 1), (6, 6, 2), (23, 25, 5), (95, 100, 20), (1201, 1500, 500)],
)
def test_axes_end_at_round_numbers(most: int, top: int, step: int) -> None:
    found, marks = scale(most)
    assert (found, marks[1] - marks[0]) == (top, step)
    assert 2 <= len(marks) <= 6


def test_small_words() -> None:
    assert sparkline([0, 1, 4, 8], 3) == "▁▄█"
    assert sparkline([0, 0], 5) == "  "
    assert (chance(0.0034), chance(3e-10), chance(0.0)) == ("p = 0.003", "p < 1e-9", "p < 1e-99")


def test_a_fleet_of_one_healthy_job() -> None:
    one: Any = summarise(typed(samples.frame(samples.row("a", hosts=["n1"]))))
    assert plain(one, 80).splitlines()[0] == "FLEET  1 job on 1 host, 2025-06-02"
    assert "0 of 1 job hung or failed" in render(one)
