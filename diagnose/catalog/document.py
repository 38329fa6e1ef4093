"""One YAML file as plain data, every part with its line.

Only what a catalog needs: texts, truth values, lists and mappings with texts as keys. Numbers,
dates and tags are refused, each with its line, and so is what nests too deep. An alias counts as
all that it stands for, so that a small file stays small.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_DEPTH = 32
MAX_NODES = 100_000  # of one file, aliases written out
_NESTED = f"nested more than {MAX_DEPTH} deep"

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = yaml.resolver.Resolver()
_STR, _BOOL, _NULL = (f"tag:yaml.org,2002:{name}" for name in ("str", "bool", "null"))
_TRUE = ("yes", "true", "on")
# How libyaml from 0.2.6 on refuses what nests deeper than its own bound, far above ours, before
# it hands over the first event.
_TOO_DEEP = "exceeded maximum nesting depth"


class DocumentError(Exception):
    """A file that is no such document: the line, and what is wrong there."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


@dataclass(slots=True)
class Node:
    """A text, a truth value, nothing, a list or a mapping, which also has the lines of its keys.

    `size` counts the nodes below and itself, aliases written out.
    """

    line: int
    value: str | bool | list[Node] | dict[str, Node] | None
    keys: dict[str, int] = field(default_factory=dict)
    size: int = 1

    def plain(self) -> Any:
        """The data without lines; nothing in it is shared."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come yet; `key` waits for its value."""

    node: Node
    anchor: str | None
    key: str | None = None


def read(data: bytes) -> Node | None:
    """The document of a file; None if there is nothing in it. Raises DocumentError."""
    text = _text(data)
    composer = _Composer()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            composer.take(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        if problem == _TOO_DEEP:
            raise DocumentError(line, _NESTED) from error
        raise DocumentError(line, f"not valid YAML: {problem}") from error
    return composer.root


def line_of(root: Node, path: Sequence[str | int]) -> int:
    """The line of the part at `path` (keys and indexes), or of the deepest one that exists."""
    node, line = root, root.line
    for part in path:
        if isinstance(node.value, dict) and isinstance(part, str) and part in node.value:
            line, node = node.keys[part], node.value[part]
        elif isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.line
        else:
            break
    return line


def _text(data: bytes) -> str:
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(line, f"not {'UTF-16' if utf16 else 'UTF-8'} text") from error
    # The parser would tell no line.
    hidden = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if hidden:
        line = text.count("\n", 0, hidden.start()) + 1
        raise DocumentError(line, f"not valid YAML: the character U+{ord(hidden[0]):04X}")
    return text


class _Composer:
    """Makes nodes of the parser's events."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.stack: list[_Open] = []
        self.anchors: dict[str, Node] = {}
        self.size = 0

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event, line)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor, line)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._open(event, line)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            done = self.stack.pop()
            self._close(done.node, done.anchor)
        elif isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise DocumentError(line, "a second document in one file")

    def _scalar(self, event: Any, line: int) -> None:
        _refuse_tag(event, line)
        if self._wants_key():
            self._key(event.value, line)
            if event.anchor:
                self.anchors[event.anchor] = Node(line, event.value)
            return
        node = Node(line, _value(event, line))
        self._count(1, line)
        self._close(node, event.anchor)

    def _alias(self, anchor: str | None, line: int) -> None:
        node = self.anchors.get(anchor or "")
        if node is None:
            raise DocumentError(line, f"not valid YAML: no &{anchor} before this *{anchor}")
        if self._wants_key():
            raise DocumentError(line, "a key must be a text")
        self._count(node.size, line)
        self._close(node, None)

    def _open(self, event: Any, line: int) -> None:
        _refuse_tag(event, line)
        if self._wants_key():
            raise DocumentError(line, "a key must be a text")
        if len(self.stack) >= MAX_DEPTH:
            raise DocumentError(line, _NESTED)
        self._count(1, line)
        node = Node(line, {} if isinstance(event, yaml.MappingStartEvent) else [])
        self.stack.append(_Open(node, event.anchor))

    def _close(self, node: Node, anchor: str | None) -> None:
        """Put a whole node where it belongs."""
        if anchor:
            self.anchors[anchor] = node
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        parent.node.size += node.size
        if isinstance(parent.node.value, list):
            parent.node.value.append(node)
        elif isinstance(parent.node.value, dict) and parent.key is not None:
            parent.node.value[parent.key] = node
            parent.key = None

    def _wants_key(self) -> bool:
        top = self.stack[-1] if self.stack else None
        return top is not None and isinstance(top.node.value, dict) and top.key is None

    def _key(self, key: str, line: int) -> None:
        parent = self.stack[-1]
        if key in parent.node.keys:
            raise DocumentError(line, f"{key}: the key appears twice")
        parent.node.keys[key] = line
        parent.key = key

    def _count(self, more: int, line: int) -> None:
        self.size += more
        if self.size > MAX_NODES:
            raise DocumentError(line, f"more than {MAX_NODES:,} entries, aliases written out")


def _refuse_tag(event: Any, line: int) -> None:
    if event.tag is not None:
        raise DocumentError(line, f"not valid YAML: the tag {event.tag} is not allowed")


def _value(event: Any, line: int) -> str | bool | None:
    text: str = event.value
    tag = _RESOLVER.resolve(yaml.ScalarNode, text, event.implicit)
    if tag == _NULL:
        return None
    if tag == _BOOL:
        return text.lower() in _TRUE
    if tag != _STR:
        kind = tag.rpartition(":")[2]
        raise DocumentError(line, f"{text[:60]}: is of type {kind}; as a text it needs quotes")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DocumentError(line, "not valid YAML: half a character") from error
    return text
