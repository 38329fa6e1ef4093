import pytest

from diagnose.parse.tracebacks import PythonFrame, frames_in, library_path, raised_in

PRINTED = """\
Traceback (most recent call last):
  File "/job/train.py", line 9, in <module>
    main()
    ~~~~^^
  File "/job/model.py", line 40, in Model.forward
  File "<string>", line 1, in <lambda>
ValueError: bad
"""


def test_frames_with_their_code_and_without_carets() -> None:
    assert frames_in(PRINTED.splitlines()) == [
        PythonFrame("/job/train.py", 9, "<module>", "main()"),
        PythonFrame("/job/model.py", 40, "Model.forward"),
        PythonFrame("<string>", 1, "<lambda>"),
    ]


def test_of_chained_tracebacks_the_last() -> None:
    more = 'Traceback (most recent call last):\n  File "/job/a.py", line 1, in f\nKeyError: 1'
    assert frames_in([*PRINTED.splitlines(), *more.splitlines()]) == [
        PythonFrame("/job/a.py", 1, "f")
    ]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("KeyError: 'text'", ("KeyError", "'text'")),
        ("KeyError", ("KeyError", "")),
        ("AssertionError: ", ("AssertionError", "")),
        ("pkg.errors.Refused: no: really", ("pkg.errors.Refused", "no: really")),
        ("  | ValueError: in a group", ("ValueError", "in a group")),
        ("StopIteration:", ("StopIteration", "")),
    ],
)
def test_an_exception(line: str, found: tuple[str, str]) -> None:
    assert raised_in(line) == found


def test_a_traceback_begins_in_the_same_line() -> None:
    found = raised_in("RuntimeError: no such typeTraceback (most recent call last):")
    assert found == ("RuntimeError", "no such type")


@pytest.mark.parametrize("line", ["", "two words: here", "3 errors: x", "a/b: c", "KeyError:x"])
def test_no_exception(line: str) -> None:
    assert raised_in(line) is None


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("/opt/lib/python3.11/site-packages/pkg/a.py", "pkg/a.py"),
        ("/usr/lib/python3.12/threading.py", "threading.py"),
        ("/src/pytorch/torch/nn/modules/module.py", "torch/nn/modules/module.py"),
        ("h5py/_objects.pyx", "h5py/_objects.pyx"),
        ("<frozen runpy>", "<frozen runpy>"),
        ("/job/train.py", None),
        ("/job/torch_utils.py", None),
        ("<ipython-input-3-1a>", None),
        ("C:\\job\\train.py", None),
    ],
)
def test_paths_of_installed_modules(file: str, path: str | None) -> None:
    assert library_path(file) == path
