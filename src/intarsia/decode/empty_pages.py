"""Leaving out data pages that hold no values.

pyarrow's reader takes such a page for the end of its chunk, if it is the first one or follows
another one. The reader then gives fewer rows, without an error. pyarrow's own writer makes these
pages in dictionary-encoded lists, if ``data_page_size`` is a few bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.errors import FormatError
from intarsia.parquet.page_header import num_values, read_page_header


def without_empty(pages: Sequence[memoryview], count: int) -> list[memoryview]:
    """Returns ``pages`` without the data pages that hold no values.

    Each item of ``pages`` is one page or several, one after the other, which hold ``count`` values
    in all. Bytes after a header that cannot be decoded are kept: the reader reports them.
    """
    kept: list[memoryview] = []
    values = 0
    for part in pages:
        start = at = 0
        try:
            while at < part.nbytes and values < count:
                header, length = read_page_header(part[at:])
                found, size = num_values(header), length + header.compressed_page_size
                if found == 0:
                    kept.append(part[start:at])
                    start = at + size
                values += found or 0
                at += size
        except FormatError:
            pass
        kept.append(part[start:])
    return [part for part in kept if part.nbytes]
