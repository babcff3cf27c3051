"""Limits the size of one page, from headers, before anything is decompressed.

A valid page of 100 KB can hold 2 GiB: compressed zeros, or a run of NULLs. The size of a page is
its ``uncompressed_page_size``. It is the size of its values and levels in memory if that is larger.
"""

from __future__ import annotations

from collections.abc import Iterator

from intarsia.decode.page_data import most_bytes
from intarsia.errors import FormatError, Where
from intarsia.parquet.metadata import DICTIONARY_ENCODINGS, PageHeader, SchemaElement, Type
from intarsia.parquet.page_header import num_values, read_page_header
from intarsia.parquet.schema import Leaf

_VALUE_BYTES: dict[int, int] = {
    Type.INT32: 4,
    Type.INT64: 8,
    Type.INT96: 8,
    Type.FLOAT: 4,
    Type.DOUBLE: 8,
    Type.BYTE_ARRAY: 4,
}
_LEVEL_BYTES = 2


def check_page_size_limit(value: object) -> None:
    """Raises ``TypeError`` or ``ValueError`` if ``value`` is not a limit: None, or bytes from 1."""
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"page_size_limit is a number of bytes, not {value!r}")
    if value < 1:
        raise ValueError(f"page_size_limit is at least 1 byte, not {value:,}")


def value_bytes(element: SchemaElement) -> int:
    """Returns the bytes of a value in Arrow. For strings, these come on top of the characters."""
    if element.type == Type.FIXED_LEN_BYTE_ARRAY:
        return element.type_length or 0
    return 0 if element.type is None else _VALUE_BYTES.get(element.type, 0)


def mean_entry_bytes(header: PageHeader) -> float | None:
    """Returns the mean bytes of a dictionary page's entries, or None for another type of page."""
    dictionary = header.dictionary_page_header
    if dictionary is None:
        return None
    return header.uncompressed_page_size / max(dictionary.num_values, 1)


def held_bytes(header: PageHeader, leaf: Leaf, entry_bytes: float) -> float:
    """Returns a page's bytes in memory, given the mean bytes of a dictionary's entries."""
    data = header.data_page_header or header.data_page_header_v2
    is_encoded = data is not None and data.encoding in DICTIONARY_ENCODINGS
    width = max(_bytes_per_value(leaf), entry_bytes if is_encoded else 0)
    return max(header.uncompressed_page_size, _num_values(header) * width)


def over_limit(header: PageHeader, leaf: Leaf, limit: int | None) -> str | None:
    """Returns a message if a page or dictionary holds more than ``limit`` bytes, else None."""
    if limit is None:
        return None
    size = max(header.uncompressed_page_size, _num_values(header) * _bytes_per_value(leaf))
    if size <= limit:
        return None
    return f"a page that holds {size:,} bytes, where page_size_limit is {limit:,}"


def check_limit(header: PageHeader, leaf: Leaf, limit: int | None) -> None:
    """Raises ``FormatError`` if a page or dictionary holds more than ``limit`` bytes."""
    problem = over_limit(header, leaf, limit)
    if problem is not None:
        raise FormatError(problem)


def is_within(stored: int, values: int, leaf: Leaf, codec: int, limit: int) -> bool:
    """True if none of the pages, of ``stored`` bytes together, can hold more than ``limit``."""
    return most_bytes(codec, stored) <= limit and values * _bytes_per_value(leaf) <= limit


def pages_in(data: memoryview, values: int) -> Iterator[tuple[int, PageHeader]]:
    """Yields offset and header of pages up to ``values``. Raises ``FormatError`` at a bad one."""
    offset = 0
    while offset < data.nbytes and values > 0:
        try:
            header, length = read_page_header(data[offset:])
        except FormatError as error:
            raise error.at(Where(offset=offset)) from error
        yield offset, header
        values -= max(num_values(header) or 0, 0)
        offset += length + header.compressed_page_size


def _num_values(header: PageHeader) -> int:
    dictionary = header.dictionary_page_header
    return (num_values(header) or 0) if dictionary is None else dictionary.num_values


def _bytes_per_value(leaf: Leaf) -> int:
    level_kinds = (leaf.max_definition_level > 0) + (leaf.max_repetition_level > 0)
    return value_bytes(leaf.element) + level_kinds * _LEVEL_BYTES
