"""Values in the names of folders, read as the types of columns.

pyarrow reads most types by itself. The others are read here: Arrow dictionaries, decimals, UUIDs,
views and bytes.
"""

from __future__ import annotations

import functools
import operator
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote, unquote, unquote_to_bytes

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from intarsia.expr.casts import is_uuid
from intarsia.expr.tree import ANDS, Call, FieldRef, Literal, Node, read_expression

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""The value that stands for NULL in the name of a folder."""
_ESCAPED_BYTE = re.compile(rb"\\x([0-9A-Fa-f]{2})")
"""DuckDB writes a backslash, and a byte that is no printable ASCII character, as ``\\xFF``."""
_UUID_WIDTH = 16


def folder_expressions(
    folders: pads.Partitioning, files: Sequence[str], base: str | None
) -> Iterator[pc.Expression]:
    """Yields the partition expression of each of ``files``.

    Raises ``pa.ArrowInvalid`` or ``ValueError`` if a folder's value does not fit its type.
    """
    parse = folders.parse
    if not all(_is_parsed_by_pyarrow(field.type) for field in folders.schema):
        parse = functools.partial(_parsed, folders)
    known: dict[str, pc.Expression] = {}
    for file in files:
        folder = file.removeprefix(base or "").rpartition("/")[0] + "/"
        if folder not in known:
            known[folder] = parse(folder)
        yield known[folder]


def key_expression(name: str, value: str, kind: pa.DataType) -> pc.Expression | None:
    """Returns the condition that column ``name`` has the ``value`` of a folder, as it is written.

    Returns None if values of the type are not written as text, as lists: the files have the value.
    Raises ``pa.ArrowInvalid`` or ``ValueError`` if the value does not fit the type.
    """
    if unquote(value) == NULL_FOLDER:
        return pc.field(name).is_null()
    if _is_parsed_by_pyarrow(kind):
        folder = f"/{quote(name, safe='')}={value}/"
        return pads.HivePartitioning(pa.schema([(name, kind)])).parse(folder)
    scalar = _scalar(value, kind)
    return None if scalar is None else pc.field(name) == scalar


def hive_values(folder: str) -> dict[str, str]:
    """Returns the values of the keys in a path of folders, with some characters as ``%XX``."""
    pairs = (part.partition("=") for part in folder.split("/"))
    return {unquote(key): value for key, is_pair, value in pairs if is_pair}


def folder_constants(fragment: pads.Fragment, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """Returns the values that a file's folder gives to columns of ``schema``, by name."""
    expression = fragment.partition_expression
    try:
        keys = pads.get_partition_keys(expression)
    except ValueError:  # nanoseconds, which Python's datetime lacks
        return _literals(read_expression(expression), schema)
    kinds = {name: schema.field(name).type for name in keys if name in schema.names}
    if any(getattr(kind, "unit", None) == "ns" for kind in kinds.values()):
        return _literals(read_expression(expression), schema)
    return {name: pa.scalar(keys[name], kind) for name, kind in kinds.items()}


def constants_expression(constants: Mapping[str, pa.Scalar]) -> pc.Expression:
    """Returns the condition that columns have these values."""
    conditions = [
        pc.field(name) == value if value.is_valid else pc.field(name).is_null()
        for name, value in constants.items()
    ]
    return functools.reduce(operator.and_, conditions) if conditions else pc.scalar(True)


def _literals(node: Node, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """Returns the columns for which a partition expression gives a value or NULL, by name."""
    match node:
        case Call("equal", (FieldRef((name,)), Literal(value))) if name in schema.names:
            return {name: value.cast(schema.field(name).type)}
        case Call("is_null", (FieldRef((name,)),)) if name in schema.names:
            return {name: pa.scalar(None, schema.field(name).type)}
        case Call(function, arguments) if function in ANDS:
            return {k: v for one in arguments for k, v in _literals(one, schema).items()}
    return {}


def _parsed(folders: pads.Partitioning, folder: str) -> pc.Expression:
    types, values = folders.schema, _values(folders, folder)
    expressions = [
        key_expression(name, value, types.field(name).type)
        for name, value in values.items()
        if name in types.names
    ]
    known = [expression for expression in expressions if expression is not None]
    return functools.reduce(operator.and_, known) if known else pc.scalar(True)


def _values(folders: pads.Partitioning, folder: str) -> Mapping[str, str]:
    if isinstance(folders, pads.HivePartitioning):
        return hive_values(folder)
    return dict(zip(folders.schema.names, folder.strip("/").split("/"), strict=False))


def _is_parsed_by_pyarrow(kind: pa.DataType) -> bool:
    """True if pyarrow parses the values of folders as this type."""
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_interval(kind):
        return False
    checks = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_temporal,
        pa.types.is_string,
        pa.types.is_large_string,
    )
    return any(check(kind) for check in checks)


def _scalar(value: str, kind: pa.DataType) -> pa.Scalar | None:
    """Returns a value of a type that pyarrow does not parse. Returns None as ``key_expression``."""
    if pa.types.is_dictionary(kind):
        inner = _scalar(value, kind.value_type)
        return None if inner is None else pa.scalar(inner.as_py(), kind)
    if is_uuid(kind):
        return pa.scalar(uuid.UUID(unquote(value)).bytes, kind)
    if isinstance(kind, pa.BaseExtensionType):
        inner = _scalar(value, kind.storage_type)
        return None if inner is None else pa.ExtensionScalar.from_storage(kind, inner)
    if pa.types.is_fixed_size_binary(kind):
        content = _of_width(value, kind.byte_width)
        return None if content is None else pa.scalar(content, kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.scalar(_bytes(value), kind)
    if pa.types.is_nested(kind) or pa.types.is_interval(kind) or pa.types.is_null(kind):
        return None
    return pa.scalar(unquote(value, errors="strict")).cast(kind)


def _bytes(value: str) -> bytes:
    return _ESCAPED_BYTE.sub(
        lambda match: bytes.fromhex(match[1].decode()), unquote_to_bytes(value)
    )


def _of_width(value: str, width: int) -> bytes | None:
    """Returns ``width`` bytes, or the bytes of a UUID. Returns None for any other text."""
    content = _bytes(value)
    if len(content) == width:
        return content
    if width == _UUID_WIDTH:
        try:
            return uuid.UUID(unquote(value)).bytes
        except ValueError:
            return None
    return None
