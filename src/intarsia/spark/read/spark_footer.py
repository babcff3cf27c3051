"""What Spark writes into footers of its own: its version, old calendars, types Parquet lacks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from intarsia.errors import UnsupportedError, Where, warn
from intarsia.file.open_file import OpenedFile
from intarsia.spark.types import leaves

_VERSION = "org.apache.spark.version"
_OLD_DATES = "org.apache.spark.legacyDateTime"
_OLD_INT96 = "org.apache.spark.legacyINT96"
_ROW = "org.apache.spark.sql.parquet.row.metadata"
_COLLATIONS = "__COLLATIONS"
_CORRECT_DATES, _CORRECT_INT96 = (3, 0), (3, 1)


Entries = Mapping[str, str]
"""Those of a footer, by their keys."""


def entries_of(file: OpenedFile) -> Entries:
    """The entries of a footer."""
    return {entry.key: entry.value or "" for entry in file.metadata.key_value_metadata or ()}


def check_meaning(file: str, schema: pa.Schema, columns: Iterable[str]) -> None:
    """Raise ``UnsupportedError`` for a column that has a collation; warn of an old calendar.

    ``schema`` is a data set's, with the entries of its first file, which is called ``file``.
    """
    stored = (schema.metadata or {}).items()
    entries = {key.decode(errors="replace"): v.decode(errors="replace") for key, v in stored}
    collated = collations(entries)
    asked = [name for name in columns if name in schema.names]
    for name in asked:
        if name in collated:
            raise UnsupportedError(
                f"its texts have the collation {collated[name]}, by which only Spark's own reader "
                "compares them: leave the column out, or use spark.read.parquet",
                Where(file, column=name),
            )
    if has_old_dates(entries) and any(has_moments(schema.field(name).type) for name in asked):
        warn(
            f"{file}: Spark wrote dates and times in the calendar before 1582's reform; dates "
            "before that, and times before 1900, are others here than with Spark's own reader",
        )


def has_moments(kind: pa.DataType) -> bool:
    """Are there dates or timestamps in a type?"""
    return any(pa.types.is_date(leaf) or pa.types.is_timestamp(leaf) for leaf in leaves(kind))


def has_old_dates(entries: Entries) -> bool:
    """Are dates and timestamps in the calendar before 1582's reform, which Spark shifts?"""
    return _is_old(entries, _OLD_DATES, _CORRECT_DATES)


def calendars(entries: Entries) -> tuple[bool, bool]:
    """Are dates and timestamps those of the old calendar, and are INT96?"""
    return has_old_dates(entries), _is_old(entries, _OLD_INT96, _CORRECT_INT96)


def entries_of_all(each: Sequence[Entries], old: tuple[bool, bool]) -> dict[bytes, bytes]:
    """The entries on which footers agree, of files of the calendars ``old``.

    And Spark's version of the first, where all have one: without it Spark's settings decide what
    dates mean.
    """
    same = {k: v for k, v in each[0].items() if all(other.get(k) == v for other in each)}
    if all(_VERSION in entries for entries in each):
        same[_VERSION] = each[0][_VERSION]
    same |= {key: "" for key, is_old in zip((_OLD_DATES, _OLD_INT96), old, strict=True) if is_old}
    return {key.encode(): value.encode() for key, value in same.items()}


def collations(entries: Entries) -> dict[str, str]:
    """The collations of columns that have one, by the columns' names, fields within them too."""
    try:
        return collations_of(json.loads(entries.get(_ROW, "{}")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def collations_of(schema: Mapping[str, Any]) -> dict[str, str]:
    """As ``collations``, of a schema as Spark writes it in JSON."""
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
    numbers = [int(part) if part.isdigit() else 0 for part in version.split(".")[:2]]
    return tuple(numbers) < since
