"""The list of another project's messages, and what the catalog is said to know of them."""

from __future__ import annotations

from pathlib import Path

import message_sites
import pytest
from sites.c_code import CallForm, c_sites
from sites.judge import Judge, Judgement, catalog_of
from sites.plain_text import found, topics
from sites.python_code import PythonForms, python_sites
from sites.sources import read_specs, sites_of
from sites.template import Site, Slot, distinct, printf

from diagnose.catalog.load import load_catalog

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tools" / "sources"
WARN = CallForm(("WARN",), "printf", "gpu1:42:43 [0] {file}:{line} NCCL WARN {}")
LOG = CallForm(("LOG",), "stream", "E1122 {file}:{line}] {}", only=frozenset({"ERROR"}))
CHECK = CallForm(("TORCH_CHECK",), "concat", "RuntimeError: {}", skip=1)
SLURM = CallForm(("error",), "printf", "slurmd: error: {}", conversions={"pJ": "JobId=42"})

C_CODE = r"""
#define WARN(...) log(__VA_ARGS__)
// WARN("a comment")
#define CALL(x) do { if (x) WARN("call failed : %s", \
   text); } while (0)
void f() {
  WARN("lost %" PRIu64 " of %d%% bytes "
       "from %s", lost, share, socketToString(&addr));
  NOWARN("another name");
  LOG(INFO) << "all is well";
  LOG(ERROR) << prefix() << "watchdog of " << rank << c10::str(" waits ", n, " s");
  TORCH_CHECK(a("no text") == 1, "store ", name, " is gone: ", fmt::format("{} of {{{}}}", a, b));
  error("%pJ: step of %m is gone", job);
}
"""


def texts(code: str, form: CallForm) -> list[str]:
    return [site.text for site in c_sites("src/net.cc", code, [form])]


def test_c_calls_give_their_formats() -> None:
    assert texts(C_CODE, WARN) == ["call failed : {}", "lost {} of {}% bytes from {}"]


def test_c_samples_are_lines_of_the_program() -> None:
    site = list(c_sites("src/net.cc", C_CODE, [WARN]))[1]
    assert site.samples() == [
        "gpu1:42:43 [0] net.cc:7 NCCL WARN lost 3 of 3% bytes from 10.0.0.7<4242>"
    ]
    assert site.neutral() == "gpu1:42:43 [0] abc.cc:7 NCCL WARN abc"


def test_streams_and_joined_arguments() -> None:
    assert texts(C_CODE, LOG) == ["{}watchdog of {} waits {} s"]
    assert texts(C_CODE, CHECK) == ["store {} is gone: {} of {{}}"]


def test_methods_by_what_they_are_called_on() -> None:
    form = CallForm(("klog.Errorf",), "printf", "{}")
    assert texts('klog.Errorf("lost %v", x); log.Errorf("other %v", x)', form) == ["lost {}"]


def test_only_what_is_assigned() -> None:
    form = CallForm(("str",), "concat", "{}", assigned=True)
    code = 'auto m = ::c10::str("kept ", n); f(c10::str("inside another call"));'
    assert texts(code, form) == ["kept {}"]


def test_conversions_of_a_source_of_its_own() -> None:
    (site,) = c_sites("src/a.c", C_CODE, [SLURM])
    assert site.samples() == ["slurmd: error: JobId=42: step of Input/output error is gone"]


PYTHON_CODE = """
from pkg.errors import LostError
class OwnError(RuntimeError): ...
def wait(rank, seconds):
    message = (f"rank {rank} waited "
               "in the store")
    logger.error("gone: %s after %.1f s", name, seconds)
    logger.info("fine")
    if rank: raise RuntimeError(message).with_traceback(None) from None
    elif seconds: raise LostError("lost {} of {total}".format(rank, total=3))
    elif name: raise OwnError
    else: raise OwnError("own %(what)s" % {"what": 1})
    raise ValueError("an argument is wrong")
"""


def test_python_exceptions_and_logs() -> None:
    forms = PythonForms(logs={"error": "ERROR {}"}, without_types=frozenset({"ValueError"}))
    sites = list(python_sites("pkg/run.py", PYTHON_CODE, forms))
    assert [(site.function, site.kind_of_error, site.text) for site in sites] == [
        ("wait", "", "gone: {} after {} s"),
        ("wait", "RuntimeError", "rank {} waited in the store"),
        ("wait", "pkg.errors.LostError", "lost {} of {}"),
        ("wait", "pkg.run.OwnError", "own {}"),
    ]
    assert sites[2].samples()[0] == "pkg.errors.LostError: lost 3 of 3"
    assert sites[1].neutral() == "RuntimeError: abc"


def test_only_the_types_that_a_part_names() -> None:
    forms = PythonForms(types=frozenset({"ValueError"}))
    sites = python_sites("pkg/run.py", PYTHON_CODE, forms)
    assert [site.text for site in sites] == ["an argument is wrong"]


def test_values_are_numbers_named_or_texts() -> None:
    site = Site(
        "a.py", 1, "raise", "{}", (Slot("?", "name"), " ended with ", Slot("?", "exitcode"))
    )
    assert site.samples() == ["3 ended with 3", "abc ended with 3", "abc ended with abc"]


def test_code_that_is_none_has_no_sites() -> None:
    assert list(python_sites("a.py", "def f(:", PythonForms())) == []


def test_topics_of_help_files() -> None:
    text = "# about\n[lost]\nThe daemon on %s\nis gone.\n#\n[late]\nToo late.\n"
    assert [(site.function, site.text, site.number) for site in topics("help-a.txt", text)] == [
        ("lost", "The daemon on {} is gone.", 2),
        ("late", "Too late.", 6),
    ]


def test_what_an_expression_finds() -> None:
    (site,) = found("a.sh", 'err "no ${image} for %d"', 'err "(?P<text>[^"]*)"', "[E] {}", {})
    assert site.samples() == ["[E] no 3 for 3", "[E] no abc for 3"]


def test_each_message_counts_once_and_says_something() -> None:
    def site(number: int, *pieces: str | Slot) -> Site:
        return Site("a.c", number, "error", "{}", pieces)

    sites = [site(1, "gone ", Slot("d")), site(2, "gone ", Slot("s")), site(3, Slot(), ": ")]
    assert [one.number for one in distinct(sites)] == [1]


def test_printf_knows_widths_and_names() -> None:
    assert printf("%-*s%5.2f%%|%(who)s", ["a", "b"]) == [
        *("", Slot("s", "a"), "", Slot("f", "b"), "", "%", "|", Slot("s", "who"), ""),
    ]


PATTERNS = """
signatures:
  - {id: a.lost, title: A, role: effect, strength: weak,
     match: [{regex: 'packets of \\d+ were lost'}]}
  - {id: a.any, title: B, role: effect, strength: weak, match: [{regex: 'NCCL WARN '}]}
  - {id: a.trouble, title: C, role: context, strength: weak, generic: true, signal: trouble,
     match: [{regex: 'unheard'}]}
  - {id: a.known-trouble, title: D, role: context, strength: weak, signal: trouble,
     match: [{regex: 'odd 7'}]}
  - {id: a.version, title: E, role: context, strength: weak, facts: {version.a: '1'},
     match: [{regex: 'release 7'}]}
  - {id: a.was-lost, title: F, role: effect, strength: weak, match: [{regex: 'was lost'}]}
"""


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    (tmp_path / "own.yaml").write_text(PATTERNS)
    return Judge(catalog_of(tmp_path))


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("packets of %d were lost", WARN.line, Judgement("named", "a.lost")),
        ("something else", WARN.line, Judgement("family", "a.any")),
        ("unheard of", "{}", Judgement("family", "a.trouble")),
        ("something else", "{}", Judgement("none")),
        ("an odd %d", "{}", Judgement("none")),
        ("an odd 7", "{}", Judgement("named", "a.known-trouble")),
        ("release 7", "{}", Judgement("family", "a.version")),
        ("it was lost", "{}", Judgement("named", "a.was-lost")),
        ("packets of 3 were lost, one was lost", "{}", Judgement("named", "a.lost")),
    ],
)
def test_what_covers_a_site(judge: Judge, text: str, line: str, expected: Judgement) -> None:
    assert judge.judge(Site("a.cc", 1, "WARN", line, tuple(printf(text)))) == expected


def test_a_word_covers_a_site() -> None:
    site = Site("a.c", 1, "error", "{}", ("no answer: EHOSTUNREACH",))
    assert Judge(load_catalog()).judge(site) == Judgement("word", "word.errno.ehostunreach")


def test_a_run_counts_and_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkout = tmp_path / "demo-1.2"
    (checkout / "src").mkdir(parents=True)
    (checkout / "src" / "a.cc").write_text(
        'WARN("packets of %d were lost"); WARN("new text"); WARN("old spelling is deprecated");'
    )
    sources, patterns = tmp_path / "sources", tmp_path / "patterns"
    sources.mkdir()
    patterns.mkdir()
    (patterns / "own.yaml").write_text(PATTERNS)
    (sources / "every.yaml").write_text((SOURCES / "every.yaml").read_text())
    (sources / "demo.yaml").write_text(
        "demo: {title: Demo, repository: 'https://example.org', parts: [{files: ['src/*.cc'],"
        " calls: [{call: [WARN], form: printf, line: 'h:1:2 [0] {file}:{line} NCCL WARN {}'}]}]}"
    )
    options = ["--sources", str(sources), "--patterns", str(patterns)]
    assert message_sites.main(["demo", str(checkout), "--missing", *options]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "demo 1.2: 2 sites, named 1, word 0, family 1, none 0, left out 1",
        "src/a.cc:1 [family a.any] new text",
    ]


def test_sources_are_read_without_running_anything(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "init.cc").write_text('WARN("Cuda failure %d", code);')
    spec = read_specs(SOURCES)["nccl"]
    assert [site.text for site in sites_of(spec, tmp_path)] == ["Cuda failure {}"]
