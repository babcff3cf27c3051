"""Leaves out data pages that hold no values.

pyarrow's reader takes such a page as the end of its chunk, if it is the first page or follows
another empty one. The reader then returns fewer rows, without an error. pyarrow's own writer makes
such pages in dictionary-encoded lists, if ``data_page_size`` is a few bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.errors import FormatError
from intarsia.parquet.page_header import num_values, read_page_header


def without_empty(pages: Sequence[memoryview], count: int) -> list[memoryview]:
    """Returns ``pages`` without the data pages that hold no values.

    Each item of ``pages`` is one page or several consecutive ones. Together they hold ``count``
    values. Bytes after a header that cannot be decoded stay, so that the reader reports them.
    """
    result: list[memoryview] = []
    values = 0
    for part in pages:
        start = position = 0
        try:
            while position < part.nbytes and values < count:
                header, length = read_page_header(part[position:])
                page_values, size = num_values(header), length + header.compressed_page_size
                if page_values == 0:
                    result.append(part[start:position])
                    start = position + size
                values += page_values or 0
                position += size
        except FormatError:
            pass
        result.append(part[start:])
    return [part for part in result if part.nbytes]
