"""What YAML says of something to run becomes its kind and its lines."""

from typing import Any

import pytest

from diagnose.catalog.remedies import FieldError, type_runs, typed_run


def test_a_text_is_one_line() -> None:
    typed = {"kind": "shell", "lines": ["ls"], "framework": "slurm"}
    assert typed_run({"shell": "ls", "framework": "slurm"}, []) == typed
    assert typed_run({"note": ["a", "b"]}, []) == {"kind": "note", "lines": ["a", "b"]}


@pytest.mark.parametrize(
    ("run", "at"),
    [
        ({}, [2, "run", 0]),
        ({"shell": "a", "python": "b"}, [2, "run", 0]),
        ({"shell": "a", "lines": ["b"]}, [2, "run", 0, "lines"]),
        ({"setting": []}, [2, "run", 0, "setting"]),
    ],
)
def test_an_error_tells_where(run: dict[str, Any], at: list[str | int]) -> None:
    with pytest.raises(FieldError) as caught:
        typed_run(run, [2, "run", 0])
    assert caught.value.at == at


def test_the_places_of_a_setting_keep_their_reference() -> None:
    place = {"note": "a", "framework": "jax", "reference": "b", "unless": "c"}
    item: dict[str, Any] = {"places": [place]}
    type_runs(item)
    run = {"kind": "note", "lines": ["a"], "framework": "jax"}
    assert item == {"places": [{"run": run, "reference": "b", "unless": "c"}]}


@pytest.mark.parametrize("item", [{"remedies": [{"run": [{}]}]}, {"places": [{"reference": "b"}]}])
def test_an_error_is_found_in_its_entry(item: dict[str, Any]) -> None:
    with pytest.raises(FieldError) as caught:
        type_runs(item)
    assert caught.value.at == (["remedies", 0, "run", 0] if "remedies" in item else ["places", 0])


@pytest.mark.parametrize(
    "item",
    [{}, {"remedies": "x"}, {"remedies": ["x"]}, {"remedies": [{"run": "x"}]},
     {"remedies": [{"run": ["x"]}]}, {"places": "x"}, {"places": ["x"]}],
)  # fmt: skip
def test_what_is_no_such_mapping_is_left_to_the_schema(item: dict[str, Any]) -> None:
    before = repr(item)
    type_runs(item)
    assert repr(item) == before
