"""The pages as a browser without scripts meets them."""

from __future__ import annotations

import re

from .running import LOG, Running


def test_a_paste_becomes_a_post_mortem_under_a_permalink(server: Running) -> None:
    answer = server.paste(LOG, title="job 81922")
    assert answer.status_code == 303
    link = answer.headers["location"]
    assert re.fullmatch(r"/d/[0-9a-z]{16}", link)
    page = server.http.get(link)
    assert page.status_code == 200
    assert "A rank never reached the collective" in page.text
    assert "job 81922" in page.text
    assert f'href="{link}/markdown"' in page.text
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert server.http.get(link).text == page.text


def test_json_markdown_and_the_masked_input_lie_beside_it(server: Running) -> None:
    secret = "hf" + "_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
    link = server.paste(f"{LOG}\nHF_TOKEN={secret}\n").headers["location"]
    server.http.get(link)
    assert server.http.get(f"{link}/json").json()["culprits"]["ranks"] == [5]
    assert server.http.get(f"{link}/markdown").text.startswith("### Hung: ")
    kept = server.http.get(f"{link}/input")
    assert kept.headers["content-type"] == "text/plain; charset=utf-8"
    assert "HF_TOKEN=[hf-token-1]" in kept.text
    assert kept.text.count("\n") == LOG.count("\n") + 2
    assert server.http.get(f"{link}/nothing").status_code == 404
