"""What other detectors state, as rows of YAML with samples.

A row with a `line` is found by the catalog like any entry: `entries` makes one of each row. One
`as` an entry says of a record what the lines of that entry say.
What a start needs of the rows with a `record`, and of the lines around a `line`, is in
`detectors.json` beside the folder, where that is of the same files; `python -m
diagnose.formats.detector_rows` writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from diagnose.formats import table

DETECTORS = Path(__file__).with_name("detectors")
_PREFIX = "detector."  # of the ids
_FILE = frozenset(
    {
        "tool", "references", "cluster", "recognised", "recorder", "own_host", "logs", "rows",
        "samples", "refused",
    }
)  # fmt: skip
_OF_ENTRY = frozenset(
    {"title", "class", "strength", "unless", "not_evidence_of", "remedies", "restart"}
)
_ABOUT = frozenset({"above", "below", "hang", "takes_back"})  # what a start needs of a row
_ROW = _OF_ENTRY | _ABOUT | {"name", "line", "variants", "record", "as"}
_VARIANT = re.compile(r"\{([^{}|]*)\|[^{}]*\}")  # of which the first is as good as the others


class Rows(NamedTuple):
    """What a start needs.

    `tools`: of each file with documents its name, the tool, what these hold in their beginning,
    what reads them, whether they are of the host in whose folder they are, where lines of logs are
    in them, and its rows of records as (id, {path: expression}). `about`: of each id its
    tool, whether that lists nodes of a whole cluster, the expressions of lines above and below that
    complete it, whether it states a hang, and the ids of what it takes back.
    """

    tools: list[dict[str, Any]]
    about: dict[str, dict[str, Any]]


@cache
def rows() -> Rows:
    """The rows, from the table where it is that of the files."""
    try:
        stated, *found = json.loads(DETECTORS.with_suffix(".json").read_bytes())
    except (OSError, ValueError):
        stated, found = None, []
    return Rows(*found) if table.is_current(stated, DETECTORS) else made()


def written() -> dict[str, dict[str, Any]]:
    """The files as they are, by their names."""
    import yaml  # noqa: PLC0415  (only where the table is made)

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = {}
    for path in table.files(DETECTORS):
        tool = yaml.load(path.read_bytes(), loader)
        keys = {*tool} - _FILE | {key for row in tool["rows"] for key in {*row} - _ROW}
        if keys:
            raise ValueError(f"{path.name}: unknown key {min(keys)}")
        found[path.stem] = tool
    return found


def id_of(tool: str, row: Mapping[str, Any]) -> str:
    """The id of a row, which is that of its signature."""
    return str(row.get("as") or f"{_PREFIX}{tool}.{row['name']}")


def made() -> Rows:
    """The same from the files."""
    tools: list[dict[str, Any]] = []
    about: dict[str, dict[str, Any]] = {}
    for name, tool in written().items():
        for row in (one for one in tool["rows"] if "as" not in one):
            known = {"tool": tool["tool"], "cluster": tool.get("cluster", False)}
            about[id_of(name, row)] = known | {key: row[key] for key in _ABOUT & row.keys()}
            taken = [id_of(name, {"name": one}) for one in row.get("takes_back", ())]
            about[id_of(name, row)]["takes_back"] = taken
        if "recognised" in tool:
            records = [[id_of(name, row), row["record"]] for row in tool["rows"] if "record" in row]
            tools.append({
                "name": name, "tool": tool["tool"], "recognised": tool["recognised"],
                "recorder": tool.get("recorder", ""), "own_host": tool.get("own_host", False),
                "logs": tool.get("logs", {}), "records": records,
            })  # fmt: skip
    return Rows(tools, {id_: dict(sorted(one.items())) for id_, one in about.items()})


def entries() -> Iterator[dict[str, Any]]:
    """An entry of the catalog for each row, as its YAML would have it: a cause of whom it names."""
    for name, tool in written().items():
        lines = [one for sample in tool["samples"] for one in sample.get("text", "").splitlines()]
        # What several lines say together, each of them may not.
        refused = [one for one in tool["refused"] if isinstance(one, str) and "\n" not in one]
        for row in (one for one in tool["rows"] if "as" not in one):
            given = {"examples": lines, "variants": row.get("variants", [])}
            yield {
                "id": id_of(name, row),
                "role": "cause" if "class" in row else "context",
                "match": [_match(line, given) for line in row.get("line", ())],
                "signal": "concluded",
                "culprit": "captured" if "class" in row else "none",
                "references": tool["references"],
                "near_miss": refused if "line" in row else [],
                **deepcopy({key: row[key] for key in _OF_ENTRY & row.keys()}),
            }


def _match(line: str, given: Mapping[str, list[str]]) -> dict[str, Any]:
    """An expression with those of the texts that it matches."""
    search = re.compile(line.removeprefix("^")).search
    shown = {
        key: [one for one in texts if search(_VARIANT.sub(r"\1", one))]
        for key, texts in given.items()
    }
    return {"regex": line, **{key: texts for key, texts in shown.items() if texts}}


if __name__ == "__main__":
    tools, about = made()
    texts = [[json.dumps(tool, ensure_ascii=False) for tool in tools]]
    texts += [
        [f"{json.dumps(id_)}: {json.dumps(one, ensure_ascii=False)}" for id_, one in about.items()]
    ]
    first, second = (",\n".join(lines) for lines in texts)
    text = f"[{table.checksum(DETECTORS)}, [\n{first}\n],\n{{\n{second}\n}}]\n"
    DETECTORS.with_suffix(".json").write_text(text, encoding="utf-8")
