"""Settings with a place in each framework: what is wrong with one, and what the shipped have."""

from dataclasses import replace
from pathlib import Path

import pytest

from diagnose.catalog import check
from diagnose.catalog.document import read_catalog
from diagnose.catalog.load import load_catalog
from diagnose.catalog.remedies import remedy_problems, setting_problems
from diagnose.catalog.schema import Catalog, CauseClass, Place, Remedy, Run, Setting
from diagnose.errors import CatalogError

PAGE = "https://example.org/page"
TORCH = Place(Run("python", ["init(timeout=2)"], "torch"), PAGE)
SETTING = Setting("timeout", "How long", "The same on all ranks.", [TORCH])
OWN = """\
settings:
  - id: quota
    title: The quota
    about: What is left of it.
    places:
      - {framework: axolotl, setting: 'quota: 2', file: a.yaml, reference: 'https://example.org'}
      - {shell: [export A=1, export B=2], reference: 'https://example.org'}
classes:
  - id: own.quota
    title: The quota is used up
    explanation: It is.
    remedies: [{when: fix, do: Raise it, setting: quota}]
    restart: retry
    restart_why: It may help.
"""
# What fixes names of launchers, containers and libraries, which no log states as its framework.
ELSEWHERE = {
    "apptainer", "compose", "docker", "hccl", "libfabric", "mmengine", "mpi",
    "oneccl", "ray", "ucx",
}  # fmt: skip


def with_remedy(remedy: Remedy, setting: Setting = SETTING) -> Catalog:
    cause = CauseClass("env.config", "t", "e", [remedy], "retry", "why")
    return Catalog([], [], {"env.config": cause}, "test", settings={setting.id: setting})


def test_a_file_of_settings_is_read(tmp_path: Path) -> None:
    catalog = read_catalog([(tmp_path / "own.yaml", OWN.encode())], "test")
    assert catalog.settings["quota"].places == [
        Place(Run("setting", ["quota: 2"], "axolotl", "a.yaml"), "https://example.org"),
        Place(Run("shell", ["export A=1", "export B=2"]), "https://example.org"),
    ]
    assert catalog.classes["own.quota"].remedies[0].setting == "quota"


def test_own_settings_join_the_shipped_ones_and_are_checked(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN)
    catalog = load_catalog([tmp_path])
    assert catalog.settings["quota"].title == "The quota"
    assert catalog.settings["timeout"] == load_catalog().settings["timeout"]
    assert check.check([tmp_path]) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("setting: quota}", "setting: quotas}", "own.yaml:12: own.quota: setting: unknown"),
        ("framework: axolotl, ", "colour: red, ", "own.yaml:6: quota: run: colour: unknown key"),
        (", reference: 'https://example.org'}\n      - {s", "}\n      - {s", "own.yaml:6: quota: "),
    ],
)
def test_what_is_wrong_with_an_own_one_is_told(
    old: str, new: str, problem: str, tmp_path: Path
) -> None:
    assert old in OWN
    (tmp_path / "own.yaml").write_text(OWN.replace(old, new))
    with pytest.raises(CatalogError) as caught:
        load_catalog([tmp_path])
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        (SETTING, "timeout: no remedy names this setting"),
        (replace(SETTING, id="a.b"), "a.b: ids of settings are words joined by hyphens"),
        (replace(SETTING, places=[TORCH, TORCH]), "timeout: torch: is there twice"),
        (
            replace(SETTING, places=[replace(TORCH, reference="the docs")]),
            "timeout: torch: reference: the docs is not a URL",
        ),
    ],
)
def test_a_wrong_setting_is_told(setting: Setting, problem: str) -> None:
    named = set() if setting is SETTING else {setting.id}
    assert list(setting_problems(setting, named)) == [problem]


def test_the_places_of_a_setting_are_held_to_what_remedies_are() -> None:
    wrong = replace(TORCH, run=Run("shell", ["dmesg -C"]))
    catalog = with_remedy(Remedy("fix", "d", setting="timeout"), replace(SETTING, places=[wrong]))
    assert list(remedy_problems(catalog)) == ["timeout: clears a log: dmesg -C"]


def test_what_a_remedy_says_of_a_setting_must_fit() -> None:
    catalog = with_remedy(Remedy("fix", "d", run=[Run("note", ["n"], "jax")], setting="timeout"))
    assert list(remedy_problems(catalog)) == [
        "env.config: remedies: run: what is for one framework is a place of timeout"
    ]
    unknown = with_remedy(Remedy("fix", "d", setting="timeouts"))
    assert "env.config: remedies: setting: unknown setting timeouts" in remedy_problems(unknown)


def test_the_shipped_places_have_names_that_logs_state() -> None:
    catalog = load_catalog()
    stated = {
        value
        for signature in catalog.signatures
        for name, value in signature.facts.items()
        if name in ("framework", "launcher")
    }
    places = [place for setting in catalog.settings.values() for place in setting.places]
    assert {place.run.framework for place in places} - stated - {""} == ELSEWHERE


@pytest.mark.parametrize(
    ("framework", "line"),
    [
        ("torch", "init_process_group(timeout=timedelta(hours=2))"),
        ("transformers", "--ddp_timeout 7200"),
        ("axolotl", "ddp_timeout: 7200"),
        ("nemo", "export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=7200"),
        ("megatron", "--distributed-timeout-minutes 120"),
        ("torchtitan", "--comm.init_timeout_seconds 7200 --comm.train_timeout_seconds 7200"),
        ("vllm", "--distributed-timeout-seconds 7200   # in newer versions"),
        ("sglang", "--dist-timeout 7200"),
        ("hccl", "export HCCL_EXEC_TIMEOUT=7200"),
    ],
)
def test_the_timeout_of_each_framework(framework: str, line: str) -> None:
    runs = [place.run for place in load_catalog().settings["timeout"].places]
    assert next(run.lines for run in runs if run.framework == framework) == [line]
