from diagnose.catalog.schema import Run
from diagnose.diagnosis import Diagnosis, Evidence, RemedyStep, RootCause
from diagnose.report.safe import scrubber

TOKEN = "hf_" + "a1B2" * 8


def test_the_same_secret_gets_the_same_mask_and_facts_stay() -> None:
    scrub = scrubber(redact=True)
    first = scrub.text(f"rank 3 login with {TOKEN} on gpu-node-07")
    assert TOKEN not in first
    assert first.startswith("rank 3 login with [")
    assert first.endswith("] on gpu-node-07")
    mask = first.removeprefix("rank 3 login with ").removesuffix(" on gpu-node-07")
    assert scrub.text(f"again {TOKEN}") == f"again {mask}"
    assert scrub.text("again hf_" + "Z9y8" * 8) != f"again {mask}"


def test_without_redaction_secrets_stay_and_escapes_still_go() -> None:
    assert scrubber(redact=False).text(f"\x1b[31m{TOKEN}\x1b[0m\u202e") == TOKEN


def test_a_long_line_is_cut_after_masking() -> None:
    line = scrubber(redact=True).text("x" * 40 + f" token {TOKEN}", limit=60)
    assert "hf_" not in line
    assert scrubber(redact=True).text("y" * 100, limit=20) == "y" * 19 + "…"


def test_indentation_of_a_row_stays() -> None:
    assert scrubber(redact=True).row("    File x, line 3\t") == "    File x, line 3"


def test_a_diagnosis_is_scrubbed_everywhere_and_commands_keep_their_lines() -> None:
    raw = Diagnosis(
        "failed",
        RootCause("crash.exception", f"\x1b[1mbad {TOKEN}", "", "low"),
        evidence=[Evidence("a.log", 1, f"text {TOKEN}", "why")],
        remedies=[RemedyStep("now", "do", "", [Run("python", ["if x:", "    y()"])])],
    )
    done = scrubber(redact=True).diagnosis(raw)
    assert TOKEN not in str(done)
    assert "\x1b" not in done.root_cause.title
    assert done.remedies[0].run == [Run("python", ["if x:", "    y()"])]
    mask = done.root_cause.title.removeprefix("bad ")
    assert done.evidence[0].text == f"text {mask}"
