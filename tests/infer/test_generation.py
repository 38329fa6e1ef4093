"""Generation that never ends: named where nothing else failed, silent beside any failure."""

import pytest

import diagnose
from diagnose.catalog.schema import Run

ENDLESS = "transformers.issues.endless-generation"
WORDS = "After loading the checkpoint the model never stops generating."
SPECIAL = (
    "Special tokens have been added in the vocabulary, make sure the associated word embeddings "
    "are fine-tuned or trained."
)
PAD = "Setting `pad_token_id` to `eos_token_id`:2 for open-end generation."
CUT = '{"choices":[{"text":"yes yes","finish_reason":"length"}]}'
STOPPED = '{"choices":[{"text":"Yes.","finish_reason":"stop"}]}'
SHARDS = "Loading checkpoint shards: 100%|##########| 4/4 [00:07<00:00,  1.90s/it]"
STEPS = [f"{{'loss': 1.{9 - i}, 'learning_rate': 1e-05, 'epoch': 0.{i}}}" for i in range(1, 6)]
TIMEOUT = (
    "[rank1]:[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=900, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
    "600300 milliseconds before timing out."
)
EXITED = (
    "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 "
    "(pid: 12) of binary: /usr/bin/python"
)
TRUNCATED = (
    "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"
)


def judged(*lines: str) -> diagnose.Diagnosis:
    return diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))


@pytest.mark.parametrize(
    "words",
    [
        WORDS,
        "the model keeps repeating the same sentence",
        "endless output after loading the checkpoint",
        "it generates until max_new_tokens",
        "LLaMA2-Accessory: inference repeats the last turn of the conversation endlessly",
        "The fine-tuned model does not generate the EOS token",
        "model gets stuck in a loop repeating the same sentence",
        "推理时模型一直重复输出，停不下来",
    ],
)
def test_the_words_of_a_user_name_it(words: str) -> None:
    result = judged(SHARDS, words)
    assert result.root_cause.signature == ENDLESS
    assert (result.verdict, result.root_cause.confidence) == ("failed", "medium")
    assert result.culprits.ranks == []


@pytest.mark.parametrize(
    "words",
    [
        "Training never stops at the end of the epoch",
        "the same error repeats itself for every rank",
        "The dataloader repeats the same batch over and over",
        "generation hangs on 8 GPUs and never ends",
        "The model may generate endless text if no EOS token is set",
        "the model does not stop training after max_steps",
        "Generating train split: 0 examples [00:00, ? examples/s]",
        "model.generate(max_new_tokens=512, repetition_penalty=1.1)",
    ],
)
def test_other_words_do_not(words: str) -> None:
    assert judged(SHARDS, words).root_cause.signature != ENDLESS


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (TIMEOUT, "desync.missing_rank"),
        (EXITED, "crash.exception"),
        ("ValueError: bad thing", "crash.exception"),
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "crash.gpu_oom",
        ),
        ("Segmentation fault (core dumped)", "crash.native"),
        (TRUNCATED, "checkpoint.corrupt"),
    ],
)
@pytest.mark.parametrize("last", [True, False], ids=["words-last", "words-first"])
def test_a_failure_comes_before_the_words(failure: str, cause: str, last: bool) -> None:
    result = judged(*([failure, WORDS] if last else [WORDS, failure]))
    assert result.root_cause.cause == cause


def test_words_after_a_training_that_went_well_still_count() -> None:
    log = ["***** Running training *****", *STEPS]
    assert judged(*log, WORDS).root_cause.signature == ENDLESS
    assert judged(WORDS, *log).verdict == "running"
    assert judged(*log).verdict == "running"


@pytest.mark.parametrize(
    "line",
    [
        "INFO 05-01 10:00:00 metrics.py:351] Avg prompt throughput: 1.2 tokens/s, Avg generation "
        "throughput: 30.1 tokens/s, Running: 1 reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV "
        "cache usage: 1.0%, CPU KV cache usage: 0.0%.",
        "[2025-01-27 11:08:34 TP0] Decode batch. #running-req: 1, #token: 3, token usage: 0.00, "
        "gen throughput (token/s): 30.1, #queue-req: 0",
    ],
    ids=["vllm", "sglang"],
)
def test_a_server_that_answers_does_not_speak_against_the_words(line: str) -> None:
    for log in ([line] * 3 + [WORDS], [WORDS] + [line] * 3):
        result = judged(*log)
        assert (result.root_cause.signature, result.phase) == (ENDLESS, "inference")


def test_words_after_a_finished_training_count() -> None:
    log = ["***** Running training *****", *STEPS, "Training completed."]
    assert judged(*log, WORDS).root_cause.signature == ENDLESS
    assert judged(WORDS, *log).verdict == "healthy"


def test_remedies_start_with_the_checkpoint_and_name_the_framework_s_own_settings() -> None:
    steps = judged(SPECIAL, "## Load pretrained from ['./out/epoch1']", WORDS).remedies
    assert steps[0].run == [Run("shell", ["diagnose checkpoint <dir>"])]
    stop = next(step for step in steps if step.do.startswith("Stop at every end symbol"))
    assert stop.run[0].lines[0].startswith("model.generate(..., additional_stop_symbols=")


def test_answers_that_are_all_cut_at_the_limit() -> None:
    assert judged(SPECIAL, CUT, CUT).root_cause.signature == "generation.issues.never-stopped"
    assert judged(PAD, "stop reason: max_tokens").root_cause.cause == "env.config"


@pytest.mark.parametrize(
    "log",
    [
        [PAD],
        [SPECIAL],
        [CUT, CUT],
        [SPECIAL, CUT, STOPPED],
        [SPECIAL, "SamplingParams(n=1, ignore_eos=True, max_tokens=128)", CUT],
        [SPECIAL, "***** Running training *****", *STEPS, CUT],
        [SPECIAL, "***** Running Evaluation *****", CUT],
    ],
)
def test_what_healthy_servers_and_jobs_print_names_nothing(log: list[str]) -> None:
    assert judged(*log).root_cause.cause in ("none", "unknown")
