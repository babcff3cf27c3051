"""A bound on what one page may hold, told by headers before anything is decompressed.

A page of 100 KB can truthfully hold 2 GiB: zeros, compressed; or a run of NULLs. What it holds is
its ``uncompressed_page_size`` or, where these are more, its values and levels as they are held in
memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from intarsia.decode.page_data import most_bytes
from intarsia.errors import FormatError, Where
from intarsia.parquet.metadata import DICTIONARY_ENCODINGS, PageHeader, SchemaElement, Type
from intarsia.parquet.page_header import num_values, read_page_header
from intarsia.parquet.schema import Leaf

_WIDTHS: dict[int, int] = {
    Type.INT32: 4,
    Type.INT64: 8,
    Type.INT96: 8,
    Type.FLOAT: 4,
    Type.DOUBLE: 8,
    Type.BYTE_ARRAY: 4,
}
_LEVEL_BYTES = 2


def check_page_size_limit(value: object) -> None:
    """Raise ``TypeError`` or ``ValueError`` for what is no limit: bytes, or None for none."""
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"page_size_limit is a number of bytes, not {value!r}")
    if value < 1:
        raise ValueError(f"page_size_limit is 1 byte at least, not {value:,}")


def value_bytes(element: SchemaElement) -> int:
    """Bytes a value takes in Arrow; of a text, besides its own."""
    if element.type == Type.FIXED_LEN_BYTE_ARRAY:
        return element.type_length or 0
    return 0 if element.type is None else _WIDTHS.get(element.type, 0)


def mean_entry_bytes(header: PageHeader) -> float | None:
    """Returns the mean bytes of a dictionary's entries. None for a page of another type."""
    dictionary = header.dictionary_page_header
    if dictionary is None:
        return None
    return header.uncompressed_page_size / max(dictionary.num_values, 1)


def held_bytes(header: PageHeader, leaf: Leaf, entry_bytes: float) -> float:
    """Returns about the bytes of a page's values in memory.

    ``entry_bytes`` are those of an entry of the dictionary, which values of the page may repeat.
    """
    data = header.data_page_header or header.data_page_header_v2
    is_encoded = data is not None and data.encoding in DICTIONARY_ENCODINGS
    width = max(_held_bytes(leaf), entry_bytes if is_encoded else 0)
    return max(header.uncompressed_page_size, _entries(header) * width)


def over_limit(header: PageHeader, leaf: Leaf, limit: int | None) -> str | None:
    """How a page, or dictionary, holds more than ``limit`` bytes; None where it does not."""
    if limit is None:
        return None
    size = max(header.uncompressed_page_size, _entries(header) * _held_bytes(leaf))
    if size <= limit:
        return None
    return f"a page that holds {size:,} bytes, where page_size_limit is {limit:,}"


def check_limit(header: PageHeader, leaf: Leaf, limit: int | None) -> None:
    """Raise ``FormatError`` for a page, or dictionary, that holds more than ``limit`` bytes."""
    problem = over_limit(header, leaf, limit)
    if problem is not None:
        raise FormatError(problem)


def is_within(stored: int, values: int, leaf: Leaf, codec: int, limit: int) -> bool:
    """Can no page hold more, whatever it says, of chunks or pages that take ``stored`` bytes?

    ``values`` are all they hold.
    """
    return most_bytes(codec, stored) <= limit and values * _held_bytes(leaf) <= limit


def pages_in(data: memoryview, values: int) -> Iterator[tuple[int, PageHeader]]:
    """The pages that follow each other in ``data``, up to ``values`` in all: offset and header.

    Those are the pages that pyarrow reads. Raises ``FormatError``, with the offset, for what is no
    header.
    """
    at = 0
    while at < data.nbytes and values > 0:
        try:
            header, length = read_page_header(data[at:])
        except FormatError as error:
            raise error.at(Where(offset=at)) from error
        yield at, header
        values -= max(num_values(header) or 0, 0)
        at += length + header.compressed_page_size


def _entries(header: PageHeader) -> int:
    dictionary = header.dictionary_page_header
    return (num_values(header) or 0) if dictionary is None else dictionary.num_values


def _held_bytes(leaf: Leaf) -> int:
    kinds = (leaf.max_definition_level > 0) + (leaf.max_repetition_level > 0)
    return value_bytes(leaf.element) + kinds * _LEVEL_BYTES
