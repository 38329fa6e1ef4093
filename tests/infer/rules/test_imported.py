"""What is raised while an installed package is imported, and what only looks like it."""

from __future__ import annotations

import pytest

import diagnose

OWN = ("/workspace/train.py", "<module>", "import acme_attn")
PACKAGE = (
    "/env/lib/python3.11/site-packages/acme_attn/__init__.py",
    "<module>",
    "from .x import f",
)
BOOTSTRAP = ("<frozen importlib._bootstrap>", "_call_with_frames_removed", "")
INNER = ("/env/lib/python3.11/site-packages/torch/library.py", "register_fake", "lib.define(name)")
DATACLASS = ("/env/lib/python3.11/dataclasses.py", "_get_field", "raise ValueError(text)")
PLUGIN = ("/workspace/plugins/mine.py", "<module>", "acme_attn.register(1)")
RUNPY = ("/env/lib/python3.11/runpy.py", "_run_code", "exec(code, run_globals)")
TYPE_ERROR = "TypeError: unsupported operand type(s) for |: 'type' and 'NoneType'"


def judged(*frames: tuple[str, str, str], raised: str = TYPE_ERROR) -> diagnose.Diagnosis:
    lines = ["[rank1]: Traceback (most recent call last):"]
    for file, function, code in frames:
        lines.append(f'[rank1]:   File "{file}", line 7, in {function}')
        lines += [f"[rank1]:     {code}"] if code else []
    text = "\n".join([*lines, f"[rank1]: {raised}"])
    return diagnose.diagnose(diagnose.load_text(f"{text}\n"))


@pytest.mark.parametrize(
    ("frames", "raised", "words"),
    [
        ((OWN, PACKAGE, INNER), TYPE_ERROR, "raised in torch while acme_attn was imported."),
        ((OWN, BOOTSTRAP, PACKAGE), "NameError: name 'List' is not defined", "raised while acme_"),
        ((OWN, PACKAGE, DATACLASS), "ValueError: mutable default for x", "raised while"),
        ((PLUGIN, OWN, PACKAGE), "SyntaxError: invalid syntax", "raised while acme_attn was"),
    ],
)  # fmt: skip
def test_what_a_package_raises_at_its_import_is_of_versions(
    frames: tuple[tuple[str, str, str], ...], raised: str, words: str
) -> None:
    found = judged(*frames, raised=raised)
    cause = found.root_cause
    assert (found.verdict, cause.cause, cause.confidence) == ("failed", "env.version", "medium")
    assert words in cause.summary
    assert found.culprits.ranks == [1]
    assert "raised at import" in next(one.text for one in found.reasons if one.step == "verdict")


@pytest.mark.parametrize(
    ("frames", "raised"),
    [
        ((OWN,), TYPE_ERROR),  # the user's own module
        ((OWN, PLUGIN, INNER), TYPE_ERROR),  # what it calls at its import
        ((OWN, PACKAGE, PLUGIN, INNER), TYPE_ERROR),  # a plugin of the user's
        ((RUNPY, PACKAGE, INNER), TYPE_ERROR),  # the program itself, by `python -m`
        ((PACKAGE, INNER), TYPE_ERROR),  # the same as a script
        ((OWN, ("/env/site-packages/acme.egg/EGG-INFO/scripts/acme", *PACKAGE[1:])), TYPE_ERROR),
        ((OWN, INNER), TYPE_ERROR),
        ((OWN, PACKAGE), "KeyError: 'ACME_HOME'"),
        ((OWN, (*PACKAGE[:2], 'check(os.environ["ACME"])')), "RuntimeError: what is that"),
    ],
)
def test_what_only_looks_like_it_is_an_exception(
    frames: tuple[tuple[str, str, str], ...], raised: str
) -> None:
    assert judged(*frames, raised=raised).root_cause.cause == "crash.exception"
