"""Secrets told by what stands around them: headers, addresses, lists, command lines.

Of command lines it is the program that tells: an option of it, or the place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from diagnose.redact.forms import JUDGED, Span, mixed, placeholder

WORD = r"[^\s\"']"
_PAIR = rf" +({WORD}{{1,128}}) +({WORD}{{3,256}})"
_ADDRESS = r" +\S{1,64} +\S{1,200}"


class Rule(NamedTuple):
    """Word of the lower-case text, kinds of the groups, pattern for the lower-case text.

    A pattern that is `cased` is for the text as it is: -P is another option than -p.
    """

    word: str
    kinds: tuple[str, ...]
    pattern: str
    cased: bool = False


_COMMAND_ROWS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("login", ("user", "password"), rf"\blogin +({WORD}{{1,64}}) +password +({WORD}{{3,256}})"),
    ("login", ("user",), r"\blogin [^\n]{0,120}?(?<= )(?:-u|--username)[ =]([^\s\"']{1,64})"),
    ("login", ("password",), rf"\blogin [^\n]{{0,160}}?(?<= )-p[ =]?[\"']?({WORD}{{3,256}})"),
    ("wandb", ("wandb-key",), r"\bwandb(?:\.| +)login\b[^,;]{0,24}?\b([0-9a-f]{40})\b"),
    (
        "configure",
        ("key",),
        rf"\bconfigure +set +[\w.-]{{0,40}}(?:secret_access_key|session_token) +({WORD}{{16,}}+)",
    ),
    ("sshpass", ("password",), rf"\bsshpass +-p *[\"']?({WORD}{{3,256}})"),
    ("redis-cli", ("password",), rf"\bredis-cli [^\n]{{0,160}}?(?<= )-a +[\"']?({WORD}{{3,256}})"),
    (
        "mongo",
        ("password",),
        rf"\bmongo\w{{0,8}} [^\n]{{0,160}}?(?<= )-p +[\"']?({WORD}{{3,256}})",
    ),
    ("sqlcmd", ("password",), rf"\bsqlcmd [^\n]{{0,160}}?(?<= )-p +[\"']?({WORD}{{3,256}})"),
    (
        "ldap",
        ("password",),
        rf"\bldap[a-z]{{3,8}} [^\n]{{0,160}}?(?<= )-w +[\"']?({WORD}{{3,256}})",
    ),
    (
        "smbclient",
        ("user", "password"),
        rf"\bsmbclient [^\n]{{0,160}}?(?<= )-u ?([^\s%]{{1,64}})%({WORD}{{3,256}})",
    ),
    ("kubeadm", ("token",), r"--token[ =]([a-z0-9]{6}\.[a-z0-9]{16})\b"),
    ("pass:", ("password",), rf"-(?:pass|passin|passout|k) +[\"']?pass:({WORD}{{3,256}})"),
    ("mysql", ("password",), rf"\bmysql\w{{0,8}} [^\n]{{0,160}}?(?<= )-p({WORD}{{3,256}})"),
    (
        "curl",
        ("user", "password"),
        r"\bcurl [^\n]{0,200}?(?<= )(?:-u|--user)[ =]?[\"']?"
        rf"([^\s:\"'/]{{0,64}}):({WORD}{{3,256}})",
    ),
    (
        "echo",
        ("password",),
        r"\becho +(?:-n +)?[\"']?([^\s|\"'$]{6,256})[\"']? *\| *"
        r"(?:sudo|docker|podman|helm|nerdctl|oras|gh|huggingface-cli|hf|wandb|kinit|passwd) ",
    ),
    (
        "chpasswd",
        ("user", "password"),
        r"\becho +(?:-[en]+ +)?[\"']?([^\s|\"'$:]{1,64}):([^\s|\"'$]{3,256})[\"']? *\|"
        r" *(?:sudo +)?chpasswd",
    ),
    ("alias set", ("key-id", "secret"), rf"\bmc(?:li)? +alias +set{_ADDRESS}{_PAIR}"),
    ("host add", ("key-id", "secret"), rf"\bmc(?:li)? +config +host +add{_ADDRESS}{_PAIR}"),
    (
        "rabbitmqctl",
        ("user", "password"),
        r"\brabbitmqctl +(?:-\S+ +)?(?:add_user|change_password|authenticate_user)" + _PAIR,
    ),
    # with -n no file stands before the user
    (
        "htpasswd",
        ("user", "password"),
        r"\bhtpasswd +(?:-[a-z0-9]{1,8} +){0,4}-[a-z]{0,6}(?:bn|nb)[a-z]{0,6}" + _PAIR,
    ),
    (
        "htpasswd",
        ("user", "password"),
        r"\bhtpasswd +(?:-[a-z0-9]{1,8} +){0,4}-[a-mo-z]{0,6}b[a-mo-z]{0,6}"
        rf"(?: +-[a-z0-9]{{1,8}}){{0,4}} +{WORD}{{1,256}}{_PAIR}",
    ),
    ("obscure", ("password",), rf"\brclone +obscure +[\"']?({WORD}{{3,256}})"),
    (
        "lftp",
        ("user", "password"),
        rf"\blftp [^\n]{{0,160}}?(?<= )-u +([^\s,]{{1,64}}),({WORD}{{3,256}})",
    ),
    # a call in a program
    (
        "login(",
        ("key",),
        r"login\((?:[^\n)]{0,80}[\s,(])?(?:key|token)\s?=\s?[\"']([^\s\"']{8,256})[\"']",
    ),
)

# Programs and the options a password follows, as they are written.
_OPTIONS: tuple[tuple[str, str], ...] = (
    ("unzip", "-P *"),
    ("zip", "-P *"),
    ("7z", "-p"),
    ("unrar", "-p"),
    ("openssl", "-[kK] +"),
    ("ipmitool", "-P *"),
    ("mosquitto_", "-P +"),
    ("snmp", "-[cAX] +"),
    ("beeline", "-p +"),
    ("cqlsh", "-p +"),
    ("influx", "-password +"),
    ("ssh-keygen", "-[NP] +"),
    ("keytool", "-(?:store|key|src|dest)(?:store)?pass +"),
    ("useradd", "-p +"),
    ("usermod", "-p +"),
    ("xfreerdp", "/p:"),
    ("cmdkey", "/pass:"),
    ("etcdctl", "--user[ =][^\\s:]{1,64}:"),
)


def _option(program: str, option: str) -> Rule:
    pattern = rf"\b{program}\w{{0,8}} [^\n]{{0,160}}?(?<= ){option}[\"']?({WORD}{{3,256}})"
    return Rule(program, ("password",), pattern, cased=True)


COMMANDS = (*(Rule(*row) for row in _COMMAND_ROWS), *(_option(*row) for row in _OPTIONS))


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
        rf"\bcookie\\{{0,8}}[\"']?: ?[\"']?([\w.-]{{1,64}}=[^\s\"';]{{8,}}+(?:; {WORD}++)*)",
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
