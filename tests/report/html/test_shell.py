"""What a page is made with: data inside a script element."""

from __future__ import annotations

import json

from diagnose.report.html.shell import Numbers, embedded


def test_numbers_are_the_json_that_lists_are() -> None:
    data = {"a": [[1, None], None, [], [-3, 10**12]], "</b>": {"c": "x, None & <y>"}, "d": []}
    plain = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    given = data | {"a": Numbers(data["a"])}
    assert embedded(given) == embedded(data)
    assert json.loads(embedded(given)) == json.loads(plain)
    assert "<" not in embedded(given)
