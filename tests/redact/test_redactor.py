"""Secrets and people do not leave the house; what explains a job does."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from diagnose.redact import redactor
from diagnose.redact.credentials import by_kind, clues, holding, kind_of, words_in
from diagnose.redact.redactor import Redactor, mask
from diagnose.redact.views import lowered
from tests.counting import Count
from tests.report.corpus import (
    DOUBTFUL,
    INNOCENT,
    KINDS,
    MASK,
    OTHERS,
    PEOPLE,
    ROWS,
    SECRETS,
    WRITTEN,
    values,
)

FIXTURES = Path(__file__).parents[2] / "fixtures"
HF = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
OTHER = "hf_" + "ZyXwVuTsRqPoNmLkJiHgFeDcBa76543210"


ALL = [row for rows in ROWS.values() for row in rows]
FIELDS = {"id", "about", "kind", "keywords", "samples", "near_misses"}


@pytest.mark.parametrize("row", ALL, ids=[row["id"] for row in ALL])
def test_samples_of_a_kind_are_masked_and_its_near_misses_stay(row: dict[str, Any]) -> None:
    found = kind_of(row)
    samples = row["samples"]
    assert samples
    assert {line: Redactor().text(line) for line in samples} == samples
    assert [line for line in samples if not list(by_kind(line, lowered(line), [found]))] == []
    near = row.get("near_misses", [])
    assert [Redactor().text(line) for line in near] == near
    held = [lowered(line) if found.lower else line for line in near]
    assert [line for line in held if not any(map(line.__contains__, found.keywords))] == []
    assert re.compile(found.pattern).groups in {
        len(found.masks),
        0 if len(found.masks) == 1 else -1,
    }


def test_rows_have_the_fields_that_are_read() -> None:
    of = {
        "token": {"token", "also"}, "context": {"context", "cased", "also"},
        "prefix": {"prefix", "chars", "least", "after"},
    }  # fmt: skip
    odd = [row["id"] for row in ALL for way in of if way in row and row.keys() - FIELDS - of[way]]
    assert odd == []
    assert [row["id"] for row in ALL if len(of.keys() & row.keys()) != 1] == []
    assert len({row["id"] for row in ALL}) == len(ALL)
    assert {path.stem for path in KINDS.iterdir()} == {*ROWS, "words", "tags"}


def test_secrets_that_no_row_says_are_hidden_and_nothing_else() -> None:
    assert {line: Redactor().text(line) for line, _ in OTHERS} == dict(OTHERS)


def test_look_alikes_stay() -> None:
    assert [Redactor().text(line) for line in INNOCENT] == INNOCENT
    assert [mask(line) for line in INNOCENT] == INNOCENT


@pytest.mark.parametrize("way", WRITTEN)
def test_secrets_are_hidden_however_they_are_written(way: str) -> None:
    written = WRITTEN[way]
    for line, redacted in SECRETS:
        if "\n" in line or not line.isascii():
            continue
        found = values(line, redacted)
        secret = {v for v, kind in found.items() if kind not in PEOPLE and len(v) >= 4}
        hidden = Redactor().text(written(line))
        assert not [value for value in secret if written(value) in hidden], line


def test_what_is_written_otherwise_has_the_mask_of_what_it_is() -> None:
    redactor = Redactor()
    assert redactor.text("password=Zk2/s3cr3t") == "password=[password-1]"
    assert redactor.text("password%3DZk2%2Fs3cr3t and") == "password%3D[password-1] and"
    assert redactor.text("Zk2&#x2F;s3cr3t alone") == "[password-1] alone"


def test_the_corpus_is_large_enough() -> None:
    assert len(SECRETS) >= 500
    assert len(INNOCENT) >= 200
    assert sum(Redactor().text(line) != line for line in DOUBTFUL) <= 2


def test_one_redactor_hides_the_whole_corpus_as_many_do() -> None:
    """What was seen before changes the numbers of masks, not what is hidden."""
    redactor = Redactor()
    for line, alone in SECRETS:
        redacted = redactor.text(line)
        assert MASK.sub("…", redacted) == MASK.sub("…", alone)
        assert redactor.text(redacted) == redacted
    assert [redactor.text(line) for line in INNOCENT] == INNOCENT


def test_the_same_secret_has_the_same_mask() -> None:
    redactor = Redactor()
    assert redactor.text(f"HF_TOKEN={HF}") == "HF_TOKEN=[hf-token-1]"
    assert redactor.text(f"other {OTHER}, first {HF}") == "other [hf-token-2], first [hf-token-1]"
    assert redactor.text(f"password={HF}") == "password=[hf-token-1]"
    assert redactor.text("to Alice@Example.com") == "to [email-1]"
    assert redactor.text("to alice@example.com") == "to [email-1]"
    assert redactor.text("/home/alice/x user=alice") == "/home/[user-1]/x user=[user-1]"
    assert Redactor().text(OTHER) == "[hf-token-1]"


def test_a_name_is_hidden_elsewhere_only_where_names_stand() -> None:
    line = "/scratch/carol/x carol@node1 carol(1001), carol-v2.ckpt on carol"
    redactor = Redactor()
    assert redactor.text(line) == line
    redactor.text("LOGNAME=carol")
    hidden = "/scratch/[user-1]/x [user-1]@node1 [user-1](1001), carol-v2.ckpt on carol"
    assert redactor.text(line) == hidden


def test_lines_stay_lines() -> None:
    key = "-----BEGIN " + "PRIVATE KEY-----\nAAAA\nBBBB\n-----END " + "PRIVATE KEY-----"
    text = f"a\n{key}\n\nb {HF}\n"
    assert Redactor().text(text).split("\n") == [
        "a",
        *["[private-key-1]"] * 4,
        "",
        "b [hf-token-1]",
        "",
    ]


def test_a_key_without_its_end_hides_what_looks_like_it() -> None:
    key = "-----BEGIN " + "PRIVATE KEY-----\n" + "QUJD" * 16 + "\n" + "REVG" * 16
    assert Redactor().text(f"{key}\nstep 7 loss 2.5") == (
        "[private-key-1]\n[private-key-1]\n[private-key-1]\nstep 7 loss 2.5"
    )
    two = f"{key}\n" + "-----BEGIN " + "PRIVATE KEY-----\nQUJD\n-----END " + "PRIVATE KEY-----"
    assert Redactor().text(two).split("\n")[2:] == ["[private-key-1]", *["[private-key-2]"] * 3]


@pytest.mark.parametrize(("end", "rest"), [("x", ""), (".x", ""), ("", ":."), (".", ":..")])
def test_a_long_value_is_hidden_to_its_end(end: str, rest: str) -> None:
    value = "a1:." * 2000 + end
    assert Redactor().text(f"hf_token={value} b") == f"hf_token=[token-1]{rest} b"


def test_mask_hides_secrets_but_not_people() -> None:
    line = f"/home/alice/x alice@example.com user=alice {HF} https://me:hunter22@host/x"
    assert mask(line) == (
        "/home/alice/x alice@example.com user=alice [masked] https://me:[masked]@host/x"
    )


PIECES = st.sampled_from(
    f"{HF}|AKIA{'A' * 16}|-----BEGIN {'PRIVATE'} KEY-----|password=|token:|--api-key|login |-p |İ"
    "|user=|/home/|alice|@|x.com|://|eyJ|a1b2c3d4e5f6a7b8|None|[user-1]|[|]|'|\"|\\n|\n| |,"
    "|.|:|=|~/".split("|")
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=14).map("".join))
@example(f"İ password='{HF}'")
def test_redacting_twice_changes_nothing(text: str) -> None:
    redactor = Redactor()
    once = redactor.text(text)
    assert redactor.text(once) == once
    assert once.count("\n") == text.count("\n")
    assert mask(mask(text)) == mask(text)


def test_logs_of_real_jobs_lose_names_of_users_only() -> None:
    redactor = Redactor()
    touched = 0
    for path in sorted(FIXTURES.rglob("*")):
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            pairs = zip(text.split("\n"), redactor.text(text).split("\n"), strict=True)
            for before, after in pairs:
                if after != before:
                    touched += 1
                    parts = re.split(r"\[user-\d+\]", after)
                    assert all(part.endswith("/home/") for part in parts[:-1])
                    assert re.fullmatch(r"\w+".join(map(re.escape, parts)), before)
    assert touched


HOSTILE = {
    "letters": "a",
    "blanks": " ",
    "web tokens without dots": "eyJ",
    "names without values": "token=",
    "names in quotes": "password='",
    "names and code": "api_key=self.",
    "keys without end": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "user names": "/home/a",
    "homes by letter": "/users/a/",
    "addresses": "a@a.",
    "connection strings": "://a:b",
    "commands": "login -",
    "masks": "[user-1]",
    "half masks": "[a-a-a-",
    "known names": "/scratch/b/c ",
    "backslashes": 'token\\"=\\"',
    "letters that grow in lower case": "İtoken=",
    "ends of keys": "-----END " + "RSA PRIVATE KEY-----\n",
    "columns": "Ab1" + "cD2eF3gH4iJ5" * 5 + "k\n",
    "columns beside each other": "Ab1" + "cD2eF3gH4iJ5" * 5 + "k ",
    "wrapped tokens": "x" * 60 + " hf_aB3\n",
    "a wrapped token of many lines": "eyJ" + "aB3." * 20 + "\n",
    "line ends written out": "hf_aB3\\n",
    "base64 of keys": "LS0tLS1CRUdJTi ",
    "pieces of what is known": "hf_aB3dEf aB3dEfgH1jKlMnOpQr ",
    "addresses cut off": "://a:b/…",
    "cut tokens": "ghp_aB3 ... ",
    "percent signs": "%41",
    "percent signs of percent signs": "%25",
    "percent signs before names": "token%3D",
    "entities": "&#x3c;",
    "look-alikes": "p\u0430ss\uff1d",
    "forms": "a+b+",
    "elements": "<password ",
    "elements with ends": "<password>a</password>",
    "names at the ends of lines": "password: |\n",
    "pairs over lines": "- name: HF_TOKEN\n  value: a\n",
    "users of a sentence": "user a ",
    "users by number": "by a(100) ",
    "commands with many words": "htpasswd -b ",
    "options": "zip -",
    "lists": "api_keys=[",
}


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_a_line_costs_its_length(piece: str) -> None:
    """Eight times the length is about eight times the work; by square it would be 64 times."""

    def work(size: int) -> int:
        line = (piece * (size // len(piece) + 1))[:size]
        count = Count()
        count.during(lambda: Redactor().text(line))
        return count.work

    assert work(1 << 13) < 12 * work(1 << 10)


@pytest.mark.slow
@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_a_line_of_a_megabyte_comes_to_its_end(piece: str) -> None:
    """What the engine of regular expressions does cannot be counted.

    A minute is ten times what is needed, and far from the hour that a square would take.
    """
    code = (
        "import resource, sys; from diagnose.redact.redactor import Redactor; "
        "resource.setrlimit(resource.RLIMIT_CPU, (60, 60)); "
        f"Redactor().text(({piece!r} * (1 << 20))[:1 << 20])"
    )
    subprocess.run([sys.executable, "-c", code], cwd=FIXTURES.parent, check=True)


def test_a_line_of_a_megabyte_is_redacted_to_its_end() -> None:
    line = "x" * (1 << 20) + f" password=hunter2 {HF}"
    assert Redactor().text(line) == "x" * (1 << 20) + " password=[password-1] [hf-token-1]"


def test_a_process_of_many_jobs_remembers_short_texts_only() -> None:
    redactor._harmless.cache_clear()
    mask("a text that comes again")
    mask("the lines around, " * 500)
    assert redactor._harmless.cache_info().currsize == 1


@given(st.text("hf_AKIGsk-é\ud800 ", max_size=60), st.sampled_from([0, 5000]))
def test_words_looked_for_at_once_are_those_found_one_by_one(text: str, more: int) -> None:
    wanted = ("hf_", "AKI", "AKIA", "sk-", "s")
    text += "." * more  # from a length on they are looked for at once
    assert words_in(text, wanted) == {word for word in wanted if word in text}


def test_counts_of_tokens_hide_no_token_beside_them() -> None:
    rate = "step 7 loss 2.1 tokens/s 17204 keys matched"
    assert mask(rate) == rate
    text = f"{rate}\naccess token: s3cr3tQ7x9Zk2\n{rate}, api key=Zk2s3cr3tQ7x9"
    assert mask(text) == f"{rate}\naccess token: [masked]\n{rate}, api key=[masked]"


def test_lines_without_a_clue_stay_between_those_with_one() -> None:
    plain = ["step 7 done", "step 8 done"]
    text = "\n".join([plain[0], "password=Zk2s3cr3tQ7x9", plain[1], "saved to /home/alice/run"])
    hidden = Redactor().text(text).split("\n")
    assert hidden == [plain[0], "password=[password-1]", plain[1], "saved to /home/[user-1]/run"]


@given(st.lists(st.text("aKkey=:.do gh_\u212a\u0130", max_size=12), max_size=6))
@example(["İ", "to\u212aen=1", "token=2"])
def test_lines_with_a_clue_are_those_that_hold_one_by_themselves(lines: list[str]) -> None:
    found = clues("\n".join([*lines, "the key=", "gho_", "do"]))
    assert holding(lines, found) == {
        at
        for at, line in enumerate(lines)
        if any(map(line.__contains__, found.starts))
        or any(map(lowered(line).__contains__, found.words))
    }


@pytest.mark.parametrize("name", ["key", "apikey", "x-api-key", "auth", "sas", "code"])
def test_a_value_in_the_query_of_an_address_is_hidden(name: str) -> None:
    line = f"GET https://host/path?a=1&{name}=a1b2c3d4e5f6g7&b=2"
    assert mask(line) == f"GET https://host/path?a=1&{name}=[masked]&b=2"


def test_a_name_in_front_of_the_next_line_is_no_prefix_of_a_writer() -> None:
    """Else the rest of a token would begin with the value of another one, and hide it."""
    first, second = "h" + "f_AbCdEfGhIjKlMnOpQrStUvWxYz01234567", "gl" + "pat-"
    text = f"HF_TOKEN: {first}\nPRIVATE-TOKEN: {second}AbCdEfGhIj1234567890"
    assert mask(text) == "HF_TOKEN: [masked]\nPRIVATE-TOKEN: [masked]"
    key = "wandb: API key: " + "a02dsqKSYHq0SFPQLzrT" + "w2J80FirS5fvqbdOgePW"
    assert mask(f"{key}\ntoken=Zq8Lm2PpW4xx").endswith("\ntoken=[masked]")
    assert (
        mask(f"{first}\nREDISCLI_AUTH=hunter2x redis-cli")
        == "[masked]\nREDISCLI_AUTH=[masked] redis-cli"
    )
    cut = f"worker-1: refused the hub's token {first[:25]}\nworker-2: {first[25:]}"
    assert first[25:] not in mask(cut)


@pytest.mark.parametrize(
    "tag", ["[rank0]: ", "[default3]:", "[2]: ", "{trainer-3} ", "(worker1, rank=1, pid=7) "]
)
def test_the_rest_of_a_token_that_a_tag_cut_is_masked_in_short_lines_too(tag: str) -> None:
    token = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hI6"
    cut = mask(f"{tag}key {token[:14]}\n{tag}{token[14:]} done\n")
    assert token[14:] not in cut
    assert cut.endswith(" done\n")
    kept = f"{tag}password=hunter2xx\n{tag}initialization\n"
    assert mask(kept) == kept.replace("hunter2xx", "[masked]")
