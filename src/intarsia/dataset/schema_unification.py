"""One schema for files whose columns differ."""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from intarsia.errors import UnsupportedError, Where, name_of_several
from intarsia.expr.casts import keeps_values
from intarsia.expr.filterable_types import filterable_type
from intarsia.expr.nested_types import leaf_pairs, nullable, with_children
from intarsia.file.open_file import OpenedFile
from intarsia.scan.files.file_cache import FileCache
from intarsia.scan.files.file_pruning import each_of

UNLIKE = (pa.ArrowInvalid, pa.ArrowTypeError)
"""What pyarrow raises of schemas that cannot be united."""
Becoming = Callable[[pa.DataType, pa.DataType], bool]
"""May a column of one type, which is not nested, be of the other among its like?"""


def united_schema(
    cache: FileCache,
    files: Sequence[str],
    schema_of: Callable[[OpenedFile], pa.Schema] = operator.attrgetter("schema_arrow"),
) -> pa.Schema:
    """All columns of ``files``, in the order in which they come, ``united``, and NULL allowed.

    Metadata is the first file's. Raises ``UnsupportedError`` that names a file whose columns do not
    go with those of the files before it.
    """

    def read(path: str) -> pa.Schema:
        return schema_of(cache.as_opened(path))

    schemas = list(each_of(cache, (partial(read, file) for file in files)))
    if all(schema is schemas[0] or schema.equals(schemas[0]) for schema in schemas):
        schema = schemas[0]
    else:
        try:
            schema = _united(schemas)
        except UNLIKE:
            _raise_of_first(files, schemas)
            raise
    return schema.with_metadata(cache.as_opened(files[0]).templates.stored_metadata)


def united(schemas: Sequence[pa.Schema], may_become: Becoming) -> pa.Schema:
    """All columns of all ``schemas``, each of a type that all of its own ``may_become``.

    What is within lists and structs likewise. Raises one of ``UNLIKE`` where there is none.
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


def stays_itself(kind: pa.DataType, target: pa.DataType) -> bool:
    """Whole numbers and others that become wider, and texts."""
    is_whole = pa.types.is_integer
    return keeps_values(kind, target) and is_whole(kind) == is_whole(target)


def can_be_read(kind: pa.DataType, target: pa.DataType) -> bool:
    """What pyarrow reads as another type, unless the type has no room for a value."""
    if pa.types.is_decimal(kind) or pa.types.is_decimal(target):
        return bool(pa.types.is_decimal(kind) and pa.types.is_decimal(target))
    return not pa.types.is_float16(target) or keeps_values(kind, target)


def common_type(kinds: Sequence[pa.DataType], may_become: Becoming) -> pa.DataType | None:
    """The type that all ``kinds`` may become, none of which is a dictionary where others are not.

    What is NULL in all rows may become any.
    """
    if len(kinds) < 2:
        return next(iter(kinds), None)
    plain = list(map(_plain, kinds))
    try:
        schemas = [pa.schema([("", kind)]) for kind in plain]
        common = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except UNLIKE:
        return None
    pairs = itertools.chain.from_iterable(leaf_pairs(kind, common) for kind in plain)
    is_common = all(pa.types.is_null(kind) or may_become(kind, target) for kind, target in pairs)
    return common if is_common else None


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    return with_children(filterable_type(kind), lambda field: field.with_type(_plain(field.type)))


def _united(schemas: Sequence[pa.Schema]) -> pa.Schema:
    return pa.schema([nullable(field) for field in united(schemas, can_be_read)])


def _raise_of_first(files: Sequence[str], schemas: Sequence[pa.Schema]) -> None:
    """Raise ``UnsupportedError`` that names the first file that does not go with those before."""
    at = first_unlike(schemas, can_be_read)
    try:
        _united([*([_united(schemas[:at])] if at else []), schemas[at]])
    except UNLIKE as error:
        twice = name_of_several(schemas[at].names)
        problem = f"its columns do not go with those of the files before it: {error}"
        if twice is not None:
            raise UnsupportedError(f"two columns are called {twice!r}", Where(files[at])) from error
        hint = "a schema that is stated says what they are to be read as"
        raise UnsupportedError(f"{problem}; {hint}", Where(files[at])) from error


def first_unlike(schemas: Sequence[pa.Schema], may_become: Becoming) -> int:
    """Which of ``schemas``, that cannot be united, is the first not to go with those before it."""
    count = len(schemas)
    return bisect.bisect_left(
        range(count), True, key=lambda at: _are_unlike(schemas[: at + 1], may_become)
    )


def _are_unlike(schemas: Sequence[pa.Schema], may_become: Becoming) -> bool:
    try:
        united(schemas, may_become)
    except UNLIKE:
        return True
    return False
