"""The tree of a filter, which is read from a ``pyarrow.compute.Expression`` and written as one."""

from __future__ import annotations

import contextlib
import operator
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.scalar_format import readable
from intarsia.pyarrow_internals import call, serialized_of

T = TypeVar("T")


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
    """A function applied to arguments; ``options`` are its options by name, as pyarrow scalars.

    Functions of ``CHAINS`` have two arguments or more, none of which calls the same function.
    """

    function: str
    arguments: tuple[Node, ...]
    options: dict[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Opaque:
    """An Expression whose structure is unknown, such as one with a field by position."""

    expression: pc.Expression

    def __eq__(self, other: object) -> bool:
        # ``==`` of Expressions has no truth value. Since 3.13 it is used if they are identical too.
        return isinstance(other, Opaque) and bool(self.expression.equals(other.expression))


ANDS = ("and_kleene", "and")
"""Functions that are true for a row exactly if all their arguments are."""

ORS = ("or_kleene", "or")
CHAINS = (*ANDS, *ORS)
"""Functions that are often written as long chains. A tree has one call for each chain."""
_OF_BYTES = " of bytes"
"""Ends the name of a function with a pattern that is not UTF-8. Only pyarrow can evaluate it."""
_MAX_REMEMBERED_VALUES = 10_000
"""Values of a list in a tree that a thread remembers."""
_MAX_NESTED = 32
"""Parts of a chain that are written one in the other."""
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

    It is ``Opaque`` if pyarrow cannot serialize the Expression, as for fields by position. It is as
    well if pyarrow's serialized form is not the one that this version knows.

    Several steps of a query read the same Expression: each thread remembers the last one. Raises
    ``PredicateError`` as ``serialized_of`` does.
    """
    if _last.expression is expression:
        return _last.node
    serialized = serialized_of(expression)
    if serialized is not None:
        with contextlib.suppress(StopIteration, IndexError, ValueError):
            node = _tree(iter(serialized.items), serialized.batch)
            _remember(expression, node)
            return node
    return Opaque(expression)


def to_expression(node: Node) -> pc.Expression:
    """Returns the Expression of a tree, which ``read_expression`` reads back."""
    if _last.node is node and _last.expression is not None:
        return _last.expression
    expression = folded(node, _written)
    _remember(expression, node)
    return expression


def _written(node: Node, arguments: list[pc.Expression]) -> pc.Expression:
    match node:
        case FieldRef(path):
            return pc.field(*path)
        case Literal(value):
            return pc.scalar(value)
        case Opaque(expression):
            return expression
        case Call(function) if function in CHAINS:
            join = partial(_joined_expressions, function)
            while len(arguments) > 1:  # in groups, since deep trees overflow pyarrow's stack
                starts = range(0, len(arguments), _MAX_NESTED)
                arguments = [reduce(join, arguments[at : at + _MAX_NESTED]) for at in starts]
            return arguments[0]
        case Call(function, _, options):
            return call(function.removesuffix(_OF_BYTES), arguments, options)


def _joined_expressions(function: str, left: pc.Expression, right: pc.Expression) -> pc.Expression:
    return call(function, [left, right])


class _Last(threading.local):
    """The last Expression and its tree."""

    expression: pc.Expression | None = None
    node: Node = Literal(pa.scalar(None))


_last = _Last()


def _remember(expression: pc.Expression, node: Node) -> None:
    """Remembers an Expression and its tree, unless it has a long list of values."""
    lists = (call.options["value_set"] for call in calls_in(node) if call.function == "is_in")
    if all(len(one.values or ()) <= _MAX_REMEMBERED_VALUES for one in lists):
        _last.expression, _last.node = expression, node


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
        case Opaque(expression):
            return str(expression)


def conjuncts(node: Node) -> tuple[Node, ...]:
    """Returns the operands of the AND at the top of a tree, or the tree alone."""
    is_and = isinstance(node, Call) and node.function in ANDS
    return node.arguments if isinstance(node, Call) and is_and else (node,)


def joined(function: str, parts: Sequence[Node]) -> Node:
    """Returns ``parts``, at least one, joined by one of ``CHAINS``."""
    operands: list[Node] = []
    for part in parts:
        is_chain = isinstance(part, Call) and part.function == function
        operands += part.arguments if isinstance(part, Call) and is_chain else (part,)
    return operands[0] if len(operands) == 1 else Call(function, tuple(operands))


def folded(node: Node, combine: Callable[[Node, list[T]], T]) -> T:
    """Returns ``combine`` of a tree and of the results for its arguments, the inner ones first."""
    open_calls: list[tuple[Node, list[T], Iterator[Node]]] = []
    call, results, remaining = node, list[T](), iter((node,))
    while True:  # no recursion: long filters are deep trees
        current = next(remaining, None)
        if isinstance(current, Call):
            open_calls.append((call, results, remaining))
            call, results, remaining = current, [], iter(current.arguments)
        elif current is not None:
            results.append(combine(current, []))
        elif open_calls:
            result = combine(call, results)
            call, results, remaining = open_calls.pop()
            results.append(result)
        else:
            return results[0]


def replaced(node: Node, change: Callable[[Node], Node]) -> Node:
    """Returns ``node`` after ``change`` of each part, the inner ones first.

    ``change`` returns a part itself if it stays. So does this function for ``node``.
    """
    return folded(node, lambda part, arguments: change(_with_arguments(part, arguments)))


def built(function: Callable[..., pc.Expression], *arguments: Any, **options: Any) -> Node:
    """Returns the tree of the Expression that ``function`` makes of ``arguments``, some are trees.

    >>> built(pc.utf8_lower, FieldRef(("a",)))
    Call(function='utf8_lower', arguments=(FieldRef(path=('a',)),), options={})
    """
    fields = [
        pc.field(str(number)) if isinstance(argument, Node) else argument
        for number, argument in enumerate(arguments)
    ]

    def argument_of(part: Node) -> Node:
        node: Node = arguments[int(part.path[0])] if isinstance(part, FieldRef) else part
        return node

    return replaced(read_expression(function(*fields, **options)), argument_of)


def _with_arguments(node: Node, arguments: list[Node]) -> Node:
    if not isinstance(node, Call) or all(map(operator.is_, arguments, node.arguments)):
        return node
    if node.function in CHAINS:
        return joined(node.function, arguments)
    return Call(node.function, tuple(arguments), node.options)


def is_deep(node: Node) -> bool:
    """True if calls nest too deeply to be followed."""
    calls = [node] if isinstance(node, Call) else []
    depth = 0
    while calls and depth < _MAX_DEPTH:
        calls = [below for call in calls for below in call.arguments if isinstance(below, Call)]
        depth += 1
    return bool(calls)


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
                above, operands, _ = open_calls[-1]
                if value in CHAINS and value == above:
                    operands += arguments
                    continue
                function = value if _are_utf8(options) else value + _OF_BYTES
                operands.append(Call(function, tuple(arguments), options))
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
    """True if all strings among the options are UTF-8."""
    try:
        for value in options.values():
            if isinstance(value, pa.StringScalar):
                value.as_py()
    except UnicodeDecodeError:
        return False
    return True
