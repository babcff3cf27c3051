"""One schema for files whose columns differ."""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from intarsia.errors import UnsupportedError, Where, first_duplicate
from intarsia.expr.casts import keeps_values
from intarsia.expr.filterable_types import filterable_type
from intarsia.expr.nested_types import leaf_pairs, nullable, with_children
from intarsia.file.open_file import OpenedFile
from intarsia.scan.files.file_cache import FileCache
from intarsia.scan.files.file_pruning import run_file_tasks

UNIFICATION_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError)
"""The errors that pyarrow raises for schemas that cannot be unified."""
TypeRule = Callable[[pa.DataType, pa.DataType], bool]
"""True if a column of the first type may have the second type in a unified schema."""


def unified_schema(
    cache: FileCache,
    files: Sequence[str],
    schema_of: Callable[[OpenedFile], pa.Schema] = operator.attrgetter("schema_arrow"),
) -> pa.Schema:
    """Returns the unified schema of ``files``. Columns are in order of appearance, and nullable.

    Metadata is that of the first file. Raises ``UnsupportedError``, which names the first file
    whose columns do not go with those of the files before it.
    """

    def read(path: str) -> pa.Schema:
        return schema_of(cache.as_opened(path))

    schemas = list(run_file_tasks(cache, (partial(read, file) for file in files)))
    if all(schema is schemas[0] or schema.equals(schemas[0]) for schema in schemas):
        schema = schemas[0]
    else:
        try:
            schema = _united(schemas)
        except UNIFICATION_ERRORS:
            _raise_of_first(files, schemas)
            raise
    return schema.with_metadata(cache.as_opened(files[0]).templates.stored_metadata)


def united(schemas: Sequence[pa.Schema], may_become: TypeRule) -> pa.Schema:
    """Returns all columns of ``schemas``, each of a type that all of its types ``may_become``.

    The same holds within lists and structs. Raises one of ``UNIFICATION_ERRORS`` if a column has no
    such type.
    """
    kinds: dict[str, dict[pa.DataType, None]] = {}
    for field in itertools.chain.from_iterable(schemas):
        known = kinds.setdefault(field.name, {})
        if not pa.types.is_null(field.type):
            known[field.type] = None
    common = {name: common_type(list(types), may_become) for name, types in kinds.items()}
    return pa.unify_schemas(
        [
            pa.schema([field.with_type(common[field.name] or field.type) for field in schema])
            for schema in schemas
        ]
    )


def keeps_meaning(kind: pa.DataType, target: pa.DataType) -> bool:
    """True if all values keep their meaning: integers and others that become wider, and strings."""
    is_whole = pa.types.is_integer
    return keeps_values(kind, target) and is_whole(kind) == is_whole(target)


def is_readable_as(kind: pa.DataType, target: pa.DataType) -> bool:
    """True if pyarrow can read one type as the other, as far as the values fit."""
    if pa.types.is_decimal(kind) or pa.types.is_decimal(target):
        return bool(pa.types.is_decimal(kind) and pa.types.is_decimal(target))
    return not pa.types.is_float16(target) or keeps_values(kind, target)


def common_type(kinds: Sequence[pa.DataType], may_become: TypeRule) -> pa.DataType | None:
    """Returns the type that all ``kinds`` may become. Returns None if there is none.

    Two or more types lose their dictionaries. The null type may become any type.
    """
    if len(kinds) < 2:
        return next(iter(kinds), None)
    plain = list(map(_plain, kinds))
    try:
        schemas = [pa.schema([("", kind)]) for kind in plain]
        common = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except UNIFICATION_ERRORS:
        return None
    pairs = itertools.chain.from_iterable(leaf_pairs(kind, common) for kind in plain)
    is_common = all(pa.types.is_null(kind) or may_become(kind, target) for kind, target in pairs)
    return common if is_common else None


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    return with_children(filterable_type(kind), lambda field: field.with_type(_plain(field.type)))


def _united(schemas: Sequence[pa.Schema]) -> pa.Schema:
    return pa.schema([nullable(field) for field in united(schemas, is_readable_as)])


def _raise_of_first(files: Sequence[str], schemas: Sequence[pa.Schema]) -> None:
    """Raises ``UnsupportedError`` for the first file that does not go with those before."""
    at = first_incompatible(schemas, is_readable_as)
    try:
        _united([*([_united(schemas[:at])] if at else []), schemas[at]])
    except UNIFICATION_ERRORS as error:
        twice = first_duplicate(schemas[at].names)
        problem = f"its columns do not go with those of the files before it: {error}"
        if twice is not None:
            raise UnsupportedError(f"two columns are called {twice!r}", Where(files[at])) from error
        hint = "give a schema that says the types to read them as"
        raise UnsupportedError(f"{problem}; {hint}", Where(files[at])) from error


def first_incompatible(schemas: Sequence[pa.Schema], may_become: TypeRule) -> int:
    """Returns which of ``schemas`` is the first that does not go with those before it."""
    count = len(schemas)
    return bisect.bisect_left(
        range(count), True, key=lambda at: _are_unlike(schemas[: at + 1], may_become)
    )


def _are_unlike(schemas: Sequence[pa.Schema], may_become: TypeRule) -> bool:
    try:
        united(schemas, may_become)
    except UNIFICATION_ERRORS:
        return True
    return False
