"""Page headers: what precedes every page of a chunk."""

from __future__ import annotations

from intarsia.errors import FormatError
from intarsia.format.metadata import PageHeader, PageType
from intarsia.format.thrift import decode

_USUAL_BYTES = 256


def read_page_header(page: memoryview) -> tuple[PageHeader, int]:
    """The header at the start of ``page`` and its length in bytes.

    Raises ``FormatError`` for bytes that are no header, or that claim a negative size.
    """
    try:
        header, length = decode(PageHeader, page[:_USUAL_BYTES])
    except FormatError:
        if page.nbytes <= _USUAL_BYTES:
            raise
        header, length = decode(PageHeader, page)
    if header.compressed_page_size < 0 or header.uncompressed_page_size < 0:
        raise FormatError("a page header claims a negative size")
    return header, length


def num_values(header: PageHeader) -> int | None:
    """Values in a data page, NULLs included; None for a page of another type."""
    if header.type == PageType.DATA_PAGE and header.data_page_header:
        return header.data_page_header.num_values
    if header.type == PageType.DATA_PAGE_V2 and header.data_page_header_v2:
        return header.data_page_header_v2.num_values
    return None
