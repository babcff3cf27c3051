"""The structure of a ``pyarrow.compute.Expression``: its tree, and Expressions of parts of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import PredicateError
from intarsia.expr.arrow_serialization import POINTING, Serialized, batch_of, end_of, serialized_of
from intarsia.expr.scalar_format import readable


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A reference to a field by the names on its path."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class Call:
    """A function applied to arguments; ``options`` are its options by name, as pyarrow scalars."""

    function: str
    arguments: tuple[Node, ...]
    options: dict[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Opaque:
    """An expression whose structure cannot be told: one with a field by position, say."""

    what: str


ANDS = ("and_kleene", "and")
"""Functions of which a filter keeps the same rows as of all their arguments."""

CHAINS = (*ANDS, "or_kleene", "or")
"""Functions of which long chains are usual."""
_DEEPEST = 64
_NAME = re.compile(r"FieldRef\.Name\(([^()]*)\)")
_MAP_VALUE = re.compile(
    r"map_lookup\(([^(){}]+), \{occurrence=FIRST, query_key=(?:large_)?string:(.*?)\}\)"
)
_NESTED = re.compile(rf"FieldRef\.Nested\((?:{_NAME.pattern} ?)+\)")

Node = FieldRef | Literal | Call | Opaque


def read_expression(expression: pc.Expression) -> Node:
    """The tree of an Expression; ``Opaque`` where pyarrow cannot serialize it (fields by position).

    Raises ``PredicateError`` where pyarrow's serialized form is not as this version knows it.
    """
    serialized = serialized_of(expression)
    if serialized is None:
        return Opaque(str(expression))
    try:
        return _tree(iter(serialized.nodes), serialized.batch)
    except (StopIteration, IndexError, ValueError, UnicodeDecodeError) as error:
        raise PredicateError(f"cannot read the structure of {expression}") from error


def shown(expression: pc.Expression) -> str:
    """An Expression as pyarrow writes it, but for fields of structs, ``a.b``, and values of maps,
    ``m['k']``; where that is not UTF-8, bytes as ``0x`` and digits.
    """
    try:
        text = _NESTED.sub(lambda ref: ".".join(_NAME.findall(ref[0])), str(expression))
        return _MAP_VALUE.sub(_shown_value, text)
    except UnicodeDecodeError:
        return _shown(read_expression(expression))


def _shown_value(lookup: re.Match[str]) -> str:
    return "{}['{}']".format(lookup[1], lookup[2].replace("'", "''"))


def _shown(node: Node) -> str:
    match node:
        case FieldRef(path=path):
            return ".".join(path)
        case Literal(value=value):
            return str(readable(value))
        case Call(function=function, arguments=arguments, options=options):
            told = [f"{name}={readable(value)}" for name, value in options.items()]
            return f"{function}({', '.join([*map(_shown, arguments), *told])})"
        case Opaque(what=what):
            return what


def conjuncts(expression: pc.Expression) -> list[pc.Expression]:
    """The operands of the ANDs at the top of an Expression: it is true where all of them are."""
    serialized = serialized_of(expression)
    if serialized is None:
        return [expression]
    nodes, found, at = serialized.nodes, [], 0
    while at < len(nodes):
        kind, value = nodes[at]
        if kind == "end" or (kind == "call" and value in ANDS):
            at += 1
            continue
        stop = end_of(nodes, at)
        found.append(nodes[at:stop])
        at = stop
    return [serialized.part(part) for part in found] if len(found) > 1 else [expression]


class Replaced(NamedTuple):
    """An Expression with fields in place of calls, and the calls by the fields' names."""

    expression: pc.Expression
    calls: dict[str, CallSite]


class CallSite(NamedTuple):
    """A function and what it is called with."""

    function: str
    arguments: tuple[pc.Expression, ...]


def calls_replaced(expression: pc.Expression, functions: Container[str], prefix: str) -> Replaced:
    """``expression`` with a field for each outermost call of one of ``functions``.

    The fields are called ``prefix`` and a number. Raises ``PredicateError`` as ``read_expression``.
    """
    serialized = serialized_of(expression)
    if serialized is None:
        return Replaced(expression, {})
    calls: dict[str, CallSite] = {}

    def field_for(at: int, stop: int) -> _Piece:
        name = f"{prefix}{len(calls)}"
        calls[name] = CallSite(serialized.nodes[at][1], _arguments(serialized, at + 1, stop - 1))
        return _Piece([("field_ref", name)], [])

    found = _substituted(serialized, functions, field_for)
    return Replaced(expression if found is None else found, calls)


def replaced(
    expression: pc.Expression,
    functions: Container[str],
    change: Callable[[Call], pc.Expression | None],
) -> pc.Expression:
    """``expression`` with what ``change`` makes of calls of ``functions``; None leaves one.

    Calls within one that is replaced are not asked about.
    """
    serialized = serialized_of(expression)
    if serialized is None:
        return expression

    def changed(at: int, stop: int) -> _Piece | None:
        call = _tree(iter(serialized.nodes[at:stop]), serialized.batch)
        found = change(call) if isinstance(call, Call) else None
        own = None if found is None else serialized_of(found)
        return None if own is None else _Piece(own.nodes, own.batch.columns)

    found = _substituted(serialized, functions, changed)
    return expression if found is None else found


class _Piece(NamedTuple):
    """Nodes of a serialized Expression, and the columns that they point to."""

    nodes: list[tuple[str, str]]
    columns: list[pa.Array]


def _substituted(
    serialized: Serialized,
    functions: Container[str],
    change: Callable[[int, int], _Piece | None],
) -> pc.Expression | None:
    """The Expression with what ``change`` gives for calls of ``functions``, told by where their
    nodes begin and end; None where it gives nothing for any.
    """
    nodes, columns, kept = serialized.nodes, list(serialized.batch.columns), []
    at, is_changed = 0, False
    while at < len(nodes):
        kind, value = nodes[at]
        stop = at + 1 + (int(value) if kind == "nested_field_ref" else 0)
        piece = None
        if kind == "call" and value in functions:
            end = end_of(nodes, at)
            piece = change(at, end)
        if piece is None:
            kept += nodes[at:stop]
        else:
            first, is_changed, stop = len(columns), True, end
            kept += [(k, str(int(v) + first) if k in POINTING else v) for k, v in piece.nodes]
            columns += piece.columns
        at = stop
    return serialized._replace(batch=batch_of(columns)).part(kept) if is_changed else None


def _arguments(serialized: Serialized, at: int, stop: int) -> tuple[pc.Expression, ...]:
    """The Expressions that nodes from ``at`` up to ``stop`` are, one after the other."""
    found = []
    while at < stop:
        end = end_of(serialized.nodes, at)
        found.append(serialized.part(serialized.nodes[at:end]))
        at = end
    return tuple(found)


def is_deep(node: Node) -> bool:
    """Do calls nest deeper than is worth following? Chains of ANDs or ORs count once."""
    pending = [(node, 0, "")]
    while pending:
        current, depth, above = pending.pop()
        if isinstance(current, Call):
            depth += current.function != above or above not in CHAINS
            if depth > _DEEPEST:
                return True
            pending += [(argument, depth, current.function) for argument in current.arguments]
    return False


def operands(node: Node, function: str) -> list[Node]:
    """What a chain of one function joins: ``a``, ``b``, ``c`` of ``(a | b) | c``."""
    found: list[Node] = []
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, Call) and current.function == function:
            pending += reversed(current.arguments)
        else:
            found.append(current)
    return found


def calls_in(node: Node) -> Iterator[Call]:
    """``node`` and all below it that are calls."""
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, Call):
            yield current
            pending += current.arguments


def field_paths(node: Node) -> set[tuple[str, ...]] | None:
    """The paths of all fields under ``node``; None where one of them cannot be told."""
    found: set[tuple[str, ...]] = set()
    pending = [node]
    while pending:
        match pending.pop():
            case FieldRef(path):
                found.add(path)
            case Opaque():
                return None
            case Call(_, arguments):
                pending += arguments
    return found


def _tree(items: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> Node:
    """The tree of a list of nodes in prefix order. Calls nest as deep as filters are long."""
    opened: list[tuple[str, list[Node], dict[str, Any]]] = [("", [], {})]
    while len(opened) > 1 or not opened[0][1]:
        kind, value = next(items)
        _, arguments, options = opened[-1]
        match kind:
            case "call":
                opened.append((value, [], {}))
            case "end":
                opened.pop()
                function = value if _are_texts(options) else f"{value} of bytes"
                opened[-1][1].append(Call(function, tuple(arguments), options))
            case "options":
                scalar = batch.column(int(value))[0]
                options.update((name, scalar[name]) for name in scalar.type.names)
            case "literal":
                arguments.append(Literal(batch.column(int(value))[0]))
            case "field_ref":
                arguments.append(FieldRef((value,)))
            case "nested_field_ref":
                arguments.append(FieldRef(tuple(next(items)[1] for _ in range(int(value)))))
            case _:
                raise ValueError(f"unknown node {kind!r}")
    return opened[0][1][0]


def _are_texts(options: Mapping[str, Any]) -> bool:
    """Can all patterns be read? With one of bytes that are no text only pyarrow knows the call."""
    try:
        for value in options.values():
            if isinstance(value, pa.StringScalar):
                value.as_py()
    except UnicodeDecodeError:
        return False
    return True
