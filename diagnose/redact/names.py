"""Secrets told by their name: password=…, "api_key": "…", --token …, HF_TOKEN=…."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from diagnose.lazy import expression
from diagnose.redact import words
from diagnose.redact.views import Span

JUDGED = 128  # characters of a value that are looked at
_PLACEHOLDER = expression(
    r"(?i:(?:none|null|nil|nan|true|false|yes|no|on|off|str|int|bool|bytes|string|undefined|unset"
    r"|empty|missing|required|redacted|hidden|masked|default|unknown|invalid|failed|expired"
    r"|not[ _-]set|\W*|%[sdr])\Z"
    r"|<[^<>]{0,64}>|\*{2}|\.{3}|…|%\(|\{[\w.]{0,64}(?:![rsa])?\}|\{\{|\[|\$[{(]|x{4})"
    r"|\$[A-Z_][A-Z0-9_]*\Z"
)


def placeholder(value: str) -> bool:
    """Whether a value only stands for one: `None`, `<redacted>`, `${HF_TOKEN}`."""
    return _PLACEHOLDER.match(value) is not None


def mixed(text: str) -> bool:
    """Whether both letters and digits occur."""
    return any(c.isdigit() for c in text) and any(c.isalpha() for c in text)


def drawn(text: str) -> bool:
    """Whether a short word looks drawn: none that joins words and numbers, as Llama3Chat does."""
    if len(text) < 8 or not mixed(text):
        return False
    kinds = "".join("d" if c.isdigit() else "a" if c.isalpha() else "." for c in text)
    if kinds.count("ad") + kinds.count("da") >= 4:
        return True
    small = "".join(c if c.islower() else " " for c in text).split()
    return text.lower() != text != text.upper() and max(map(len, small), default=0) <= 3


NAMES = ("token", "key", "secret", "pass", "pwd", "auth", "credential", "pw")

# On lower-case text. After the name: its end (quotes, escaped or not) and `=`, `:`, `=>`; or the
# next item of a printed list or pair; or loosely "is", a blank, an arrow, the bar of a table.
_HEAD = expression(
    r"(token|key|secret(?:string)?|passw(?:or)?d|passphrase|passcode|pass|pwd|pw|auth|credentials?)"
    r"(?:_?\d{1,2})?"
    r"(?:\\{0,8}[\"']?(?:\\{0,8}[\"'])?\]?\s{0,4}(?:=>|:=|={1,2}|:(?!:))(?P<gap>\s{0,4})"
    r"|\\{0,8}[\"']?,?\s{1,4}\\{0,8}[\"']?value\\{0,8}[\"']?\s{0,2}[:=]\s{0,2}"
    r"|\\{0,8}[\"']\s{0,2},\s{0,2}(?=\\{0,8}[\"'])"
    r"|(?P<element>(?:\s[^<>]{0,79}[^<>-]|</[a-z]{1,10}>\s{0,4}<[a-z]{1,10})?>)\s{0,4}(?:<!\[cdata\[)?(?=[^\s<])"
    r"|(?P<loose> is:? |[ \t]{1,8}(?![-=:|])|\s?(?:->|\|)\s?))"
)
# Of quotes in quotes, as of a dict with the texts of another one, the inner.
_QUOTE = expression(r"[bru]{0,2}(?:\\{0,8}\"(?=\\{0,8}')|\\{0,8}'(?=\\{0,8}\"))?(\\{0,8}[\"'])")
_BARE = expression(
    r"(?:[^\s\"',;)}\]&\\]"
    # these end a value only when something else begins after them
    r"|[,;)}\]&](?![\s\"')}\],;&]|\Z|[\w.%-]{1,64}[\"']?\s?[=:])"
    r"|\\(?![\"'nrt\\]))+"
)
_CONTENT = expression(r"[^<>\]]{1,4096}")  # of an element of XML
_TAG = expression(r"<[a-z0-9_.:-]{0,40}\Z")
_MAX_VALUE = 4096

# Last words before "key" and "pass" whose value is a secret, and of variables whose KEY is none.
_KEYS = tuple(words("keys"))
_PLAIN_KEYS = words("plain_keys")
_PASSES = tuple(words("passes"))
# Last words before "token" whose value is a secret whatever it looks like, or a piece of text.
_TOKENS = words("tokens")
_LONG_TOKENS = tuple(word for word in _TOKENS if len(word) > 3)  # also glued: githubtoken
_TEXT_TOKENS = words("text_tokens")
_OPTION = expression(r"--[a-z0-9_.-]{0,40}\Z")
_OWNER = expression(r"[a-z0-9_.-]*[a-z0-9_. -]\Z")
_OPAQUE = expression(r"[A-Za-z0-9_.~+/=%:-]+\Z")
_LOWER_WORDS = expression(r"[a-z]+(?:[-_./][a-z0-9]+)*\Z")
_PATH = expression(r"[/~.]|[A-Za-z]:[\\/]|\w{1,12}://")
# Source lines of tracebacks: password=self.password, token=os.environ["T"], api_key: Optional[str]
_CODE = expression(
    r"(?:self|cls|args?|cfg|config|conf|opts?|options|params|kwargs|hparams|settings|os|environ"
    r"|request|ctx|flags|FLAGS)(?:[.\[]|\Z)"
    r"|[A-Za-z_]\w{0,40}(?:\.[A-Za-z_]\w{0,40}){1,4}[(\[]"
    r"|(?:get|load|read|fetch|make|str|int|Optional|Union|Secret|Field|input)\w{0,40}[(\[]"
    r"|(?:[A-Za-z]\w{0,40}_)?(?:token|key|password|passwd|secret)\Z"
)
# A sentence, a type, a call: "Invalid password: authentication failed", `password: Hidden | None`
_MORE = expression(
    r"[A-Za-z]+ [a-z]+(?: |\Z|[.,](?: |\Z))|[A-Za-z_][\w.]{0,40} \| \w|[a-z_][a-z_.]{0,40}\("
)


@dataclass
class _Value:
    """A value, its name, and how it was given."""

    name: str
    before: str  # the name
    text: str
    quoted: bool
    spaced: bool  # blanks before it
    loose: bool  # "the token is …", "token …"
    upper: bool  # as a variable of the environment

    def __post_init__(self) -> None:
        self.size = len(self.text)
        self.path = _PATH.match(self.text) is not None
        # … and no base64, which knows slashes too
        self.only_path = self.path and not (self.size == 40 and mixed(self.text))
        self.opaque = bool(
            _OPAQUE.match(self.text) and mixed(self.text) and not _LOWER_WORDS.match(self.text)
        )

    @cached_property
    def last(self) -> str:
        """The word before the name."""
        owner = _OWNER.search(self.before)
        return re.split("[_. -]", owner.group().rstrip("_. -"))[-1] if owner else ""

    def kind(self) -> str:
        """The kind of secret that it is, "" where it is none."""
        kind, judge = _NAMED.get(self.name, _NAMED["password"])
        if self.loose and not (self.opaque and self.size >= (8 if self.upper else 16)):
            return kind if self.name.startswith("passw") and self.opaque and self.size >= 8 else ""
        return kind if judge(self) else ""


def named(text: str, lower: str) -> Iterator[Span]:
    """Values of one line whose name says that they are secret."""
    at = 0
    while head := _HEAD.search(lower, at):
        at = head.end()
        before = lower[max(0, head.start() - 40) : head.start()]
        element, gap, loose = head["element"], bool(head["gap"]), head["loose"]
        if element and "</" not in element and not _TAG.search(before):
            continue
        start, end, quoted = _value(text, at, element)
        value = text[start : min(end, start + JUDGED)]
        if not value or placeholder(value):
            continue
        if not quoted and (_CODE.match(value) or (gap and _MORE.match(text, start, start + 80))):
            continue
        free = loose is not None and not (loose.isspace() and _OPTION.search(before))
        upper = text[head.start() : head.end(1)].isupper()
        if kind := _Value(head[1], before, value, quoted, gap, free, upper).kind():
            if not quoted and (whole := _BARE.match(text, start)):
                end = start + len(whole.group().rstrip(".:"))
            yield Span(start, end, kind)
            at = end


def _value(text: str, at: int, element: str | None) -> tuple[int, int, bool]:
    """Start and end of the value at `at`, and whether it stands in quotes or in an element of XML.

    Of a bare one only as much as is judged; it may be as long as the line.
    """
    if element:
        content = _CONTENT.match(text, at)
        return at, at + len(content.group().rstrip()) if content else at, True
    if quote := _QUOTE.match(text, at):
        end = text.find(quote.group(1), quote.end(), quote.end() + _MAX_VALUE)
        if end >= 0:
            return quote.end(), end, True
        at = quote.end()
    bare = _BARE.match(text, at, at + JUDGED)
    return at, at + len(bare.group().rstrip(".:")) if bare else at, False


# --- judges, by name ------------------------------------------------------------------------------


def _pwd(value: _Value) -> bool:
    """Also the environment's working folder."""
    return value.size >= 3 and not value.path


def _pass(value: _Value) -> bool:
    """DB_PASS=…, and pass=… where no other word is before it; not a pass over the data."""
    digits = value.text.isdigit()
    if value.last in _PASSES:
        return value.size >= 3 and not value.path and not (digits and value.size < 4)
    if value.last == "" and value.opaque and value.size >= 8 and not value.path:
        return drawn(value.text)
    return value.upper and value.size >= 3 and not digits and value.quoted >= value.spaced


def _auth(value: _Value) -> bool:
    """REDISCLI_AUTH=…, not http_auth=basic."""
    if value.last == "rediscli":
        return value.size >= 3
    if value.upper and value.before.endswith("_"):
        return value.opaque and value.size >= 6
    return value.opaque and value.size >= 10 and not value.path and not value.loose


def _pw(value: _Value) -> bool:
    """bind_pw=…, rootpw: …, not bw_pw=12."""
    if value.last.endswith(_PASSES):
        return value.size >= 3 and not value.path and not value.text.isdigit()
    whole = not value.before[-1:].isalnum()
    return whole and value.size >= 6 and (value.upper or value.opaque)


def _credential(value: _Value) -> bool:
    return value.opaque and value.size >= 16 and not value.path


def _key(value: _Value) -> bool:
    if value.only_path or value.last.endswith(_KEYS):
        return not value.only_path and value.size >= 6
    variable = value.upper and value.before.endswith("_") and value.last not in _PLAIN_KEYS
    return variable and value.opaque and value.size >= 16


def _secret(value: _Value) -> bool:
    return not value.only_path and value.size >= 8 and (value.opaque or value.last != "")


def _token(value: _Value) -> bool:
    if value.only_path or value.last in _TOKENS or value.last.endswith(_LONG_TOKENS):
        return not value.only_path and value.size >= 6
    if value.last in _TEXT_TOKENS:
        return False
    return value.opaque and (value.size >= (8 if value.upper else 16) or drawn(value.text))


# By name: the kind of a value, and who judges it; of others (passwd, passphrase …) the first.
_NAMED: dict[str, tuple[str, Callable[[_Value], bool]]] = {
    "password": ("password", lambda value: value.size >= 3), "pass": ("password", _pass),
    "pwd": ("password", _pwd), "pw": ("password", _pw), "auth": ("token", _auth),
    "token": ("token", _token), "key": ("key", _key), "secret": ("secret", _secret),
    "secretstring": ("secret", _secret), "credential": ("secret", _credential),
    "credentials": ("secret", _credential),
}  # fmt: skip
