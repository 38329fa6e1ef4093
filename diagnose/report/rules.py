"""Secrets told by what stands around them: headers, addresses, commands, lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from diagnose.report.commands import COMMANDS, WORD, Rule
from diagnose.report.shapes import Span, mixed
from diagnose.report.values import JUDGED, placeholder

_RUN = r"[a-z0-9._~+/=%:-]"
_QUERY = r"[^\s&\"'<>#;,)\]}\\]{8,}+"  # a value in the query of an address …
_DRAWN = r"(?=\d{0,64}[a-z])(?=[a-z]{0,64}\d)(?![a-z]+[-_])"  # … that is no word
_AWS_PAIR = r"\ba[ks]ia[a-z0-9]{16}[\s:,|\"'/=+]{1,8}([a-z0-9/+]{40})(?![\w/+])"

_compiled = cache(re.compile)


_ROWS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "authorization",
        ("token",),
        r"authorization\\{0,8}[\"']?\s{0,3}[:=,]\s{0,3}\\{0,8}[bru]?[\"']?"
        rf"(?:bearer|basic|token|apikey|negotiate)[ +]+({_RUN}{{6,}}+)",
    ),
    ("bearer", ("token",), rf"\bbearer +({_RUN}{{16,}}+)"),
    (
        "cookie",
        ("cookie",),
        rf"\bcookie\\{{0,8}}[\"']?: ?[\"']?([\w.-]{{1,64}}=[^\s\"';]{{8,}}+(?:; {WORD}++)*+)",
    ),
    # postgres://user:password@host, redis://:password@host; a list of host:port is none
    (
        ":/",
        ("user", "password"),
        r":/{1,3}([^\s/:@\"'<>]{0,64}):(?!\d{1,5}[,;)\]])([^\s/\"'<>?]{1,256})@",
    ),
    # a password with slashes; what follows a port is a path
    (
        ":/",
        ("user", "password"),
        r":/{1,3}([^\s/:@\"'<>]{0,64}):(?!\d{1,5}(?:\D|\Z))"
        r"([^\s/?#@\"'<>]{0,128}[/?#][^\s@\"'<>]{0,128})@",
    ),
    # … and one whose end was cut off
    (
        ":/",
        ("user", "password"),
        r":/{1,3}([^\s/:@\"'<>]{1,64}):(?!\d{1,5}(?:\D|\Z))([^\s/@\"'<>….]{2,256})"
        r"(?= ?(?:…|\.{3}(?:\s|\Z)))",
    ),
    # https://user@host; in Azure's storage addresses a container stands there
    (":/", ("user",), r"(?<!abfs)(?<!abfss)(?<!wasb)(?<!wasbs):/{1,3}([^\s/:@\"'<>]{1,256})@"),
    # what is left of one where the scheme was cut off, as the last part of a path
    (
        "@",
        ("user", "password"),
        r"(?<![\w@/.+-])([\w.+-]{1,64}):(?=[^\s@]{0,256}\d)(?=[^\s@]{0,256}[a-z])"
        r"([^\s:@/\"'<>]{6,256})@[a-z0-9-]{1,64}(?:\.[a-z0-9-]{1,64}){0,8}\.[a-z]{2,16}(?![\w(])",
    ),
    ("@tcp(", ("user", "password"), r"\b([\w.-]{1,64}):([^\s:@/]{1,256})@tcp\("),
    ("@unix(", ("user", "password"), r"\b([\w.-]{1,64}):([^\s:@/]{1,256})@unix\("),
    ("sig", ("signature",), rf"(?<![a-z])sig(?:nature)?=(?=[^\s&]{{0,40}}\d)({_RUN}{{20,}}+)"),
    ("-signature=", ("signature",), rf"-signature=({_RUN}{{20,}}+)"),
    ("-security-token=", ("aws-session-token",), rf"-security-token=({_RUN}{{20,}}+)"),
    ("key=", ("token",), rf"[?&](?:x-api-|api)?key={_DRAWN}({_QUERY})"),
    ("auth=", ("token",), rf"[?&]auth={_DRAWN}({_QUERY})"),
    ("sas=", ("token",), rf"[?&]sas={_DRAWN}({_QUERY})"),
    (
        "code=",
        ("token",),
        rf"[?&]code=(?=[\d_-]{{0,64}}[a-z])(?=[a-z_-]{{0,64}}\d)(?=.{{12}})({_QUERY})",
    ),
    # Kaggle's file of credentials
    (
        "username",
        ("user", "key"),
        r"\"username\\{0,8}\"\s?:\s?\\{0,8}\"([^\"\\]{1,64})\\{0,8}\"\s?,\s?"
        r"\\{0,8}\"key\\{0,8}\"\s?:\s?\\{0,8}\"([0-9a-f]{32})",
    ),
    (
        "key",
        ("private-key",),
        r"key[-_]data\\{0,8}[\"']?\s{0,2}[:=]\s{0,2}\\{0,8}[\"']?([a-z0-9+/=_-]{16,}+)",
    ),
    ("basic", ("token",), r"\bbasic +(?=[a-z+/]{0,200}[\d=])([a-z0-9+/]{16,}+={0,2})"),
    ("sess", ("cookie",), r"\b(?:jsessionid|phpsessid|sessionid)=([\w.%-]{16,}+)"),
    # PostgreSQL's file of passwords: host:port:database:user:password
    (
        ":5432:",
        ("user", "password"),
        r"(?<![\w.-])[\w.*-]{1,100}:5432:[\w*-]{1,64}:([\w.*-]{1,64}):([^\s:]{3,256})",
    ),
    # a registry's entry in ~/.docker/config.json, npm's _auth
    (
        "auth",
        ("token",),
        r"(?:\\{0,8}\"auth\\{0,8}\"\s?:\s?\\{0,8}\"|\b_auth ?= ?\"?)([a-z0-9+/]{8,}+={0,2})",
    ),
    # the id of a key and its secret, one after the other
    ("akia", ("aws-secret",), _AWS_PAIR),
    ("asia", ("aws-secret",), _AWS_PAIR),
    ("wandb", ("wandb-key",), r"\bwandb:? +(?:api +)?key:? +([a-z0-9_]{40,}+)"),
    (
        "secretstr",
        ("secret",),
        r"\bsecretstr\(\s?(?:[a-z_]{1,20}\s?=\s?)?[\"']([^\"'\n]{3,256})[\"']",
    ),
    (
        "secretbytes",
        ("secret",),
        r"\bsecretbytes\(\s?(?:[a-z_]{1,20}\s?=\s?)?b?[\"']([^\"'\n]{3,256})[\"']",
    ),
    # tokens of Okta and old keys of NGC have no beginning of their own
    ("ssws", ("token",), rf"\bssws[ +]+({_RUN}{{20,}}+)"),
    (
        "okta",
        ("token",),
        r"\bokta\b[^\n]{0,80}?(?<![\w-])(00(?=[a-z_-]{0,40}\d)[\w-]{38,40})(?![\w-])",
    ),
    ("ngc", ("api-key",), r"\bngc\b[^\n]{0,80}?\b([a-z0-9]{84})\b"),
    ("nvcr.io", ("api-key",), r"\bnvcr\.io\b[^\n]{0,80}?\b([a-z0-9]{84})\b"),
    ("account.key.", ("key",), rf"\baccount\.key\.[\w.-]{{1,120}}[=:] ?({WORD}{{16,}}+)"),
    ("thin:", ("user", "password"), r":thin:([\w.-]{1,64})/([^\s/@\"']{1,256})@"),
    (
        "auth",
        ("user", "password"),
        r"auth ?=? ?\( ?[\"']([^\s\"']{1,64})[\"'], ?[\"']([^\"'\n]{1,256})[\"'] ?\)",
    ),
)

# Lists of keys, whose names are the plural of one's.
_LISTS = (
    "api_keys", "api-keys", "apikeys", "access_keys", "accesskeys", "secret_keys", "secretkeys",
    "account_keys", "access_tokens", "auth_tokens", "api_tokens", "hf_tokens", "bearer_tokens",
    "passwords", "passphrases",
)  # fmt: skip


def _list(name: str) -> Rule:
    kind = "password" if name.startswith("pass") else "key"
    mark = r"\\{0,8}[\"']?\s{0,2}[:=]\s{0,2}"
    items = (
        r"\[\s?(?=[^\]\n]{0,256}\d)([^\]\n]{6,4096})"
        r"|(?=\S{0,64}\d)[\"']?([^\s\"'\[\])}]{6,4096})"
    )
    return Rule(name, (kind, kind), rf"{name}{mark}(?:{items})")


RULES = (*(Rule(*row) for row in _ROWS), *map(_list, _LISTS), *COMMANDS)
# Words of those that hold none of the signs that other secrets have.
SIGNLESS = tuple(
    {rule.word for rule in COMMANDS} | {"akia", "asia", "okta", "ngc", "nvcr.io", "ssws", "wandb"}
)


def ruled(text: str, lower: str, rules: Sequence[Rule]) -> Iterator[Span]:
    """What `rules` find in one line; `lower` is the line in small letters."""
    for word, kinds, pattern, cased in rules:
        if word in lower:
            for match in _compiled(pattern).finditer(text if cased else lower):
                for group, kind in enumerate(kinds, start=1):
                    start, end = match.span(group)  # of a group that is not there: -1
                    value = text[max(0, start) : min(end, start + JUDGED)]
                    if not value or placeholder(value):
                        continue
                    if kind == "user" and len(value) >= 20 and mixed(value):
                        kind = "token"  # noqa: PLW2901
                    yield Span(start, end, kind)
