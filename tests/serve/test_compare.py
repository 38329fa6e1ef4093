"""Two diagnoses side by side."""

from __future__ import annotations

import diagnose
from diagnose.serve.pages import compare

from .running import LOG, ROOT, Running


def documents() -> list[dict[str, object]]:
    other = (ROOT / "fixtures" / "megatron-xid79" / "train.log").read_text()
    return [diagnose.diagnose(diagnose.load_text(text)).to_dict() for text in (LOG, other)]


def test_what_differs_is_marked() -> None:
    sections = compare(*documents())
    assert list(sections) == ["Verdict", "Job", "Evidence", "What to do"]
    verdict = sections["Verdict"]
    assert verdict["Verdict"] == (["hung"], ["hung"])
    assert verdict["Culprits"] == (["rank 5"], ["rank 11", "gpu08"])
    assert verdict["Collective"][0] == ["ALLREDUCE, 0, sequence number 3391, missing: rank 5"]
    assert verdict["Last step"][0] != verdict["Last step"][1]
    assert sections["Job"]["Ranks"] == (["not known"], ["16"])


def test_the_same_twice_differs_nowhere() -> None:
    one = documents()[0]
    rows = [both for rows in compare(one, one).values() for both in rows.values()]
    assert rows
    assert all(left == right for left, right in rows)


def test_the_page_needs_two_that_are_there(server: Running) -> None:
    one = server.post(LOG, title="left")["id"]
    failed = server.post("\n \n")["id"]
    for query, status in (
        ("", 400), (f"id={one}", 400), (f"id={one}&id={one}&id={one}", 400),
        (f"id={one}&id=0000000000000000", 404), (f"id={one}&id={failed}", 404),
        (f"id={one}&id={one}", 200),
    ):  # fmt: skip
        assert server.http.get(f"/compare?{query}").status_code == status
    page = server.http.get(f"/all?with={one}").text
    assert "Compare with…" in page


def test_older_ones_are_a_page_away(server: Running) -> None:
    from diagnose.serve import pages

    ids = [server.post(f"[rank0]: step {n}\n", title="many-pages")["id"] for n in range(3)]
    before, pages._PAGE = pages._PAGE, 2
    try:
        first = server.http.get("/all?q=many-pages").text
        assert ids[2] in first
        assert ids[0] not in first
        link = first.partition('rel="next"')[0].rpartition('href="')[2].partition('"')[0]
        older = server.http.get(link.replace("&amp;", "&")).text
        assert ids[0] in older
        assert ids[1] not in older
    finally:
        pages._PAGE = before
