"""Secrets told by what stands around them: headers, addresses, commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from diagnose.report.shapes import Span, mixed
from diagnose.report.values import JUDGED, placeholder

_RUN = r"[a-z0-9._~+/=%:-]"
_WORD = r"[^\s\"']"
_QUERY = r"[^\s&\"'<>#;,)\]}\\]{8,}+"  # a value in the query of an address …
_DRAWN = r"(?=\d{0,64}[a-z])(?=[a-z]{0,64}\d)(?![a-z]+[-_])"  # … that is no word
_AWS_PAIR = r"\ba[ks]ia[a-z0-9]{16}[\s:,|\"'/=]{1,8}([a-z0-9/+]{40})(?![\w/+])"

_compiled = cache(re.compile)


class Rule(NamedTuple):
    """Word of the lower-case text, kinds of the groups, pattern for the lower-case text."""

    word: str
    kinds: tuple[str, ...]
    pattern: str


_ROWS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "authorization",
        ("token",),
        r"authorization\\{0,8}[\"']?\s{0,3}[:=,]\s{0,3}\\{0,8}[bru]?[\"']?"
        rf"(?:bearer|basic|token|apikey|negotiate) +({_RUN}{{6,}}+)",
    ),
    ("bearer", ("token",), rf"\bbearer +({_RUN}{{16,}}+)"),
    (
        "cookie",
        ("cookie",),
        rf"\bcookie\\{{0,8}}[\"']?: ?[\"']?([\w.-]{{1,64}}=[^\s\"';]{{8,}}+(?:; {_WORD}++)*+)",
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
    ("login", ("user", "password"), rf"\blogin +({_WORD}{{1,64}}) +password +({_WORD}{{3,256}})"),
    ("login", ("user",), r"\blogin [^\n]{0,120}?(?<= )(?:-u|--username)[ =]([^\s\"']{1,64})"),
    ("login", ("password",), rf"\blogin [^\n]{{0,160}}?(?<= )-p[ =]?[\"']?({_WORD}{{3,256}})"),
    ("wandb", ("wandb-key",), r"\bwandb(?:\.| +)login\b[^,;]{0,24}?\b([0-9a-f]{40})\b"),
    (
        "configure",
        ("key",),
        rf"\bconfigure +set +[\w.-]{{0,40}}(?:secret_access_key|session_token) +({_WORD}{{16,}}+)",
    ),
    ("account.key.", ("key",), rf"\baccount\.key\.[\w.-]{{1,120}}[=:] ?({_WORD}{{16,}}+)"),
    ("thin:", ("user", "password"), r":thin:([\w.-]{1,64})/([^\s/@\"']{1,256})@"),
    (
        "auth",
        ("user", "password"),
        r"auth ?=? ?\( ?[\"']([^\s\"']{1,64})[\"'], ?[\"']([^\"'\n]{1,256})[\"'] ?\)",
    ),
    ("sshpass", ("password",), rf"\bsshpass +-p *[\"']?({_WORD}{{3,256}})"),
    ("redis-cli", ("password",), rf"\bredis-cli [^\n]{{0,160}}?(?<= )-a +[\"']?({_WORD}{{3,256}})"),
    (
        "mongo",
        ("password",),
        rf"\bmongo\w{{0,8}} [^\n]{{0,160}}?(?<= )-p +[\"']?({_WORD}{{3,256}})",
    ),
    ("sqlcmd", ("password",), rf"\bsqlcmd [^\n]{{0,160}}?(?<= )-p +[\"']?({_WORD}{{3,256}})"),
    (
        "ldap",
        ("password",),
        rf"\bldap[a-z]{{3,8}} [^\n]{{0,160}}?(?<= )-w +[\"']?({_WORD}{{3,256}})",
    ),
    (
        "smbclient",
        ("user", "password"),
        rf"\bsmbclient [^\n]{{0,160}}?(?<= )-u ?([^\s%]{{1,64}})%({_WORD}{{3,256}})",
    ),
    ("kubeadm", ("token",), r"--token[ =]([a-z0-9]{6}\.[a-z0-9]{16})\b"),
    ("pass:", ("password",), rf"-(?:pass|passin|passout|k) +[\"']?pass:({_WORD}{{3,256}})"),
    ("mysql", ("password",), rf"\bmysql\w{{0,8}} [^\n]{{0,160}}?(?<= )-p({_WORD}{{3,256}})"),
    (
        "curl",
        ("user", "password"),
        r"\bcurl [^\n]{0,200}?(?<= )(?:-u|--user)[ =]?[\"']?"
        rf"([^\s:\"'/]{{0,64}}):({_WORD}{{3,256}})",
    ),
    (
        "echo",
        ("password",),
        r"\becho +(?:-n +)?[\"']?([^\s|\"'$]{6,256})[\"']? *\| *"
        r"(?:sudo|docker|podman|helm|nerdctl|oras|gh|huggingface-cli|hf|wandb) ",
    ),
)

RULES = tuple(Rule(*row) for row in _ROWS)


def ruled(text: str, lower: str, rules: Sequence[Rule]) -> Iterator[Span]:
    """What `rules` find in one line; `lower` is the line in small letters."""
    for word, kinds, pattern in rules:
        if word in lower:
            for match in _compiled(pattern).finditer(lower):
                for group, kind in enumerate(kinds, start=1):
                    start, end = match.span(group)
                    value = text[start : min(end, start + JUDGED)]
                    if not value or placeholder(value):
                        continue
                    if kind == "user" and len(value) >= 20 and mixed(value):
                        kind = "token"  # noqa: PLW2901
                    yield Span(start, end, kind)
