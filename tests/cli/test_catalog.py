"""`catalog` and `explain`, and signatures of one's own."""

import json
from pathlib import Path

import pytest

from diagnose.cli import main as cli
from tests.cli.running import triage
from tests.own import LINE, README_ENTRY

OWN = """\
signatures:
  - id: own.store.gone
    title: The token store was not mounted
    class: slow.storage
    role: cause
    strength: decisive
    culprit: self
    match:
      - regex: 'token store (?P<name>\\S+) not mounted'
        example: {line: 'rank 3: token store a not mounted', captures: {name: a}}
    near_miss: ['token store a mounted']
    remedies:
      - {when: now, do: Mount it, why: The job reads it first, run: [{shell: mount /tokens}]}
    restart: fix_first
    references: ['https://example.org/tokens']
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.yaml").write_text(OWN)
    return tmp_path


def test_catalog_list(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["catalog", "list", "--patterns", str(own), "--class", "slow.storage"]
    assert cli.run(arguments) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    wanted = ["own.store.gone", "cause", "slow.storage", "The", "token"]
    assert wanted in [row[:5] for row in rows]
    assert {row[2] for row in rows} == {"slow.storage"}
    assert cli.run([*arguments, "--role", "aftermath"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_explain_an_entry(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "own.store.gone", "--patterns", str(own)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "own.store.gone  The token store was not mounted"
    for line in (
        "  class       slow.storage",
        "  to blame    the rank or host that printed it",
        r"  token store (?P<name>\S+) not mounted",
        "  Mount it. The job reads it first.",
        "      mount /tokens",
        "  Fix the cause before restarting.",
        "  https://example.org/tokens",
    ):
        assert line in lines


def test_explain_a_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.yaml").write_text(
        """\
settings:
  - id: quota
    title: The quota
    about: What is left.
    places:
      - {framework: axolotl, setting: 'quota: 2', file: a.yaml, reference: 'https://example.org/a'}
      - {framework: axolotl, note: not less, reference: 'https://example.org/b'}
      - {shell: export Q=2, reference: 'https://example.org/c'}
"""
    )
    assert cli.run(["explain", "quota", "--patterns", str(tmp_path)]) == 0
    assert (
        capsys.readouterr().out
        == """\
quota  The quota
  What is left.

axolotl
      In a.yaml:
      quota: 2
      https://example.org/a
      not less
      https://example.org/b

Any other
      export Q=2
      https://example.org/c
"""
    )


def test_a_class_says_where_its_settings_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "data.preparation"]) == 0
    assert (
        """\
  the run only load it.
      Where each framework has it:
      diagnose explain prepared-data
"""
        in capsys.readouterr().out
    )


def test_explain(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "slow.storage", "--patterns", str(own)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("slow.storage  ")
    assert "What to do now" in out
    assert "  own.store.gone: The token store was not mounted" in out.splitlines()


def test_an_entry_is_begun_and_tested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = ["catalog", "new", "own.store.gone", "--line", "store 7 gone", "--role", "effect"]
    folder = ["--patterns", str(tmp_path)]
    assert cli.run([*new, *folder]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{tmp_path}/own/store.yaml:2: own.store.gone\n")
    assert said.endswith(f"\ndiagnose catalog test own.store.gone --patterns {tmp_path}\n")
    assert cli.run(["catalog", "test", "own.store.gone", *folder]) == 1
    said = capsys.readouterr().out
    assert said == "own.store.gone: TODO: something is still to be filled in\n"
    path = tmp_path / "own" / "store.yaml"
    path.write_text(path.read_text().replace("TODO", "nothing like it"))
    assert cli.run(["catalog", "test", "own.store.gone", *folder]) == 0
    said = capsys.readouterr().out
    assert said == f"{path}: own.store.gone: 1 example, 1 near miss: no problems\n"
    assert cli.run([*new, *folder]) == 2
    assert "the id is taken" in capsys.readouterr().err
    assert cli.run(["catalog", "new", "a.b.c", "--role", "guilt", *folder]) == 2
    assert "unknown role 'guilt'" in capsys.readouterr().err


@pytest.mark.slow
def test_where_a_line_belongs(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["catalog", "where", "--patterns", str(own)]
    assert cli.run([*where, "[rank3]: token store a not mounted"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "matches own.store.gone: The token store was not mounted (cause, slow.storage, decisive)",
        "captures name=a",
    ]
    assert cli.run([*where, " "]) == 2
    assert "the text is empty" in capsys.readouterr().err


def test_one_file_is_checked(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = own if own.is_file() else next(own.rglob("*.yaml"))
    assert cli.run(["catalog", "check", str(file)]) == 0
    assert "no problems" in capsys.readouterr().out


def test_catalog_check_passes_and_counts(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["catalog", "check", str(own)]) == 0
    assert capsys.readouterr().out.endswith(" cause classes: no problems\n")


def test_catalog_check_finds_a_pattern_that_misses_its_example(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own / "own.yaml").write_text(OWN.replace("rank 3: token store a not", "token store not"))
    assert cli.run(["catalog", "check", str(own)]) == 1
    assert "own.store.gone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (OWN.replace("culprit", "kulprit"), "own.yaml:7: own.store.gone: kulprit: "),
        (OWN.replace("decisive", "huge"), "own.yaml:6: own.store.gone: strength: "),
        (OWN.replace("role: cause", "role: [cause"), "own.yaml:6: not valid YAML: "),
        (OWN.replace("(?P<name>", "((?P<name>"), "own.store.gone: does not compile: "),
        (
            OWN.replace("slow.storage", "slow.disk"),
            "own.store.gone: class: unknown class slow.disk",
        ),
        ('!!python/object/apply:os.system ["id"]', "own.yaml:1: not valid YAML: "),
        ("just text", "own.yaml:1: expected a mapping with signatures"),
    ],
    ids=["unknown field", "wrong value", "YAML", "pattern", "class", "code", "text"],
)
def test_wrong_signatures_are_told_with_file_line_and_field(
    own: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (own / "own.yaml").write_text(text)
    (own / "a.log").write_text("[rank3]: token store a not mounted\n")
    status, err, answer = triage(capsys, own / "a.log", "--patterns", own)
    assert (status, answer) == (2, {})
    assert message in err
    assert err.startswith("diagnose: ")
    assert err.count("\n") == 1


@pytest.mark.slow
def test_the_signature_in_the_readme_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "acme.yaml").write_text(README_ENTRY)
    (tmp_path / "job.log").write_text(LINE)
    cli.run(["catalog", "check", str(tmp_path / "acme.yaml")])
    assert "acme." not in capsys.readouterr().out
    log, own = str(tmp_path / "job.log"), str(tmp_path / "acme.yaml")
    assert cli.run(["triage", log, "--patterns", own, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["root_cause"]["signature"] == "acme.tokens.not-mounted"
    assert answer["culprits"]["ranks"] == [3]
