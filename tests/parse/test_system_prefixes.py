from __future__ import annotations

from typing import Any

import pytest

from diagnose.parse.prefix import peel

from .said import MS, US, boot, said, stamp

XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
OCT = stamp("-10-10 03:06:53")


@pytest.mark.parametrize(
    ("line", "message", "expected"),
    [
        ("[12345.678901] " + XID, XID, {"stamp": boot(12345678901000), "names": ["dmesg"]}),
        ("[    0.000000] Linux", "Linux", {"stamp": boot(0), "names": ["dmesg"]}),
        ("[   12.500000][  T123] x", "x", {"stamp": boot(12_500_000_000), "names": ["dmesg"]}),
        ("[  +0.000316]    [12] Timeout", "   [12] Timeout", {"names": ["dmesg"]}),
        ("[+  473.320] [rank2]: x", "x", {"rank": 2, "names": ["elapsed", "rank"]}),
        ("704.7s\t1339\t[rank0]: x", "x", {"rank": 0, "names": ["kaggle", "rank"]}),
        ("9s\t12\tx", "x", {"names": ["kaggle"]}),
        ("[Thu Oct 10 03:06:53 2024] x", "x",
         {"stamp": stamp("2024-10-10 03:06:53"), "names": ["dmesg"]}),
        ("[Oct10 03:06] x", "x",
         {"stamp": stamp("-10-10 03:06:00", 60_000_000_000), "names": ["dmesg"]}),
        ("2024-10-10T03:06:53,123456+00:00 x", "x",
         {"stamp": stamp("2024-10-10 03:06:53.123456", US, 0), "names": ["iso"]}),
        ("kern  :err   : [12345.678901] x", "x",
         {"level": "ERROR", "stamp": boot(12345678901000), "names": ["facility", "dmesg"]}),
        ("4,1234,56789,-;x", "x",
         {"level": "WARNING", "stamp": boot(56_789_000), "names": ["kmsg"]}),
        ("<3>[12345.678901] x", "x",
         {"level": "ERROR", "stamp": boot(12345678901000), "names": ["priority", "dmesg"]}),
        # the printed time of day wins over the time since boot
        ("Oct 10 03:06:53 gpu01 kernel: [12345.678901] " + XID, XID,
         {"stamp": OCT, "host": "gpu01", "names": ["syslog", "dmesg"]}),
        ("Oct  1 03:06:53 gpu01 kernel: x", "x",
         {"stamp": stamp("-10-01 03:06:53"), "host": "gpu01", "names": ["syslog"]}),
        ("Oct 10 03:06:53 gpu01 python[123]: [rank3]: x", "x",
         {"stamp": OCT, "host": "gpu01", "pid": 123, "rank": 3, "names": ["syslog", "rank"]}),
        # a daemon's name is part of what it says
        ("Oct 10 03:06:53 gpu01 slurmstepd[123]: error: x", "slurmstepd[123]: error: x",
         {"stamp": OCT, "host": "gpu01", "pid": 123, "names": ["syslog"]}),
        ("Dec 19 12:34:00Z dgx46 start-worker polling", "start-worker polling",
         {"stamp": stamp("-12-19 12:34:00", offset=0), "host": "dgx46", "names": ["syslog"]}),
        ("Oct 10 03:06:53 some words", "some words", {"stamp": OCT, "names": ["syslog"]}),
        ("2024-10-10T03:06:53.123456+02:00 abc kernel: x", "x",
         {"stamp": stamp("2024-10-10 03:06:53.123456", US, 7200), "host": "abc",
          "names": ["syslog"]}),
        ("<165>1 2024-10-10T03:06:53.003Z mymachine su 77 ID47 - BOM", "BOM",
         {"stamp": stamp("2024-10-10 03:06:53.003", MS, 0), "host": "mymachine", "pid": 77,
          "level": "INFO", "names": ["syslog"]}),
        ('<11>1 2024-10-10T03:06:53Z - app - - [a@1 b="c"] x', "x",
         {"stamp": stamp("2024-10-10 03:06:53", offset=0), "level": "ERROR", "names": ["syslog"]}),
        # journalctl -o short-monotonic, short-unix
        ("[12345.678901] gpu01 kernel: x", "x",
         {"stamp": boot(12345678901000), "host": "gpu01", "names": ["journal"]}),
        ("1728529613.123456 gpu01 kernel: x", "x",
         {"stamp": stamp("2024-10-10 03:06:53.123456", US, 0), "host": "gpu01",
          "names": ["syslog"]}),
        # UCX prints seconds since 1970 where dmesg prints seconds since boot
        ("[1728529613.123456] x", "x",
         {"stamp": stamp("2024-10-10 03:06:53.123456", US, 0), "names": ["dmesg"]}),
        ("[Jul 23 2024 07:53:55] [ERROR] [tid 841] detected NVSwitch fatal error 20034",
         "detected NVSwitch fatal error 20034",
         {"stamp": stamp("2024-07-23 07:53:55"), "level": "ERROR", "names": ["fabricmanager"]}),
        ("Thu Oct 10 03:06:53 UTC 2024", "",
         {"stamp": stamp("2024-10-10 03:06:53", offset=0), "names": ["ctime"]}),
    ],
)  # fmt: skip
def test_says(line: str, message: str, expected: dict[str, Any]) -> None:
    prefix = peel(line)

    assert said(prefix) == expected
    assert prefix.message == message


@pytest.mark.parametrize(
    "line",
    [
        "May the force be with you",
        "Feb 30 03:06:53 gpu01 kernel: x",
        "Mon amour",
        "[Sat down] x",
        "[Oct 2024] x",
        "[0.5] x",
        "[9999999999.000000] beyond any clock",
        "<b>bold</b>",
        "<999>x",
        "1,2,3,4",
    ],
)
def test_leaves_alone(line: str) -> None:
    prefix = peel(line)

    assert prefix.message == line
    assert said(prefix) == {}
