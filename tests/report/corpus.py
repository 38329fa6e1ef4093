"""The corpus of secrets and look-alikes, `secrets.yaml`."""

import re
from pathlib import Path

import yaml

# "¦" keeps the corpus from having the exact format of real tokens.
_CORPUS = yaml.safe_load(
    (Path(__file__).parent / "secrets.yaml").read_text(encoding="utf-8").replace("¦", "")
)
SECRETS: list[tuple[str, str]] = [(line, redacted) for line, redacted in _CORPUS["secrets"]]
INNOCENT: list[str] = _CORPUS["innocent"]
DOUBTFUL: list[str] = _CORPUS["doubtful"]

MASK = re.compile(r"\[([a-z]+(?:-[a-z]+)*)-\d+\]")
PEOPLE = {"user", "email"}


def values(line: str, redacted: str) -> dict[str, str]:
    """What redaction takes out of a line: value → kind."""
    kinds = MASK.findall(redacted)
    parts = [re.escape(part) for part in re.split(MASK.pattern.replace("(", "(?:", 1), redacted)]
    match = re.fullmatch("(.+?)".join(parts), line, re.S)
    assert match is not None, redacted
    return dict(zip(match.groups(), kinds, strict=True))
