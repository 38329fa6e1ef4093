"""Secrets told by their name: password=…, "api_key": "…", --token …, HF_TOKEN=…."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from diagnose.lazy import expression
from diagnose.redact.forms import JUDGED, Span, drawn, mixed, placeholder, words

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

# Last word before "key" whose value is a secret.
_KEYS = tuple(
    words(
        "api secret access account auth private signing encryption wandb openai anthropic"
        " comet neptune clearml app master service license subscription deploy kaggle azure aws"
        " google gemini gcp hf mistral cohere together groq replicate fireworks deepseek dashscope"
        " zhipu moonshot siliconflow swanlab runpod lambda modal pinecone qdrant tavily serper"
        " langchain langsmith langfuse jina voyage stripe datadog newrelic honeycomb sendgrid"
        " mailgun resend linear storage shared webhook hmac jwt fernet cipher consumer vault"
        " registry customer"
    )
)
# Of variables of the environment, whose KEY is none.
_PLAIN_KEYS = words(
    "cache sort primary foreign group hash state store partition lookup public host known routing"
    " metric label feature column dict map input output prefix image text"
)
# Last word before "pass" whose value is a password, also in small letters.
_PASSES = tuple(
    words(
        "bind db database user smtp mail ftp ssh sudo admin root mysql pg postgres redis mongo"
        " rabbitmq ansible become login http proxy ldap imap svc service account ssl tls cert"
        " keystore truststore vnc wifi rclone encryption backup es elastic kafka"
    )
)
# Last word before "token" whose value is a secret whatever it looks like …
_TOKENS = words(
    "access auth hf hub huggingface github gh git gitlab bearer refresh session security api"
    " registry deploy bot slack vault wandb neptune comet clearml jupyter tracking jwt npm pypi"
    " private secret databricks replicate modal service csrf personal pat sas webhook account"
    " kubernetes argo airflow"
)
_LONG_TOKENS = tuple(word for word in _TOKENS if len(word) > 3)  # also glued: githubtoken
# … and whose value is a piece of text.
_TEXT_TOKENS = words(
    "eos bos pad unk sep cls mask image img video audio vision speech special stop start end begin"
    " next prev first last per num max min new prompt extra added system tool text input output"
    " target word sub time soft virtual think decoder im assistant eot eom fim boi eoi current each"
    " unexpected invalid placeholder ignore default continuous"
)
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


_KINDS = {"token": "token", "key": "key", "secret": "secret", "secretstring": "secret"} | {
    "auth": "token", "credential": "secret", "credentials": "secret",
}  # fmt: skip


class _How(NamedTuple):
    """How a value was given."""

    quoted: bool
    spaced: bool  # blanks before it
    loose: bool  # "the token is …", "token …"
    upper: bool  # as a variable of the environment


def named(text: str, lower: str) -> Iterator[Span]:
    """Values of one line whose name says that they are secret."""
    at = 0
    while head := _HEAD.search(lower, at):
        at = head.end()
        before = lower[max(0, head.start() - 40) : head.start()]
        element = head["element"]
        if element and "</" not in element and not _TAG.search(before):
            continue
        start, end, quoted = _content(text, at) if element else _value(text, at)
        value = text[start : min(end, start + JUDGED)]
        if not value or placeholder(value):
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
            yield Span(start, end, _KINDS.get(name, "password"))
            at = end


def _content(text: str, at: int) -> tuple[int, int, bool]:
    """Like `_value`, of an element of XML."""
    content = _CONTENT.match(text, at)
    return at, at + len(content.group().rstrip()) if content else at, True


def _value(text: str, at: int) -> tuple[int, int, bool]:
    """Start and end of the value at `at`, and whether it stands in quotes.

    Of a bare one only as much as is judged; it may be as long as the line.
    """
    if quote := _QUOTE.match(text, at):
        end = text.find(quote.group(1), quote.end(), quote.end() + _MAX_VALUE)
        if end >= 0:
            return quote.end(), end, True
        at = quote.end()
    bare = _BARE.match(text, at, at + JUDGED)
    return at, at + len(bare.group().rstrip(".:")) if bare else at, False


class _Value(NamedTuple):
    """A value and what is told of it by itself and by the words before its name."""

    text: str
    before: str
    last: str  # word before the name
    path: bool
    opaque: bool

    def of(self, least: int) -> bool:
        """Whether it has `least` characters or more."""
        return len(self.text) >= least


def _secret(name: str, before: str, text: str, how: _How) -> bool:
    """Whether `text`, the value of `<before><name>`, is to be hidden."""
    path = _PATH.match(text) is not None
    opaque = _OPAQUE.match(text) is not None and mixed(text) and not _LOWER_WORDS.match(text)
    if how.loose and not (opaque and len(text) >= (8 if how.upper else 16)):
        return name.startswith("passw") and opaque and len(text) >= 8
    judge = _JUDGES.get(name)
    if judge is None:
        return len(text) >= 3
    owner = _OWNER.search(before)
    last = re.split("[_. -]", owner.group().rstrip("_. -"))[-1] if owner else ""
    return judge(_Value(text, before, last, path, opaque), how)


def _pwd(value: _Value, _: _How) -> bool:
    """Also the environment's working folder."""
    return value.of(3) and not value.path


def _pass(value: _Value, how: _How) -> bool:
    """DB_PASS=…, and pass=… where no other word is before it; not a pass over the data."""
    digits = value.text.isdigit()
    if value.last in _PASSES:
        return value.of(3) and not value.path and not (digits and not value.of(4))
    if value.last == "" and value.opaque and value.of(8) and not value.path:
        return drawn(value.text)
    return how.upper and value.of(3) and not digits and how.quoted >= how.spaced


def _auth(value: _Value, how: _How) -> bool:
    """REDISCLI_AUTH=…, not http_auth=basic."""
    if value.last == "rediscli":
        return value.of(3)
    if how.upper and value.before.endswith("_"):
        return value.opaque and value.of(6)
    return value.opaque and value.of(10) and not value.path and not how.loose


def _pw(value: _Value, how: _How) -> bool:
    """bind_pw=…, rootpw: …, not bw_pw=12."""
    if value.last.endswith(_PASSES):
        return value.of(3) and not value.path and not value.text.isdigit()
    whole = not value.before[-1:].isalnum()
    return whole and value.of(6) and (how.upper or value.opaque)


def _credential(value: _Value, _: _How) -> bool:
    return value.opaque and value.of(16) and not value.path


def _key(value: _Value, how: _How) -> bool:
    if _is_path(value):
        return False
    if value.last.endswith(_KEYS):
        return value.of(6)
    variable = how.upper and value.before.endswith("_") and value.last not in _PLAIN_KEYS
    return variable and value.opaque and value.of(16)


def _named_secret(value: _Value, _: _How) -> bool:
    return not _is_path(value) and value.of(8) and (value.opaque or value.last != "")


def _token(value: _Value, how: _How) -> bool:
    if _is_path(value):
        return False
    if value.last in _TOKENS or value.last.endswith(_LONG_TOKENS):
        return value.of(6)
    if value.last in _TEXT_TOKENS:
        return False
    return value.opaque and (value.of(8 if how.upper else 16) or drawn(value.text))


def _is_path(value: _Value) -> bool:
    """A path, that is, and no base64, which knows slashes too."""
    return value.path and not (len(value.text) == 40 and mixed(value.text))


# By name; a value of any other name (password, passphrase …) is hidden unless it is tiny.
_JUDGES: dict[str, Callable[[_Value, _How], bool]] = {
    "pwd": _pwd, "pw": _pw, "pass": _pass, "auth": _auth, "key": _key, "token": _token,
    "secret": _named_secret, "secretstring": _named_secret,
    "credential": _credential, "credentials": _credential,
}  # fmt: skip
