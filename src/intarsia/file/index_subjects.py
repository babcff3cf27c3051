"""Index subjects in a file: columns, leaves of structs, list elements, functions of columns."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from intarsia.errors import FormatError, IndexSpecError, PredicateError, instead
from intarsia.expr.casts import has_zone, is_in_utc, without_extension
from intarsia.expr.evaluate import compute_columns
from intarsia.expr.filterable_types import filterable_schema
from intarsia.expr.functions import element_type, is_list, plain_type
from intarsia.expr.nested_types import leaf_pairs, type_at, with_whole_maps, without_dictionary
from intarsia.expr.tree import Call, FieldRef, Node
from intarsia.expr.type_cache import cached_by_type
from intarsia.file.file_footer import ColumnTypes
from intarsia.index.base import Reads, Subject, index_name
from intarsia.index.directory import IndexEntry
from intarsia.index.indexed_type import order_of_type
from intarsia.index.registry import EmbeddedIndex, make
from intarsia.parquet.schema import Leaf, Schema
from intarsia.parquet.value_order import Domain, ValueOrder
from intarsia.pruning.term import Term, field_term, parse_term, term_of

NESTED_READS = (Reads.ELEMENTS, Reads.ENTRIES)
"""The parts of lists and maps that indexes may be on."""
_VALUE = "value"


def subject_of(columns: ColumnTypes, index: EmbeddedIndex, meaning: str | None = None) -> Subject:
    """Returns what ``index`` is on in files with these ``columns``.

    ``meaning`` is the directory's definition of the index's functions. Without one, ``on`` is a
    column if there is one of that path, and else a function. Raises ``IndexSpecError`` if it is
    neither or cannot be indexed, and ``FormatError`` if pyarrow cannot read the schema.
    """
    try:
        subject = _subject(columns, index, meaning)
    except IndexSpecError as error:
        raise IndexSpecError(f"no index {index_name(index.on, index.kind)}: {error}") from error
    try:
        reason = index.unfit(subject)
    except Exception as error:  # noqa: BLE001 # a plugin's kind must not make reads fail
        reason = f"{type(error).__name__}: {error}"
    if reason:
        raise IndexSpecError(f"no index {index_name(index.on, index.kind)}: {reason}")
    return subject


def can_have(columns: ColumnTypes, entry: IndexEntry) -> bool:
    """True if files with these ``columns`` can have the index; False for an unknown kind."""
    try:
        subject_of(columns, make(entry.kind, entry.on, entry.params))
    except (IndexSpecError, FormatError):
        return False
    return True


def renamed_subject(on: str, columns: ColumnTypes, renamed: ColumnTypes) -> str | None:
    """Returns what an index on ``on`` is on, if the columns have the names of ``renamed``.

    ``columns`` and ``renamed`` are the same columns. Returns None if ``on`` is neither a column nor
    a function of columns.
    """
    names: dict[tuple[str, ...], tuple[str, ...]] = {}
    for leaf, other in zip(columns.schema.leaves, renamed.schema.leaves, strict=True):
        for depth in range(1, len(leaf.path) + 1):
            names.setdefault(leaf.path[:depth], other.path[:depth])
    for path in ((on,), tuple(on.split("."))):
        if path in names:
            return ".".join(names[path])
    try:
        term, _ = _function(on, columns.schema_arrow)
    except (FormatError, PredicateError):
        return None
    other_term = term_of(_with_names(term.node, names))
    return None if other_term is None else other_term.sql


def _with_names(node: Node, names: Mapping[tuple[str, ...], tuple[str, ...]]) -> Node:
    match node:
        case FieldRef(path):
            return FieldRef(names.get(path, path))
        case Call(function, arguments, options):
            renamed = tuple(_with_names(argument, names) for argument in arguments)
            return Call(function, renamed, options)
        case _:
            return node


def _subject(columns: ColumnTypes, index: EmbeddedIndex, meaning: str | None) -> Subject:
    on, schema = index.on, columns.schema
    if len(index.on_path) > 1 and schema.root(on) is not None:
        raise IndexSpecError("a column has the same name, and would be read instead of the field")
    if not meaning:
        if index.reads in NESTED_READS:
            return _of_nested(columns, on, index.reads)
        leaf = schema.leaf(on)
        if leaf is not None:
            return _of_leaf(columns, leaf, index.reads)
        if schema.root(on) is not None:
            raise IndexSpecError(not_a_leaf(on, schema))
        if meaning is not None:
            raise IndexSpecError(f"column {on!r} is not there")
    if index.reads in NESTED_READS:
        raise IndexSpecError("this kind is for lists and maps, not for functions")
    try:
        term, kind = _function(on, columns.schema_arrow)
    except PredicateError as error:
        is_function = any(character in on for character in "()[]+-*")
        nor = f". Nor is it a function of columns: {error}" if is_function else ""
        raise IndexSpecError(not_a_leaf(on, schema) + nor) from error
    if term.path:  # names in SQL have no case, those of columns have
        raise IndexSpecError(not_a_leaf(on, schema))
    if meaning and meaning != term.meaning:
        raise IndexSpecError(f"its functions meant {meaning!r}; here they mean {term.meaning!r}")
    return Subject(term, decoded(kind), order_of_type(decoded(kind)))


def not_a_leaf(on: str, schema: Schema) -> str:
    """Returns why ``on`` is no leaf of ``schema``: it has several leaves, or is not there."""
    root = schema.root(on)
    if root is not None:
        leaves = [leaf for leaf in schema.leaves if leaf.path[0] == on]
        logical = schema.elements[root.elements.start].logicalType
        holds = logical is not None and (logical.LIST is not None or logical.MAP is not None)
        hint = f"; {on}:elements indexes what lists and maps hold" if holds else ""
        return f"the column is nested: it has {', '.join(leaf.name for leaf in leaves)}{hint}"
    return f"column {on!r} is not there{instead(on, (leaf.name for leaf in schema.leaves))}"


def _of_leaf(columns: ColumnTypes, leaf: Leaf, reads: Reads) -> Subject:
    kind = columns.arrow_type(columns.schema.roots[leaf.root])
    for name in leaf.path[1:]:
        if leaf.max_repetition_level or not pa.types.is_struct(kind):
            raise IndexSpecError("the column is nested in lists")
        if kind.get_field_index(name) < 0:
            raise IndexSpecError(f"two fields are called {name!r}")
        kind = kind.field(name).type
    if leaf.max_repetition_level:
        raise IndexSpecError("the column is a list")
    kind = decoded(kind)
    order = columns.order(leaf.index) if reads is Reads.PHYSICAL else order_of_type(kind)
    return Subject(field_term(*leaf.path), kind, order)


def _of_nested(columns: ColumnTypes, on: str, reads: Reads) -> Subject:
    """Returns the elements of a list, or keys or entries of a map, as a subject."""
    path = (on,) if columns.schema.root(on) is not None else tuple(on.split("."))
    root = columns.schema.root(path[0])
    if root is None or not root.all_leaves:
        raise IndexSpecError(f"column {on!r} is not there")
    kind = columns.arrow_type(root)
    for name in path[1:]:
        if not pa.types.is_struct(kind):
            raise IndexSpecError("the column is nested in lists")
        if kind.get_field_index(name) < 0:
            raise IndexSpecError(f"column {on!r} is not there")
        kind = kind.field(name).type
    if reads is Reads.ENTRIES:
        if not pa.types.is_map(kind):
            raise IndexSpecError("the column is not a map")
        entry = pa.struct({"key": element_type(kind), "value": plain_type(kind.item_type)})
        return Subject(field_term(*path), entry, ValueOrder(Domain.UNDEFINED))
    if not is_list(kind) and not pa.types.is_map(kind):
        raise IndexSpecError("the column is not a list")
    kind = element_type(kind)
    return Subject(field_term(*path), kind, order_of_type(kind))


def decoded(kind: pa.DataType) -> pa.DataType:
    """Returns a type without Arrow's dictionary, with the storage type of UUIDs and JSON."""
    return without_extension(without_dictionary(kind))


@cached_by_type
def _function(text: str, schema: pa.Schema) -> tuple[Term, pa.DataType]:
    """Returns the term of SQL text, and the type of its values."""
    term = parse_term(text, schema)
    names = {path[0] for path in term.fields}
    fields = [schema.field(name) for name in names]
    for path in sorted(term.given):
        kind = type_at(schema, path)
        if any(has_zone(leaf) and not is_in_utc(leaf) for leaf, _ in leaf_pairs(kind, kind)):
            name = ".".join(path)
            raise PredicateError(f"what {name!r} becomes depends on the rules of its time zone")
    no_rows = {field.name: pa.chunked_array([pa.nulls(0, field.type)]) for field in fields}
    return term, evaluated(term, no_rows).type


def evaluated(term: Term, columns: Mapping[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    """Returns the values of a term. Raises ``PredicateError`` if pyarrow cannot evaluate it.

    Columns are evaluated in the types in which filters evaluate them.
    """
    if len(term.path) == 1:
        return columns[term.path[0]]
    table = pa.Table.from_arrays(list(columns.values()), list(columns))
    try:
        table = with_whole_maps(table).cast(filterable_schema(table.schema))
        return compute_columns({_VALUE: term.expression}, table).column(_VALUE)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise PredicateError(f"cannot evaluate {term}: {error}") from error
