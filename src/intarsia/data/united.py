"""One schema for files whose columns differ."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from intarsia.data.cache import FileCache
from intarsia.data.survey import each_of
from intarsia.errors import UnsupportedError, Where
from intarsia.predicate.casts import keeps_values
from intarsia.predicate.constants import DECIMALS
from intarsia.predicate.nested import nullable
from intarsia.predicate.views import without_views

UNLIKE = (pa.ArrowInvalid, pa.ArrowTypeError)
"""What pyarrow raises of schemas that cannot be united."""


def united_schema(cache: FileCache, files: Sequence[str]) -> pa.Schema:
    """All columns of ``files``, in the order in which they come, ``widened``, and NULL allowed.

    Metadata is the first file's. Raises ``UnsupportedError`` that names a file whose columns do not
    go with those of the files before it.
    """
    schemas = list(each_of(cache, (partial(_schema_of, cache, file) for file in files)))
    if all(schema is schemas[0] or schema.equals(schemas[0]) for schema in schemas):
        united = schemas[0]
    else:
        try:
            united = _united(schemas)
        except UNLIKE:
            _raise_of_first(files, schemas)
            raise
    return united.with_metadata(cache.as_opened(files[0]).templates.stored_metadata)


def widened(schemas: Sequence[pa.Schema], *, moments: bool = False) -> list[pa.Schema]:
    """Whole numbers, and others, as wide in each as they are in any, and texts of one type, none
    of which is a dictionary where another is not.

    With ``moments``, timestamps of the finest unit, which may not hold the years of another.
    """
    kinds: dict[str, dict[pa.DataType, None]] = {}
    for field in itertools.chain.from_iterable(schemas):
        if not pa.types.is_null(field.type):
            kinds.setdefault(field.name, {})[field.type] = None
    wide = {
        name: _widest(types) or (_finest(types) if moments else None)
        for name, types in ((name, list(map(_plain, found))) for name, found in kinds.items())
        if len(types) > 1
    }
    return [
        pa.schema([field.with_type(wide.get(field.name) or field.type) for field in schema])
        for schema in schemas
    ]


def _plain(kind: pa.DataType) -> pa.DataType:
    return without_views(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _widest(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """The type that holds all values of all ``kinds``, as numbers of the same sort, or texts."""
    try:
        fields = (pa.schema([("", kind)]) for kind in kinds)
        wide = pa.unify_schemas(list(fields), promote_options="permissive").field(0).type
    except UNLIKE:
        return None
    is_whole = pa.types.is_integer
    if all(keeps_values(kind, wide) and is_whole(kind) == is_whole(wide) for kind in kinds):
        return wide
    return None


def _finest(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """That of ``kinds`` which has the finest unit, if all are timestamps of one time zone."""
    if all(map(pa.types.is_timestamp, kinds)) and len({kind.tz for kind in kinds}) == 1:
        return max(kinds, key=lambda kind: DECIMALS[kind.unit])
    return None


def _schema_of(cache: FileCache, path: str) -> pa.Schema:
    return cache.as_opened(path).schema_arrow


def _united(schemas: Sequence[pa.Schema]) -> pa.Schema:
    united = pa.unify_schemas(widened(schemas, moments=True))
    return pa.schema([nullable(field) for field in united])


def _raise_of_first(files: Sequence[str], schemas: Sequence[pa.Schema]) -> None:
    """Raise ``UnsupportedError`` that names the first file that does not go with those before."""
    at = bisect.bisect_left(range(len(files)), True, key=lambda at: _are_unlike(schemas[: at + 1]))
    try:
        _united([_united(schemas[:at]), schemas[at]])
    except UNLIKE as error:
        problem = f"its columns do not go with those of the files before it: {error}"
        raise UnsupportedError(problem, Where(files[at])) from error


def _are_unlike(schemas: Sequence[pa.Schema]) -> bool:
    try:
        _united(schemas)
    except UNLIKE:
        return True
    return False
