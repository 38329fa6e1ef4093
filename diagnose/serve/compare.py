"""Two diagnoses side by side: what is the same, and what differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diagnose.text.ranks import ranks_phrase

_QUOTES = 3  # lines of evidence
_NOTHING = "not known"

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is compared: the lines of either side."""

    label: str
    left: list[str]
    right: list[str]

    @property
    def differs(self) -> bool:
        """Whether the sides say different things."""
        return self.left != self.right


@dataclass(frozen=True, slots=True)
class Section:
    """Rows under one heading."""

    heading: str
    rows: list[Row]


def compare(left: Data, right: Data) -> list[Section]:
    """Two documents of schema `diagnose/2`; rows that neither has anything for are left out."""
    sides = (_sides(left), _sides(right))
    found = []
    for heading in sides[0]:
        one, other = sides[0][heading], sides[1][heading]
        rows = [
            Row(label, one.get(label) or [_NOTHING], other.get(label) or [_NOTHING])
            for label in dict.fromkeys([*one, *other])
            if one.get(label) or other.get(label)
        ]
        if rows:
            found.append(Section(heading, rows))
    return found


def _sides(data: Data) -> dict[str, dict[str, list[str]]]:
    root, culprits, job = data["root_cause"], data["culprits"], data["job"]
    who = [ranks_phrase(culprits["ranks"])] if culprits["ranks"] else []
    return {
        "Verdict": {
            "Verdict": _one(data["verdict"]),
            "Cause": _one(root["class"]),
            "What happened": _one(root["title"]),
            "Confidence": _one(root["confidence"]),
            "Culprits": [*who, *culprits["hosts"]],
            "Phase": _one(data["phase"]),
            "Collective": _collective(data["collective"]),
            "Last step": _one((data["progress"] or {}).get("last_step")),
            "Restart": _one(data["restart"]["advice"].replace("_", " ")),
        },
        "Job": {
            "Ranks": _one(job["world_size"]),
            "Hosts": [*job["hosts"]],
            "Attempts": _one(job["attempts"]),
            "Frameworks": [*job["frameworks"]],
            **{f"Version of {name}": _one(value) for name, value in job["versions"].items()},
        },
        "Evidence": {"Lines": [item["text"] for item in data["evidence"][:_QUOTES]]},
        "What to do": {"Steps": [step["do"] for step in data["remedies"]]},
    }


def _collective(value: Data | None) -> list[str]:
    if value is None:
        return []
    call = [str(value[name]) for name in ("op", "group") if value[name] is not None]
    number = [] if value["seq"] is None else [f"sequence number {value['seq']}"]
    missing = [f"missing: {ranks_phrase(value['missing'])}"] if value["missing"] else []
    return [", ".join([*call, *number, *missing])]


def _one(value: object) -> list[str]:
    return [] if value is None or value == "" else [str(value)]
