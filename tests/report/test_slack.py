"""A message that Slack takes, whatever the log holds; by its reference of Block Kit."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from typing import Any

import pytest

from diagnose.catalog.schema import Run
from diagnose.diagnosis import ChainLink, Diagnosis, Evidence, RemedyStep
from diagnose.report import slack

from .samples import ALL, HUNG

CHECKED = {"header": {"type", "text"}, "section": {"type", "text"}, "context": {"type", "elements"}}


def check(message: dict[str, Any]) -> str:
    """The rules for a message; its text."""
    assert set(message) == {"text", "blocks"}
    assert 0 < len(message["text"]) <= 3000
    assert 0 < len(message["blocks"]) <= 50
    said = [message["text"]]
    for block in message["blocks"]:
        assert set(block) == CHECKED[block["type"]]
        text = block["elements"][0] if block["type"] == "context" else block["text"]
        if block["type"] == "header":
            assert (text["type"], text["emoji"]) == ("plain_text", False)
            assert 0 < len(text["text"]) <= 150
            continue
        assert (text["type"], text["verbatim"]) == ("mrkdwn", True)
        assert 0 < len(text["text"]) <= 3000
        assert text["text"].count("```") % 2 == 0
        said.append(text["text"])
    for text in said:
        assert not re.search(r"[<>]", text)
        assert not re.search(r"&(?!amp;|lt;|gt;)", text)
    return "\n".join(said)


@pytest.mark.parametrize("name", ALL)
def test_every_verdict(name: str) -> None:
    said = check(slack.render(ALL[name]))
    assert said.isprintable() or "\n" in said
    assert "\x1b" not in said


def test_what_it_says() -> None:
    message = slack.render(HUNG)
    first, second, *_ = message["blocks"]
    assert first["text"]["text"] == (
        "HUNG: Rank 0 was still tokenising the data set while ranks 1-7 waited for it (high "
        "confidence)"
    )
    assert second["text"]["text"].startswith(":red_circle: Ranks 1-7 waited 30 minutes")
    said = check(message)
    assert "*Culprits:* Rank 0 on gpu-a: slow, still making progress" in said
    assert "*What to do now*\n1. Tokenise once" in said
    assert "```\nllamafactory-cli train config.yaml tokenized_path=/data/tokenized\n```" in said


NASTY = (
    "<!channel> <@U123> <#C1|x> &amp; ``` `a` *b* _c_ ~d~ :smile: :100: 10:20:30 <http://x|y>"
    " @here #general "
)


def test_log_text_mentions_nobody_and_ends_no_fence() -> None:
    hostile = replace(
        HUNG,
        root_cause=replace(HUNG.root_cause, title=NASTY, summary=NASTY),
        evidence=[Evidence(f"{NASTY}.log", 3, NASTY, NASTY)],
        remedies=[RemedyStep("now", NASTY, "", [Run("shell", [f"echo '{NASTY}'", "```"])])],
    )
    said = check(slack.render(hostile))
    assert "<!channel>" not in said
    assert "&lt;!channel&gt;" in said
    assert ":smile:" not in said.replace("```", "") or "```" in said
    assert "10:20:30" in said
    assert ":100:" not in slack.mrkdwn(NASTY)


@pytest.mark.slow
def test_everything_is_bounded() -> None:
    chance = random.Random(7)
    for _ in range(6):
        long = "".join(chance.choice("&<>:a`\n ") for _ in range(chance.randrange(1, 9000)))
        steps = [
            RemedyStep("now", long, long, [Run("shell", [long] * 3), Run("note", [long])])
        ] * chance.randrange(1, 15)
        found = Diagnosis(
            "failed",
            replace(HUNG.root_cause, title=long, summary=long),
            remedies=steps,
            evidence=[Evidence(long, n, f"{n} {long}", f"{n} {long}") for n in range(12)],
            causal_chain=[ChainLink(f"{n} {long}", long, n, long, n) for n in range(12)],
        )
        check(slack.render(found))


def test_many_parts_are_counted() -> None:
    step = RemedyStep("now", "x", "", [Run("shell", ["&" * 2000]), Run("shell", ["&" * 2000])])
    message = slack.render(replace(HUNG, remedies=[step] * 200))
    check(message)
    assert len(message["blocks"]) == 50
    assert re.search(r"^\d+ more parts: see the JSON", message["blocks"][-1]["elements"][0]["text"])


def test_people_and_secrets_are_masked() -> None:
    line = "token hf_abcdefghijklmnopqrstuvwxyzABCDEFGH of /home/alice/x, alice@example.com"
    told = replace(HUNG, evidence=[Evidence("a.log", 1, line, line)])
    said = json.dumps(slack.render(told))
    for secret in ("hf_abc", "alice"):
        assert secret not in said
    assert "alice" in json.dumps(slack.render(told, redact=False))
