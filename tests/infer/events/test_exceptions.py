"""The exception that a verdict rests on: type, text, place, rank, whoever else writes between."""

from pathlib import Path

import diagnose
from diagnose.diagnosis import Diagnosis

LIB = "/opt/lib/python3.11/site-packages/torch/utils/data"


def verdict(tmp_path: Path, text: str) -> Diagnosis:
    (tmp_path / "job.log").write_text(text)
    return diagnose.diagnose(diagnose.load(tmp_path))


def traceback(rank: str = "", end: str = "KeyError: 'text'", line: int = 77) -> list[str]:
    lines = [
        "Traceback (most recent call last):",
        '  File "/job/train.py", line 21, in <module>',
        "    main()",
        f'  File "{LIB}/dataloader.py", line 631, in __next__',
        "    data = self._next_data()",
        f'  File "/job/data.py", line {line}, in __iter__',
        '    yield row["text"]',
        f'  File "{LIB}/fetch.py", line 9, in fetch',
        end,
    ]
    return [f"{rank}{line}" for line in lines]


def test_type_text_own_frame_and_rank(tmp_path) -> None:
    found = verdict(tmp_path, "\n".join(traceback("[rank6]: ")))
    assert found.root_cause.summary == "KeyError: 'text' in data.py:77 (__iter__), rank 6."
    raised = found.exception
    assert raised is not None
    assert (raised.type, raised.message, raised.rank) == ("KeyError", "'text'", 6)
    assert (raised.source, raised.first_line, raised.line) == ("job.log", 1, 9)
    assert [(frame.line, frame.own, frame.code) for frame in raised.frames] == [
        (21, True, "main()"),
        (631, False, "data = self._next_data()"),
        (77, True, 'yield row["text"]'),
        (9, False, ""),
    ]
    assert raised.where == raised.frames[2]


def test_lines_of_others_between_are_left_out(tmp_path) -> None:
    first, second = traceback("[rank1]: "), traceback("[rank2]: ", "TypeError: no", line=80)
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    raised = verdict(tmp_path, "\n".join(mixed)).exception
    assert raised is not None
    lines = {1: 77, 2: 80}
    assert raised.rank in lines
    assert [frame.line for frame in raised.frames] == [21, 631, lines[raised.rank], 9]
    assert raised.type == {1: "KeyError", 2: "TypeError"}[raised.rank]


def test_what_a_worker_of_the_data_loader_raised(tmp_path) -> None:
    outer = "KeyError: Caught KeyError in DataLoader worker process 0."
    inner = [
        "Original Traceback (most recent call last):",
        f'  File "{LIB}/_utils/worker.py", line 351, in _worker_loop',
        '  File "/job/collate.py", line 5, in collate',
        "    return batch[0]['labels']",
        "KeyError: 'labels'",
    ]
    found = verdict(tmp_path, "\n".join([*traceback(end=outer), *inner]))
    assert found.root_cause.summary == "KeyError: 'labels' in collate.py:5 (collate)."


def test_a_traceback_in_one_line_of_json(tmp_path) -> None:
    text = r"\n".join(line.replace('"', r"\"") for line in traceback())
    line = f'{{"time": "2026-01-02T03:04:05Z", "level": "error", "message": "{text}"}}'
    found = verdict(tmp_path, line)
    assert found.exception is not None
    assert found.root_cause.summary == "KeyError: 'text' in data.py:77 (__iter__)."


def test_without_a_traceback_type_and_text(tmp_path) -> None:
    found = verdict(tmp_path, "[rank3]: RuntimeError: no such layer: decoder.9\n")
    assert found.root_cause.summary.startswith("RuntimeError: no such layer: decoder.9, rank 3.")
    assert found.exception is not None
    assert found.exception.where is None
    assert found.exception.frames == []


def test_only_frames_of_packages_name_no_place(tmp_path) -> None:
    lines = [line for line in traceback() if "/job/" not in line]
    found = verdict(tmp_path, "\n".join(lines))
    assert found.root_cause.summary == "KeyError: 'text'."


def test_a_name_that_no_entry_knows_is_read_below_the_frames(tmp_path) -> None:
    steps = [f"[rank{rank}]: step 4 loss 2.1" for rank in (0, 1, 2)]
    own = traceback("[rank2]: ", "mypkg.errors.ShardShort: shard 17 holds 4095 samples")
    mixed = [line for text in own for line in (text, steps[0])]
    found = verdict(tmp_path, "\n".join([*steps, *mixed, *steps[:2]]))
    assert found.root_cause.summary == (
        "mypkg.errors.ShardShort: shard 17 holds 4095 samples in data.py:77 (__iter__), rank 2."
    )
    raised = found.exception
    assert raised is not None
    assert (raised.type, raised.rank, raised.first_line, raised.line) == (
        "mypkg.errors.ShardShort", 2, 4, 20,
    )  # fmt: skip


def test_a_bare_name_that_no_entry_knows_is_read_too(tmp_path) -> None:
    found = verdict(tmp_path, "\n".join(["step 1 loss 2.1", *traceback(end="DatasetExhausted")]))
    assert found.root_cause.summary == "DatasetExhausted in data.py:77 (__iter__)."


def test_a_traceback_that_breaks_off_says_where_it_was() -> None:
    frames = ('  File "/w/train.py", line 9, in <module>', "    main()",
              '  File "/w/data.py", line 7, in read', "    rows = load(path)",
              '  File "/v/site-packages/datasets/load.py", line 3, in load')  # fmt: skip
    lines = ["Traceback (most recent call last):", *frames, "    return open(path)"]
    log = "".join(f"[rank1]: {line}\n" for line in lines)
    found = diagnose.diagnose(diagnose.load_text(log))
    assert found.root_cause.summary == (
        "An exception in data.py:7 (read) that the log does not name, rank 1."
    )
    assert found.exception is not None
    assert (found.exception.type, found.exception.rank) == ("", 1)
    assert [frame.function for frame in found.exception.frames] == ["<module>", "read", "load"]


def test_of_an_exception_that_only_a_word_of_the_catalog_knows_the_text_is_told(tmp_path) -> None:
    line = "RuntimeError: HCCL AllReduce: Unsupported data type kBool"
    assert verdict(tmp_path, line).root_cause.summary == f"{line}."


def test_a_pickle_that_another_rank_sent_is_no_file(tmp_path) -> None:
    end = "_pickle.UnpicklingError: invalid load key, '\\x00'."
    received = traceback(end=end)
    received[-2] = (
        '  File "/opt/torch/distributed/distributed_c10d.py", line 2649, in _tensor_to_object'
    )
    assert verdict(tmp_path, "\n".join(received)).root_cause.cause == "crash.exception"
    assert verdict(tmp_path, "\n".join(traceback(end=end))).root_cause.cause == "checkpoint.corrupt"
