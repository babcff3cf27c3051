"""Spark's own entries in footers: its version, old calendars, and types that Parquet lacks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from intarsia.errors import UnsupportedError, Where, warn
from intarsia.expr.nested_types import leaves
from intarsia.file.open_file import OpenedFile

_VERSION = "org.apache.spark.version"
_OLD_DATES = "org.apache.spark.legacyDateTime"
_OLD_INT96 = "org.apache.spark.legacyINT96"
_ROW_METADATA = "org.apache.spark.sql.parquet.row.metadata"
_COLLATIONS = "__COLLATIONS"
_DATES_CORRECT_SINCE, _INT96_CORRECT_SINCE = (3, 0), (3, 1)


Entries = Mapping[str, str]
"""The key-value metadata of a footer."""


def entries_of(file: OpenedFile) -> Entries:
    """Returns the key-value metadata of a footer; missing values are empty strings."""
    return {entry.key: entry.value or "" for entry in file.metadata.key_value_metadata or ()}


def check_meaning(file: str, schema: pa.Schema, columns: Iterable[str]) -> None:
    """Raises ``UnsupportedError`` for a column with a collation; warns of dates in an old calendar.

    ``schema`` is the data set's, with the metadata of its first file, ``file``.
    """
    stored = (schema.metadata or {}).items()
    entries = {key.decode(errors="replace"): v.decode(errors="replace") for key, v in stored}
    collated = collations(entries)
    present = [name for name in columns if name in schema.names]
    for name in present:
        if name in collated:
            raise UnsupportedError(
                f"only Spark's own reader compares strings by its collation {collated[name]}: "
                "leave the column out, or use spark.read.parquet",
                Where(file, column=name),
            )
    if has_old_dates(entries) and any(
        has_dates_or_times(schema.field(name).type) for name in present
    ):
        warn(
            f"{file}: Spark wrote dates and times in the calendar before 1582's reform; dates "
            "before that, and times before 1900, differ from those of Spark's own reader",
        )


def has_dates_or_times(kind: pa.DataType) -> bool:
    """True if a type has dates or timestamps in it."""
    return any(pa.types.is_date(leaf) or pa.types.is_timestamp(leaf) for leaf in leaves(kind))


def has_old_dates(entries: Entries) -> bool:
    """True if dates and timestamps are in the calendar before 1582, which Spark converts."""
    return _is_old(entries, _OLD_DATES, _DATES_CORRECT_SINCE)


def calendars(entries: Entries) -> tuple[bool, bool]:
    """Returns whether dates and timestamps, and whether INT96 values, are in the old calendar."""
    return has_old_dates(entries), _is_old(entries, _OLD_INT96, _INT96_CORRECT_SINCE)


def entries_of_all(footers: Sequence[Entries], old: tuple[bool, bool]) -> dict[bytes, bytes]:
    """Returns the metadata on which all footers agree, for files of the calendars ``old``.

    If all footers have Spark's version, the first one's is included. Without it, Spark's settings
    would decide the meaning of dates.
    """
    shared = {k: v for k, v in footers[0].items() if all(other.get(k) == v for other in footers)}
    if all(_VERSION in entries for entries in footers):
        shared[_VERSION] = footers[0][_VERSION]
    shared |= {key: "" for key, is_old in zip((_OLD_DATES, _OLD_INT96), old, strict=True) if is_old}
    return {key.encode(): value.encode() for key, value in shared.items()}


def collations(entries: Entries) -> dict[str, str]:
    """Returns the collation of each column that has one, by name, nested fields included."""
    try:
        return collations_of(json.loads(entries.get(_ROW_METADATA, "{}")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def collations_of(schema: Mapping[str, Any]) -> dict[str, str]:
    """Returns the collations in a schema as Spark writes it in JSON; see ``collations``."""
    fields = schema.get("fields", ())
    return {str(field["name"]): name for field in fields for name in _collations_in(field)}


def _collations_in(field: dict[str, Any]) -> Iterator[str]:
    yield from map(str, field.get("metadata", {}).get(_COLLATIONS, {}).values())
    pending = [field["type"]]
    while pending:
        kind = pending.pop()
        if not isinstance(kind, dict):
            continue
        for inner in kind.get("fields", ()):
            yield from _collations_in(inner)
        pending += [kind.get(part) for part in ("elementType", "keyType", "valueType")]


def _is_old(entries: Entries, key: str, since: tuple[int, int]) -> bool:
    if key in entries:
        return True
    version = entries.get(_VERSION)
    if version is None:
        return False
    major_and_minor = [int(part) if part.isdigit() else 0 for part in version.split(".")[:2]]
    return tuple(major_and_minor) < since
