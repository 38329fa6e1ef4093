"""The fleet report for programs: JSON of schema `diagnose-fleet/1`, and CSV of its groups."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, fields

from diagnose.fleet.causes import Group
from diagnose.fleet.summary import Fleet
from diagnose.redact.redactor import mask
from diagnose.report.fleet import words
from diagnose.report.safe import clean, escaped, masked_strings

# What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@")
_COLUMNS = [field.name for field in fields(Group) if field.name != "weekly"]


def as_json(fleet: Fleet) -> str:
    """The whole report with secrets masked, ending without a newline."""
    data = masked_strings(fleet.to_dict())
    return escaped(json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False))


def as_csv(fleet: Fleet) -> str:
    """A row for each group of `--by`; lines end in a newline, missing values are empty."""
    sink = io.StringIO()
    table = csv.DictWriter(sink, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for group in words.safe(fleet, lambda text: mask(clean(text))).groups:
        cells = asdict(group)
        for name in ("name", "title"):
            if cells[name].startswith(_FORMULA):
                cells[name] = f"'{cells[name]}"
        table.writerow(cells)
    return sink.getvalue()
