from __future__ import annotations

from typing import Any

import pytest

from diagnose.parse.prefix import peel

from .said import MS, US, said, stamp

NOON = "2024-05-01 12:00:00"
AT = {"stamp": stamp(NOON)}
AT_MS = {"stamp": stamp(NOON + ".123", MS)}
INFO = {"level": "INFO"}


@pytest.mark.parametrize(
    ("line", "message", "expected"),
    [
        # DeepSpeed: log_dist's [Rank r] is global
        (
            f"[{NOON},123] [INFO] [logging.py:96:log_dist] [Rank 3] DeepSpeed info: version=0.14.4",
            "DeepSpeed info: version=0.14.4",
            AT_MS | INFO | {"rank": 3, "origin": "logging.py:96", "names": ["deepspeed"]},
        ),
        (
            f"worker-0: [{NOON},123] [WARNING] [real_accelerator.py:162:get_accelerator]   x",
            "  x",
            AT_MS | {"host": "worker-0", "level": "WARNING", "origin": "real_accelerator.py:162",
                     "names": ["pdsh", "deepspeed"]},
        ),
        # no logger of DeepSpeed's: [Rank r] may be a rank in a group
        (f"[{NOON}] [INFO] [Rank 3] x", "[Rank 3] x",
         AT | INFO | {"group_rank": 3, "names": ["date"]}),
        # the rank before the level, as formats of training programs have it
        (f"{NOON},123 [rank3] INFO train: step 5/12", "step 5/12",
         AT_MS | INFO | {"rank": 3, "origin": "train", "names": ["iso"]}),
        (f"{NOON},123 [Rank 3] [ERROR] lost", "lost",
         AT_MS | {"level": "ERROR", "rank": 3, "names": ["iso"]}),
        (f"{NOON},123 [rank3] ERROR torch.OutOfMemoryError: no", "torch.OutOfMemoryError: no",
         AT_MS | {"level": "ERROR", "rank": 3, "names": ["iso"]}),
        # axolotl: [RANK:n] is LOCAL_RANK
        (
            f"[{NOON},123] [INFO] [axolotl.utils.data.load:12] [PID:44] [RANK:3] x",
            "x",
            AT_MS | INFO | {"local_rank": 3, "pid": 44, "origin": "axolotl.utils.data.load:12",
                            "names": ["axolotl"]},
        ),
        (
            f"[{NOON},123] [ERROR] [axolotl.train:12] [PID:44] x",
            "x",
            AT_MS | {"level": "ERROR", "pid": 44, "origin": "axolotl.train:12",
                     "names": ["axolotl"]},
        ),
        # Megatron, mmseg, hydra's colorlog, paddle
        (f" [{NOON}.123456] iteration 5/ 10", "iteration 5/ 10",
         {"stamp": stamp(NOON + ".123456", US), "names": ["date"]}),
        (f"[{NOON}] [INFO]: mIOU: 0.848", "mIOU: 0.848", AT | INFO | {"names": ["date"]}),
        (f"[{NOON},123][torch.nn][INFO] - x", "x", AT_MS | INFO | {"names": ["colorlog"]}),
        (f"[{NOON},123] [    INFO] - x", "x", AT_MS | INFO | {"names": ["date"]}),
        # Horovod, SGLang, Ray's C++
        (f"[{NOON}.724380: W /a/stall_inspector.cc:105] x", "x",
         {"stamp": stamp(NOON + ".72438", US), "level": "WARNING",
          "origin": "/a/stall_inspector.cc:105", "names": ["horovod"]}),
        (f"[{NOON} TP14] x", "x",
         AT | {"group_rank": 14, "actor": "TP14", "names": ["sglang"]}),
        (f"[{NOON} DP1 TP3] x", "x",
         AT | {"group_rank": 3, "actor": "DP1 TP3", "names": ["sglang"]}),
        (f"[{NOON},123 W 281 282] (gcs_server) gcs_health_check_manager.cc:108: x", "x",
         AT_MS | {"pid": 281, "level": "WARNING", "origin": "gcs_health_check_manager.cc:108",
                  "names": ["ray-core"]}),
        # LLaMA2-Accessory, detectron2
        ("[12:00:00.123456] x", "x", {"stamp": stamp("12:00:00.123456", US), "names": ["time"]}),
        ("[05/01 12:00:00 d2.engine]: x", "x",
         {"stamp": stamp("-05-01 12:00:00"), "names": ["detectron2"]}),
        # a bare date and its tails
        (f"{NOON}.123 | WARNING  | utils.train:__init__:45 - x", "x",
         AT_MS | {"level": "WARNING", "origin": "utils.train:__init__:45", "names": ["loguru"]}),
        (f"{NOON}.123 | INFO     | __main__:train:26 -", "",
         AT_MS | INFO | {"origin": "__main__:train:26", "names": ["loguru"]}),
        (f"{NOON},123 maskrcnn.trainer INFO: x: y", "x: y",
         AT_MS | INFO | {"origin": "maskrcnn.trainer", "names": ["iso"]}),
        (f"{NOON},123 the last ERROR was caught", "the last ERROR was caught",
         AT_MS | {"names": ["iso"]}),
        ("24/05/01 12:00:00 INFO storage.BlockManager: x", "storage.BlockManager: x",
         AT | INFO | {"names": ["iso"]}),
        ("24/05/01 12:00:00 INFO nothing of log4j", "24/05/01 12:00:00 INFO nothing of log4j", {}),
        (f"{NOON},123 | rank 2 | INFO | x", "x", AT_MS | INFO | {"rank": 2, "names": ["iso"]}),
        (f"{NOON},123 - rank 2 - INFO - x", "x", AT_MS | INFO | {"rank": 2, "names": ["iso"]}),
        (f"{NOON},123 - INFO - my.mod - x - y", "x - y", AT_MS | INFO | {"names": ["iso"]}),
        (f"{NOON},123 - my.mod - ERROR - x", "x", AT_MS | {"level": "ERROR", "names": ["iso"]}),
        (f"{NOON},123 - WARNING - two words", "two words",
         AT_MS | {"level": "WARNING", "names": ["iso"]}),
        (f"{NOON},123 INFO two words", "two words", AT_MS | INFO | {"names": ["iso"]}),
        (f"{NOON},123\tINFO worker.py:1715 -- x", "x",
         AT_MS | INFO | {"origin": "worker.py:1715", "names": ["iso"]}),
        (f"{NOON} [ERROR] x", "x", AT | {"level": "ERROR", "names": ["iso"]}),
        ("05/01/2024 12:00:00 - INFO - __main__ - [RANK 2] x", "x",
         AT | INFO | {"rank": 2, "names": ["iso", "accelerate"]}),
        ("13/05/2024 12:00:00 x", "x",
         {"stamp": stamp("2024-05-13 12:00:00"), "names": ["iso"]}),
        ("2024/05/01 12:00:00 x", "x", AT | {"names": ["iso"]}),
        # CloudWatch
        ("2024-05-01T12:00:00.123Z: x", "x",
         {"stamp": stamp(NOON + ".123", MS, 0), "names": ["iso"]}),
        ("2024-05-01T12:00:00-0730 x", "x",
         {"stamp": stamp(NOON, offset=-27000), "names": ["iso"]}),
        ("12:00:00 INFO x", "x", {"stamp": stamp("12:00:00"), "level": "INFO", "names": ["time"]}),
        # a viewer's clock before every line; without milliseconds only before torch's prefixes
        ("12:00:00.123 x", "x", {"stamp": stamp("12:00:00.123", MS), "names": ["time"]}),
        ("12:00:00 [rank3]: x", "x",
         {"stamp": stamp("12:00:00"), "rank": 3, "names": ["time", "rank"]}),
        ("12:00:00 [====> ] 1/9", "12:00:00 [====> ] 1/9", {}),
        ("00:00:01,000 --> 00:00:04,000", "00:00:01,000 --> 00:00:04,000", {}),
        # level first
        ("WARNING:my.mod-1:x", "x", {"level": "WARNING", "names": ["python"]}),
        ("ERROR: x", "ERROR: x", {"level": "ERROR"}),
        (f"(TaskRunner pid=7) INFO:{NOON},123:x", "x",
         AT_MS | INFO | {"actor": "TaskRunner", "pid": 7, "names": ["ray", "verl"]}),
        ("INFO 05-01 12:00:00 file.py:12] x", "x",
         {"stamp": stamp("-05-01 12:00:00"), "level": "INFO", "origin": "file.py:12",
          "names": ["vllm"]}),
        ("ERROR 02-29 12:00:00 [core.py:1] x", "x",
         {"stamp": stamp("-02-29 12:00:00"), "level": "ERROR", "origin": "core.py:1",
          "names": ["vllm"]}),
        # level in brackets
        (f"[INFO|trainer.py:12] {NOON},123 >>   x", "  x",
         AT_MS | INFO | {"origin": "trainer.py:12", "names": ["transformers"]}),
        ("[WARNING|trainer.py:12] x", "x",
         {"level": "WARNING", "origin": "trainer.py:12", "names": ["transformers"]}),
        (f"[INFO|{NOON}] llamafactory.data.loader:143 >> x", "x",
         AT | INFO | {"origin": "llamafactory.data.loader:143", "names": ["llama-factory"]}),
        ("[INFO:swift] x", "x", INFO | {"names": ["ms-swift"]}),
        ("[ERROR] [launch.py] x", "[launch.py] x", {"level": "ERROR", "names": ["level"]}),
        # NeMo
        (f"[NeMo W {NOON} nemo_logging:349] x", "x",
         AT | {"level": "WARNING", "origin": "nemo_logging:349", "names": ["nemo"]}),
        (f"[NeMo I {NOON} exp:5 rank:9] x", "x",
         AT | INFO | {"rank": 9, "origin": "exp:5", "names": ["nemo"]}),
        ("[RANK 5] x", "x", {"rank": 5, "names": ["accelerate"]}),
        # torch_npu
        ("[ERROR] 2024-05-01-12:00:00 (PID:3345, Device:3, RankID:11) x", "x",
         AT | {"level": "ERROR", "rank": 11, "dev": 3, "pid": 3345, "names": ["ascend"]}),
        ("[ERROR] 2024-05-01-12:00:00 (PID:3345, Device:0, RankID:-1) x", "x",
         AT | {"level": "ERROR", "dev": 0, "pid": 3345, "names": ["ascend"]}),
        # Determined and HugeCTR
        (f"<info>    [{NOON}] 1d0cefc1 [rank=12] || x", "x",
         AT | {"rank": 12, "names": ["determined"]}),
        (f"<>        [{NOON}] || x", "x", AT | {"names": ["determined"]}),
        ("[HCTR][12:00:00.123][ERROR][RK3][main]: x", "x",
         {"stamp": peel("[12:00:00.123] x").stamp, "level": "ERROR", "rank": 3,
          "names": ["hugectr"]}),
    ],
)  # fmt: skip
def test_says(line: str, message: str, expected: dict[str, Any]) -> None:
    prefix = peel(line)

    assert said(prefix) == expected
    assert prefix.message == message


@pytest.mark.parametrize(
    "line",
    [
        "2024-13-01 12:00:00 no month 13",
        "[2024-02-30 12:00:00] no Feb 30",
        "2024-05-01 24:00:00 no hour 24",
        "2024-05-01 12:00:00foo",
        "[INFORMATION] x",
        "INFORMATION: x",
        "INFO x",
        "[  5%] x",
        "00:01:30 elapsed",
        "99/99/2024 12:00:00 x",
    ],
)
def test_leaves_alone(line: str) -> None:
    prefix = peel(line)

    assert prefix.message == line
    assert said(prefix) == {}
