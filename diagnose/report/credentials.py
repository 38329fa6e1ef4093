"""Where a line of text holds a secret: tokens and keys by their shape, passwords by their name.

Logs are full of look-alikes (`eos_token`, `store_based_barrier_key:1`, 40-hex group names), so a
bare string is a secret only where its shape leaves no doubt; anything else needs a name or a
command that says so. Patterns start with literals or run on text that holds their word, and
take a run of characters as a whole before judging it: no line costs more than linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple


class Span(NamedTuple):
    """Characters `start` to `end` of a text are of this kind (`hf-token`, `password`, …)."""

    start: int
    end: int
    kind: str


def find(text: str) -> Iterator[Span]:
    """Secrets in one line, the surest kind first; spans may overlap.

    Two kinds are no secrets but stand beside one: `user` in an address or a command.
    """
    lower = lowered(text)
    sure = [*_shaped(text), *_ruled(text, lower)]
    yield from sure
    if any(word in lower for word in _NAMES):
        starts = {span.start for span in sure if span.kind != "user"}
        yield from (span for span in _named(text, lower) if span.start not in starts)


def words(text: str) -> frozenset[str]:
    """The words of `text`, as a set to look things up in."""
    return frozenset(text.split())


def lowered(text: str) -> str:
    """`text` in lower case, every character in its old place."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(c.lower() if c.isascii() else c for c in text)


# --- private keys, RFC 7468 and its PGP and OpenSSH kin; in JSON the newlines are `\n` -----------

_KEY_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile(r"-----END (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_KEY_MAX = 16_384  # characters from the first line of a key to its last
# What follows the first line of a key whose last line was cut off.
_KEY_BODY = re.compile(r"(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{16,}+)*+")


def private_keys(text: str) -> Iterator[Span]:
    """Key blocks, from their first line to their last or as far as they look like one."""
    at = 0
    while begin := _KEY_BEGIN.search(text, at):
        end = _KEY_END.search(text, begin.end(), begin.end() + _KEY_MAX)
        other = _KEY_BEGIN.search(text, begin.end(), end.start() if end else begin.end())
        if end and not other:
            at = end.end()
        else:
            body = _KEY_BODY.match(text, begin.end())
            at = body.end() if body else begin.end()
        yield Span(begin.start(), at, "private-key")


# --- shapes -------------------------------------------------------------------------------------

# What such a string begins with, its kind, its whole shape; not in the middle of a word.
_SHAPES: tuple[tuple[str, str, str], ...] = (
    ("hf_", "hf-token", r"hf_[A-Za-z0-9]{20,}+(?!_)"),
    ("api_org_", "hf-token", r"api_org_[A-Za-z0-9]{20,}+"),
    ("gh", "github-token", r"gh[opsur]_[A-Za-z0-9]{20,}+"),
    ("github_pat_", "github-token", r"github_pat_[A-Za-z0-9_]{20,}+"),
    ("gl", "gitlab-token", r"gl(?:pat|rt|dt|cbt|ptt)-[A-Za-z0-9_.-]{16,}+"),
    ("AKIA", "aws-key-id", r"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("ASIA", "aws-key-id", r"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("FwoGZXIvYXdz", "aws-session-token", r"FwoGZXIvYXdz[A-Za-z0-9/+=%]{40,}+"),
    ("IQoJb3JpZ2lu", "aws-session-token", r"IQoJb3JpZ2lu[A-Za-z0-9/+=%]{40,}+"),
    ("LTAI", "key-id", r"LTAI[A-Za-z0-9]{16,26}(?![A-Za-z0-9_])"),
    ("AIza", "google-key", r"AIza[A-Za-z0-9_-]{30,}+"),
    ("GOCSPX-", "google-key", r"GOCSPX-[A-Za-z0-9_-]{20,}+"),
    ("ya29.", "google-token", r"ya29\.[A-Za-z0-9_.-]{20,}+"),
    # looked behind here, so that task-4-… does not swallow a key after it
    ("sk-", "api-key", r"sk-(?:(?<![A-Za-z0-9]sk-)|(?<=\\[nrt]sk-))[A-Za-z0-9_-]{20,}+"),
    ("sk_live_", "api-key", r"sk_live_[A-Za-z0-9]{16,}+"),
    ("gsk_", "api-key", r"gsk_[A-Za-z0-9]{40,}+"),
    ("xai-", "api-key", r"xai-[A-Za-z0-9]{40,}+"),
    ("pplx-", "api-key", r"pplx-[A-Za-z0-9]{40,}+"),
    ("nvapi-", "api-key", r"nvapi-[A-Za-z0-9_-]{20,}+"),
    ("dapi", "api-key", r"dapi[0-9a-f]{32}(?:-\d)?(?![A-Za-z0-9])"),
    ("r8_", "api-key", r"r8_[A-Za-z0-9]{30,}+"),
    ("SG.", "api-key", r"SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{30,}+"),
    ("tskey-", "api-key", r"tskey-[A-Za-z0-9-]{16,}+"),
    ("wandb_v1_", "wandb-key", r"wandb_v1_[A-Za-z0-9_]{40,}+"),
    ("xox", "slack-token", r"xox[abeoprs]-[A-Za-z0-9-]{10,}+"),
    ("xapp-", "slack-token", r"xapp-[A-Za-z0-9-]{20,}+"),
    ("hooks.slack.com/", "slack-token", r"hooks\.slack\.com/services/[A-Za-z0-9/]{20,}+"),
    ("discord.com/", "token", r"discord\.com/api/webhooks/\d{10,24}/[A-Za-z0-9_-]{40,}+"),
    ("api.telegram.org/bot", "token", r"api\.telegram\.org/bot\d{6,12}:[A-Za-z0-9_-]{30,}+"),
    ("npm_", "npm-token", r"npm_[A-Za-z0-9]{36,}+(?!_)"),
    ("pypi-AgE", "pypi-token", r"pypi-AgE[A-Za-z0-9_-]{40,}+"),
    ("dckr_pat_", "docker-token", r"dckr_pat_[A-Za-z0-9_-]{20,}+"),
    ("hvs.", "token", r"hvs\.[A-Za-z0-9_-]{24,}+"),
    ("dop_v1_", "token", r"dop_v1_[0-9a-f]{40,}+"),
    # Neptune's are a base64 JSON object that starts with {"api_address":
    ("eyJhcGlfYWRkcmVzcy", "neptune-token", r"eyJhcGlfYWRkcmVzcy[A-Za-z0-9+/=_-]{20,}+(?!\.)"),
    ("eyJ", "jwt", r"eyJ[A-Za-z0-9_.-]{16,}+"),
    # How key files begin, where the lines around them are missing.
    ("b3BlbnNzaC1rZXktdjE", "private-key", r"b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/=\\]*+"),
    ("MIIEvQIBADANBgkqhkiG", "private-key", r"MIIEvQIBADANBgkqhkiG[A-Za-z0-9+/=\\]*+"),
    ("MIIEpAIBAAKCAQEA", "private-key", r"MIIEpAIBAAKCAQEA[A-Za-z0-9+/=\\]*+"),
    ("AGE-SECRET-KEY-1", "private-key", r"AGE-SECRET-KEY-1[A-Z0-9]{40,}+"),
)
_compiled = cache(re.compile)  # when first needed: all of them take longer than a short report


def _shaped(text: str) -> Iterator[Span]:
    for start, kind, pattern in _SHAPES:
        if start in text:
            for match in _compiled(pattern).finditer(text):
                if _starts_word(text, match.start()) and _plausible(start, match.group()):
                    yield Span(*match.span(), kind)


def _starts_word(text: str, at: int) -> bool:
    r"""Whether no word goes on into `at`; the n of a written-out `\n`, the 3D of a %3D is none."""
    if at == 0 or not (text[at - 1].isalnum() or text[at - 1] == "_"):
        return True
    return (text[at - 1] in "nrt" and text[at - 2 : at - 1] == "\\") or text[at - 3 : at - 2] == "%"


def _plausible(start: str, found: str) -> bool:
    """What a pattern cannot say in linear time."""
    if start == "eyJ":  # three parts with dots between; five when encrypted
        parts = found.rstrip(".").split(".")
        return len(parts) in (3, 5) and min(len(parts[0]), len(parts[-2])) >= 8
    if start == "sk-":  # not a pod called sk-training-resnet50-worker-0
        rest = found[3:]
        known = rest.startswith(("proj-", "ant-", "or-v1-", "svcacct-", "admin-"))
        return known or "-" not in rest or (_mixed(rest) and rest != rest.lower())
    return True


def _mixed(text: str) -> bool:
    """Whether both letters and digits occur."""
    return any(c.isdigit() for c in text) and any(c.isalpha() for c in text)


# --- headers, addresses, commands ---------------------------------------------------------------

_RUN = r"[a-z0-9._~+/=%:-]"
_WORD = r"[^\s\"']"
_AWS_PAIR = r"\ba[ks]ia[a-z0-9]{16}[\s:,|\"'/=]{1,8}([a-z0-9/+]{40})(?![\w/+])"

# Word of the lower-case text, kinds of the groups, pattern for the lower-case text.
_RULES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "authorization",
        ("token",),
        r"authorization\\{0,3}[\"']?\s{0,3}[:=,]\s{0,3}\\{0,3}[bru]?[\"']?"
        rf"(?:bearer|basic|token|apikey|negotiate) +({_RUN}{{6,}}+)",
    ),
    ("bearer", ("token",), rf"\bbearer +({_RUN}{{16,}}+)"),
    (
        "cookie",
        ("cookie",),
        rf"\bcookie\\{{0,3}}[\"']?: ?[\"']?([\w.-]{{1,64}}=[^\s\"';]{{8,}}+(?:; {_WORD}++)*+)",
    ),
    # postgres://user:password@host, redis://:password@host; a list of host:port is none
    (
        "://",
        ("user", "password"),
        r"://([^\s/:@\"'<>]{0,64}):(?!\d{1,5}[,;)\]])([^\s/\"'<>?]{1,256})@",
    ),
    # https://user@host; in Azure's storage addresses a container stands there
    ("://", ("user",), r"(?<!abfs)(?<!abfss)(?<!wasb)(?<!wasbs)://([^\s/:@\"'<>]{1,256})@"),
    ("@tcp(", ("user", "password"), r"\b([\w.-]{1,64}):([^\s:@/]{1,256})@tcp\("),
    ("@unix(", ("user", "password"), r"\b([\w.-]{1,64}):([^\s:@/]{1,256})@unix\("),
    ("sig", ("signature",), rf"(?<![a-z])sig(?:nature)?=(?=[^\s&]{{0,40}}\d)({_RUN}{{20,}}+)"),
    ("-signature=", ("signature",), rf"-signature=({_RUN}{{20,}}+)"),
    ("-security-token=", ("aws-session-token",), rf"-security-token=({_RUN}{{20,}}+)"),
    # a registry's entry in ~/.docker/config.json, npm's _auth
    (
        "auth",
        ("token",),
        r"(?:\\{0,3}\"auth\\{0,3}\"\s?:\s?\\{0,3}\"|\b_auth ?= ?\"?)([a-z0-9+/]{8,}+={0,2})",
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


def _ruled(text: str, lower: str) -> Iterator[Span]:
    for word, kinds, pattern in _RULES:
        if word in lower:
            for match in _compiled(pattern).finditer(lower):
                for group, kind in enumerate(kinds, start=1):
                    start, end = match.span(group)
                    value = text[start : min(end, start + _JUDGED)]
                    if not value or _placeholder(value):
                        continue
                    if kind == "user" and len(value) >= 20 and _mixed(value):
                        kind = "token"  # noqa: PLW2901
                    yield Span(start, end, kind)


# --- names: password=…, "api_key": "…", --token …, HF_TOKEN=… -------------------------------------

_NAMES = ("token", "key", "secret", "pass", "pwd")

# On lower-case text. After the name: its end (quotes, escaped or not) and `=`, `:`, `=>`; or the
# next item of a printed list or pair; or loosely "is", a blank, an arrow, the bar of a table.
_HEAD = re.compile(
    r"(token|key|secret|passw(?:or)?d|passphrase|pass|pwd)(?:_?\d{1,2})?"
    r"(?:\\{0,3}[\"']?\]?\s{0,4}(?:=>|:=|={1,2}|:(?!:)|%3d)(?P<gap>\s{0,4})"
    r"|\\{0,3}[\"']\s{0,2},\s{0,2}(?:\\{0,3}[\"']value\\{0,3}[\"']\s{0,2}:\s{0,2})?"
    r"(?=\\{0,3}[\"'])"
    r"|(?P<loose> is:? |[ \t]{1,8}(?![-=:|])|\s?(?:->|\|)\s?))"
)
_QUOTE = re.compile(r"[bru]{0,2}(\\{0,3}[\"'])")
_BARE = re.compile(
    r"(?:[^\s\"',;)}\]&\\]"
    # these end a value only when something else begins after them
    r"|[,;)}\]&](?![\s\"')}\],;&]|\Z|[\w.%-]{1,64}[\"']?\s?[=:])"
    r"|\\(?![\"'nrt\\]))++"
)
_MAX_VALUE = 4096
_JUDGED = 128  # characters of a value that are looked at

# Last word before "key" whose value is a secret.
_KEYS = tuple(
    words(
        "api secret access account auth private signing encryption wandb openai anthropic"
        " comet neptune clearml app master service license subscription deploy"
    )
)
# Last word before "token" whose value is a secret whatever it looks like …
_TOKENS = words(
    "access auth hf hub huggingface github gh git gitlab bearer refresh session security api"
    " registry deploy bot slack vault wandb neptune comet clearml jupyter tracking jwt npm pypi"
    " private secret databricks replicate modal service csrf personal pat"
)
_LONG_TOKENS = tuple(word for word in _TOKENS if len(word) > 3)  # also glued: githubtoken
# … and whose value is a piece of text.
_TEXT_TOKENS = words(
    "eos bos pad unk sep cls mask image img video audio vision speech special stop start end begin"
    " next prev first last per num max min new prompt extra added system tool text input output"
    " target word sub time soft virtual think decoder im assistant eot eom fim boi eoi current each"
    " unexpected invalid placeholder ignore default continuous"
)
_OPTION = re.compile(r"--[a-z0-9_.-]{0,40}\Z")
_OWNER = re.compile(r"[a-z0-9_.-]*[a-z0-9_. -]\Z")
_OPAQUE = re.compile(r"[A-Za-z0-9_.~+/=%:-]+\Z")
_LOWER_WORDS = re.compile(r"[a-z]+(?:[-_./][a-z0-9]+)*\Z")
_PATH = re.compile(r"[/~.]|[A-Za-z]:[\\/]|\w{1,12}://")
_PLACEHOLDER = re.compile(
    r"(?:none|null|nil|nan|true|false|yes|no|on|off|str|int|bool|bytes|string|undefined|unset|empty"
    r"|missing|required|redacted|hidden|masked|default|unknown|invalid|failed|expired|not[ _-]set"
    r"|\W*|%[sdr])\Z"
    r"|<[^<>]{0,64}>|\*{2}|\.{3}|…|%\(|\{[\w.]{0,64}(?:![rsa])?\}|\{\{|\[|\$[{(]|x{4}",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"\$[A-Z_][A-Z0-9_]*\Z")
# Source lines of tracebacks: password=self.password, token=os.environ["T"], api_key: Optional[str]
_CODE = re.compile(
    r"(?:self|cls|args?|cfg|config|conf|opts?|options|params|kwargs|hparams|settings|os|environ"
    r"|request|ctx|flags|FLAGS)(?:[.\[]|\Z)"
    r"|[A-Za-z_]\w{0,40}(?:\.[A-Za-z_]\w{0,40}){1,4}[(\[]"
    r"|(?:get|load|read|fetch|make|str|int|Optional|Union|Secret|Field|input)\w{0,40}[(\[]"
    r"|(?:[A-Za-z]\w{0,40}_)?(?:token|key|password|passwd|secret)\Z"
)
# A sentence, a type, a call: "Invalid password: authentication failed", `password: Hidden | None`
_MORE = re.compile(
    r"[A-Za-z]+ [a-z]+(?: |\Z|[.,](?: |\Z))|[A-Za-z_][\w.]{0,40} \| \w|[a-z_][a-z_.]{0,40}\("
)


class _How(NamedTuple):
    """How a value was given."""

    quoted: bool
    spaced: bool  # blanks before it
    loose: bool  # "the token is …", "token …"
    upper: bool  # as a variable of the environment


def _named(text: str, lower: str) -> Iterator[Span]:
    at = 0
    while head := _HEAD.search(lower, at):
        at = head.end()
        before = lower[max(0, head.start() - 40) : head.start()]
        start, end, quoted = _value(text, at)
        value = text[start : min(end, start + _JUDGED)]
        if not value or _placeholder(value):
            continue
        if not quoted and (
            _CODE.match(value) or (head["gap"] and _MORE.match(text, start, start + 80))
        ):
            continue
        loose = head["loose"] is not None and not (
            head["loose"].isspace() and _OPTION.search(before)
        )
        how = _How(quoted, bool(head["gap"]), loose, text[head.start() : head.end(1)].isupper())
        name = head.group(1)
        if _secret(name, before, value, how):
            if not quoted and (whole := _BARE.match(text, start)):
                end = start + len(whole.group().rstrip(".:"))
            yield Span(start, end, name if name in ("token", "key", "secret") else "password")
            at = end


def _value(text: str, at: int) -> tuple[int, int, bool]:
    """Start and end of the value at `at`, and whether it stands in quotes.

    Of a bare one only as much as is judged; it may be as long as the line.
    """
    if quote := _QUOTE.match(text, at):
        end = text.find(quote.group(1), quote.end(), quote.end() + _MAX_VALUE)
        if end >= 0:
            return quote.end(), end, True
        at = quote.end()
    bare = _BARE.match(text, at, at + _JUDGED)
    return at, at + len(bare.group().rstrip(".:")) if bare else at, False


def _placeholder(value: str) -> bool:
    return bool(_PLACEHOLDER.match(value) or _VARIABLE.match(value))


def _secret(name: str, before: str, value: str, how: _How) -> bool:
    """Whether `value` of `<before><name>` is to be hidden."""
    path = _PATH.match(value) is not None
    opaque = _OPAQUE.match(value) is not None and _mixed(value) and not _LOWER_WORDS.match(value)
    if how.loose and not (opaque and len(value) >= (8 if how.upper else 16)):
        return name.startswith("passw") and opaque and len(value) >= 8
    if name == "pwd":  # also the environment's working folder
        return len(value) >= 3 and not path
    if name == "pass":  # DB_PASS=…, not a pass over the data
        return how.upper and len(value) >= 3 and not value.isdigit() and how.quoted >= how.spaced
    if name not in ("token", "key", "secret"):
        return len(value) >= 3
    if path and not (len(value) == 40 and _mixed(value)):  # base64 knows slashes
        return False
    owner = _OWNER.search(before)
    last = re.split("[_. -]", owner.group().rstrip("_. -"))[-1] if owner else ""
    if name == "key":
        return len(value) >= 6 and last.endswith(_KEYS)
    if name == "secret":
        return len(value) >= 8 and (opaque or last != "")
    if last in _TOKENS or last.endswith(_LONG_TOKENS):
        return len(value) >= 6
    return opaque and len(value) >= (8 if how.upper else 16) and last not in _TEXT_TOKENS
