"""Message sites of Python: exceptions raised and messages logged, read with `ast`."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from sites.template import Piece, Site, Slot, braces, printf

_WRAPPERS = {"dedent", "fill", "str", "colored", "_", "cleandoc"}
_MESSAGE_NAMES = {"msg", "message", "error", "reason", "detail"}
_RAISED = "{type}: {}"  # as Python prints an exception


@dataclass(frozen=True, slots=True)
class PythonForms:
    """What counts in Python files: types of exceptions, names of logging calls, how they print.

    `logs` maps the last name of a call to the form of its line. `types` are the only exceptions
    looked for, if any; `without_types` those left out.
    """

    logs: Mapping[str, str] = field(default_factory=dict)
    types: frozenset[str] = frozenset()
    without_types: frozenset[str] = frozenset()


def python_sites(name: str, text: str, forms: PythonForms) -> Iterator[Site]:
    """The sites of one file; none where it cannot be parsed."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    yield from _Reader(name, forms, _qualified(name, tree)).read(tree)


def _qualified(name: str, tree: ast.Module) -> dict[str, str]:
    """Name of a class in a file → as a traceback prints it."""
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package = module.split(".")
    names = {
        node.name: f"{module}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            start = package[: -node.level] if node.level else []
            origin = ".".join([*start, *([node.module] if node.module else [])])
            names |= {one.asname or one.name: f"{origin}.{one.name}" for one in node.names}
    return names


class _Reader:
    """Walks one file; knows the function it is in and the strings assigned there."""

    def __init__(self, name: str, forms: PythonForms, qualified: Mapping[str, str]) -> None:
        self.name = name
        self.forms = forms
        self.qualified = qualified

    def read(
        self, node: ast.AST, function: str = "", known: Mapping[str, ast.expr] | None = None
    ) -> Iterator[Site]:
        """Sites below a node."""
        known = dict(known or {})
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            known |= _assigned(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call):
                yield from self._raised(_made(child.exc), function, known)
            elif isinstance(child, ast.Call):
                yield from self._logged(child, function, known)
            yield from self.read(child, function, known)

    def _raised(
        self, call: ast.Call, function: str, known: Mapping[str, ast.expr]
    ) -> Iterator[Site]:
        bare = _last_name(call.func)
        if not bare.lstrip("_")[:1].isupper() or bare in self.forms.without_types:
            return  # in lower case it is a function that adds to the text
        if self.forms.types and bare not in self.forms.types:
            return
        printed = bare if hasattr(builtins, bare) else self._printed(call.func, bare)
        pieces = _message(call, known)
        yield Site(self.name, call.lineno, "raise", _RAISED, pieces, printed, function=function)

    def _printed(self, func: ast.expr, bare: str) -> str:
        if isinstance(func, ast.Attribute):
            return self.qualified.get(ast.unparse(func).partition(".")[0], "") + "." + bare
        return self.qualified.get(bare, bare)

    def _logged(
        self, call: ast.Call, function: str, known: Mapping[str, ast.expr]
    ) -> Iterator[Site]:
        bare = _last_name(call.func)
        line = self.forms.logs.get(bare)
        if line is None or not (call.args or call.keywords):
            return
        pieces = _message(call, known, logged=True)
        yield Site(self.name, call.lineno, bare, line, pieces, function=function)


def _assigned(node: ast.AST) -> dict[str, ast.expr]:
    """Strings that a function gives to names."""
    return {
        child.targets[0].id: child.value
        for child in ast.walk(node)
        if isinstance(child, ast.Assign)
        and isinstance(child.targets[0], ast.Name)
        and isinstance(child.value, ast.Constant | ast.JoinedStr | ast.BinOp | ast.Call)
    }


def _made(call: ast.Call) -> ast.Call:
    """The exception of `raise X(...).with_traceback(...)` and the like."""
    inner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return inner if isinstance(inner, ast.Call) else call


def _last_name(func: ast.expr) -> str:
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


def _message(
    call: ast.Call, known: Mapping[str, ast.expr], *, logged: bool = False
) -> tuple[Piece, ...]:
    """The pieces of the first argument that says something; `logged`: % with what follows it."""
    named = [word.value for word in call.keywords if word.arg in _MESSAGE_NAMES]
    for number, argument in enumerate([*call.args, *named]):
        if isinstance(argument, ast.Starred):
            continue
        pieces = list(_pieces(argument, known))
        if any(isinstance(piece, str) and piece.strip() for piece in pieces):
            if logged and len(call.args) > number + 1:
                rest = [ast.unparse(one) for one in call.args[number + 1 :]]
                return tuple(_with_arguments(pieces, rest))
            return tuple(pieces)
    return (Slot(),)


def _with_arguments(pieces: list[Piece], rest: list[str]) -> Iterator[Piece]:
    for piece in pieces:
        if isinstance(piece, str):
            yield from printf(piece, rest)
        else:
            yield piece


def _pieces(node: ast.expr, known: Mapping[str, ast.expr], depth: int = 0) -> Iterator[Piece]:
    """What an expression of a string consists of."""
    if depth > 8:
        yield Slot()
    elif isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.JoinedStr):
        yield from chain.from_iterable(_pieces(one, known, depth + 1) for one in node.values)
    elif isinstance(node, ast.FormattedValue):
        yield from _value(node.value, known, depth)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _pieces(node.left, known, depth + 1)
        yield from _pieces(node.right, known, depth + 1)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        right = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        yield from _with_arguments(
            list(_pieces(node.left, known, depth + 1)), [ast.unparse(one) for one in right]
        )
    elif isinstance(node, ast.IfExp):
        yield from _pieces(node.body, known, depth + 1)
    elif isinstance(node, ast.Name) and node.id in known:
        without = {name: value for name, value in known.items() if name != node.id}
        yield from _pieces(known[node.id], without, depth + 1)
    elif isinstance(node, ast.Call):
        yield from _called(node, known, depth)
    else:
        yield Slot("?", ast.unparse(node))


def _called(node: ast.Call, known: Mapping[str, ast.expr], depth: int) -> Iterator[Piece]:
    if isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        arguments = [ast.unparse(one) for one in node.args]
        for piece in _pieces(node.func.value, known, depth + 1):
            yield from braces(piece, arguments) if isinstance(piece, str) else [piece]
    elif _last_name(node.func) in _WRAPPERS and node.args:
        yield from _pieces(node.args[0], known, depth + 1)
    elif isinstance(node.func, ast.Attribute) and node.func.attr in ("strip", "rstrip", "lstrip"):
        yield from _pieces(node.func.value, known, depth + 1)
    else:
        yield Slot("?", ast.unparse(node))


def _value(node: ast.expr, known: Mapping[str, ast.expr], depth: int) -> Iterator[Piece]:
    """A value inside an f-string: its text where that is a constant."""
    if isinstance(node, ast.Constant | ast.IfExp):
        yield from _pieces(node, known, depth + 1)
    else:
        yield Slot("?", ast.unparse(node))
