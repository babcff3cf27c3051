"""The structure of a ``pyarrow.compute.Expression``: its tree, and Expressions of parts of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import PredicateError
from intarsia.expr.scalar_format import readable
from intarsia.pyarrow_internals import (
    NODES_WITH_COLUMN,
    Nodes,
    Serialized,
    batch_of,
    end_of,
    operands_of,
    serialized_of,
)


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
    """An expression whose structure is unknown, such as one with a field by position."""

    what: str


ANDS = ("and_kleene", "and")
"""Functions that are true for a row exactly if all their arguments are."""

CHAINS = (*ANDS, "or_kleene", "or")
"""Functions that are often written as long chains."""
_MAX_DEPTH = 64
"""Pruning does not follow trees whose calls nest deeper than this."""
_FIELD_NAME_TEXT = re.compile(r"FieldRef\.Name\(([^()]*)\)")
_MAP_LOOKUP_TEXT = re.compile(
    r"map_lookup\(([^(){}]+), \{occurrence=FIRST, query_key=(?:large_)?string:(.*?)\}\)"
)
_NESTED_FIELD_TEXT = re.compile(rf"FieldRef\.Nested\((?:{_FIELD_NAME_TEXT.pattern} ?)+\)")

Node = FieldRef | Literal | Call | Opaque


def read_expression(expression: pc.Expression) -> Node:
    """Returns the tree of an Expression.

    It is ``Opaque`` if pyarrow cannot serialize the Expression, as for fields by position. Raises
    ``PredicateError`` if pyarrow's serialized form is not the one that this version knows.
    """
    serialized = serialized_of(expression)
    if serialized is None:
        return Opaque(str(expression))
    try:
        return _tree(iter(serialized.nodes), serialized.batch)
    except (StopIteration, IndexError, ValueError, UnicodeDecodeError) as error:
        raise PredicateError(f"cannot read the structure of {expression}") from error


def shown(expression: pc.Expression) -> str:
    """Returns the text of an Expression, with fields as ``a.b`` and values of maps as ``m['k']``.

    Otherwise it is pyarrow's text. Bytes that are not UTF-8 are written as ``0x`` and hexadecimal
    digits.
    """
    try:
        text = _NESTED_FIELD_TEXT.sub(
            lambda ref: ".".join(_FIELD_NAME_TEXT.findall(ref[0])), str(expression)
        )
        return _MAP_LOOKUP_TEXT.sub(_format_map_lookup, text)
    except UnicodeDecodeError:
        return _format_node(read_expression(expression))


def _format_map_lookup(lookup: re.Match[str]) -> str:
    return "{}['{}']".format(lookup[1], lookup[2].replace("'", "''"))


def _format_node(node: Node) -> str:
    match node:
        case FieldRef(path=path):
            return ".".join(path)
        case Literal(value=value):
            return str(readable(value))
        case Call(function=function, arguments=arguments, options=options):
            option_texts = [f"{name}={readable(value)}" for name, value in options.items()]
            return f"{function}({', '.join([*map(_format_node, arguments), *option_texts])})"
        case Opaque(what=what):
            return what


def conjuncts(expression: pc.Expression) -> list[pc.Expression]:
    """Returns the operands of the ANDs at the top of an Expression."""
    serialized = serialized_of(expression)
    if serialized is None:
        return [expression]
    operand_nodes = operands_of(serialized.nodes, ANDS)
    return (
        [serialized.part(operand) for operand in operand_nodes]
        if len(operand_nodes) > 1
        else [expression]
    )


class Replaced(NamedTuple):
    """An Expression with fields in place of calls, and the calls by the fields' names."""

    expression: pc.Expression
    calls: dict[str, CallSite]


class CallSite(NamedTuple):
    """A function and its arguments."""

    function: str
    arguments: tuple[pc.Expression, ...]


def calls_replaced(expression: pc.Expression, functions: Container[str], prefix: str) -> Replaced:
    """Returns ``expression`` with a field in place of each outermost call of one of ``functions``.

    The fields are named ``prefix`` and a number. Raises ``PredicateError`` as ``read_expression``
    does.
    """
    serialized = serialized_of(expression)
    if serialized is None:
        return Replaced(expression, {})
    calls: dict[str, CallSite] = {}

    def field_for(at: int, stop: int) -> _Piece:
        name = f"{prefix}{len(calls)}"
        calls[name] = CallSite(serialized.nodes[at][1], _arguments(serialized, at + 1, stop - 1))
        return _Piece([("field_ref", name)], [])

    substituted = _substitute(serialized, functions, field_for)
    return Replaced(expression if substituted is None else substituted, calls)


def replaced(
    expression: pc.Expression,
    functions: Container[str],
    change: Callable[[Call], pc.Expression | None],
) -> pc.Expression:
    """Returns ``expression`` with the results of ``change`` in place of calls of ``functions``.

    A call stays if ``change`` returns None. ``change`` is not called for calls inside a replaced
    call.
    """
    serialized = serialized_of(expression)
    if serialized is None:
        return expression

    def changed(at: int, stop: int) -> _Piece | None:
        call = _tree(iter(serialized.nodes[at:stop]), serialized.batch)
        new_expression = change(call) if isinstance(call, Call) else None
        own = None if new_expression is None else serialized_of(new_expression)
        return None if own is None else _Piece(own.nodes, own.batch.columns)

    new_expression = _substitute(serialized, functions, changed)
    return expression if new_expression is None else new_expression


class _Piece(NamedTuple):
    """Nodes of a serialized Expression, and the columns that they point to."""

    nodes: Nodes
    columns: list[pa.Array]


def _substitute(
    serialized: Serialized,
    functions: Container[str],
    change: Callable[[int, int], _Piece | None],
) -> pc.Expression | None:
    """Returns the Expression with the results of ``change`` in place of calls of ``functions``.

    ``change`` gets the index of a call's first node and the index after its last. Returns None if
    ``change`` returns None for every call.
    """
    nodes, columns, new_nodes = serialized.nodes, list(serialized.batch.columns), []
    at, is_changed = 0, False
    while at < len(nodes):
        kind, value = nodes[at]
        stop = at + 1 + (int(value) if kind == "nested_field_ref" else 0)
        piece = None
        if kind == "call" and value in functions:
            end = end_of(nodes, at)
            piece = change(at, end)
        if piece is None:
            new_nodes += nodes[at:stop]
        else:
            first, is_changed, stop = len(columns), True, end
            new_nodes += [
                (k, str(int(v) + first) if k in NODES_WITH_COLUMN else v) for k, v in piece.nodes
            ]
            columns += piece.columns
        at = stop
    return serialized._replace(batch=batch_of(columns)).part(new_nodes) if is_changed else None


def _arguments(serialized: Serialized, at: int, stop: int) -> tuple[pc.Expression, ...]:
    """Returns the Expressions of the nodes from ``at`` up to ``stop``, which follow one another."""
    arguments = []
    while at < stop:
        end = end_of(serialized.nodes, at)
        arguments.append(serialized.part(serialized.nodes[at:end]))
        at = end
    return tuple(arguments)


def is_deep(node: Node) -> bool:
    """True if calls nest too deeply to be followed. Chains of ANDs or ORs count once."""
    pending = [(node, 0, "")]
    while pending:
        current, depth, above = pending.pop()
        if isinstance(current, Call):
            depth += current.function != above or above not in CHAINS
            if depth > _MAX_DEPTH:
                return True
            pending += [(argument, depth, current.function) for argument in current.arguments]
    return False


def operands(node: Node, function: str) -> list[Node]:
    """Returns the operands of a chain of one function: ``a``, ``b``, ``c`` of ``(a | b) | c``."""
    chain_operands: list[Node] = []
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, Call) and current.function == function:
            pending += reversed(current.arguments)
        else:
            chain_operands.append(current)
    return chain_operands


def calls_in(node: Node) -> Iterator[Call]:
    """Yields ``node`` and everything below it that is a call."""
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, Call):
            yield current
            pending += current.arguments


def field_paths(node: Node) -> set[tuple[str, ...]] | None:
    """Returns the paths of all fields under ``node``, or None if one of them is unknown."""
    paths: set[tuple[str, ...]] = set()
    pending = [node]
    while pending:
        match pending.pop():
            case FieldRef(path):
                paths.add(path)
            case Opaque():
                return None
            case Call(_, arguments):
                pending += arguments
    return paths


def _tree(items: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> Node:
    """Returns the tree of nodes in prefix order, without recursion: long filters are deep trees."""
    open_calls: list[tuple[str, list[Node], dict[str, Any]]] = [("", [], {})]
    while len(open_calls) > 1 or not open_calls[0][1]:
        kind, value = next(items)
        _, arguments, options = open_calls[-1]
        match kind:
            case "call":
                open_calls.append((value, [], {}))
            case "end":
                open_calls.pop()
                function = value if _are_utf8(options) else f"{value} of bytes"
                open_calls[-1][1].append(Call(function, tuple(arguments), options))
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
    return open_calls[0][1][0]


def _are_utf8(options: Mapping[str, Any]) -> bool:
    """True if all strings among the options are UTF-8.

    Only pyarrow can evaluate a call with a pattern of other bytes.
    """
    try:
        for value in options.values():
            if isinstance(value, pa.StringScalar):
                value.as_py()
    except UnicodeDecodeError:
        return False
    return True
