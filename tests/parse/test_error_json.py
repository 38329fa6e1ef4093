from __future__ import annotations

import json

import pytest

from diagnose.parse.error_json import ElasticError, read_error_json

STACK = 'Traceback (most recent call last):\n  File "t.py", line 1\nRuntimeError: boom'


def test_reads_what_record_writes() -> None:
    data = json.dumps(
        {
            "message": {
                "message": "RuntimeError: boom: at 3",
                "extraInfo": {"py_callstack": STACK, "timestamp": "1795262526"},
            }
        }
    ).encode()

    assert read_error_json(data) == [
        ElasticError("RuntimeError: boom: at 3", "RuntimeError", STACK, 1795262526.0)
    ]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        # C++ handler
        (
            {"message": "watchdog died", "timestamp": 17},
            ElasticError("watchdog died", None, None, 17.0),
        ),
        # rewritten by the parent
        (
            {"message": {"message": "x", "errorCode": 3, "extraInfo": {"timestamp": 5}}},
            ElasticError("x", None, None, 5.0, 3),
        ),
        (
            {"message": {"message": {"message": "torch.cuda.OutOfMemoryError: x"}}},
            ElasticError("torch.cuda.OutOfMemoryError: x", "torch.cuda.OutOfMemoryError"),
        ),
        ({"message": "KeyboardInterrupt"}, ElasticError("KeyboardInterrupt", "KeyboardInterrupt")),
        (
            {"message": {"message": "x", "extraInfo": {"timestamp": "soon", "py_callstack": 5}}},
            ElasticError("x"),
        ),
    ],
)  # fmt: skip
def test_reads_the_other_forms(record: object, expected: ElasticError) -> None:
    assert read_error_json(json.dumps(record)) == [expected]


def test_reads_one_object_a_line() -> None:
    data = '{"message": "a", "timestamp": 1}\nnoise\n{"message": "b", "timestamp": 2}\n'

    assert [error.message for error in read_error_json(data)] == ["a", "b"]


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b'{"message": {"message": "cut', b'{"message": 5}', b"\xff\xfe", b"{}",
     b'{"message":' * 5000, b"[" * 100_000, b" " * (8 << 20) + b'{"message": "too large"}'],
    ids=["empty", "list", "cut", "number", "bytes", "object", "nested", "deep", "large"],
)  # fmt: skip
def test_nothing_to_read(data: bytes) -> None:
    assert read_error_json(data) == []
