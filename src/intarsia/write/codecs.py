"""Which codec pages were compressed with, where nothing says so: by trial."""

from __future__ import annotations

from intarsia.decode.page_body import check_size, decompress
from intarsia.errors import FormatError
from intarsia.format.metadata import CompressionCodec, PageHeader
from intarsia.write.torn_pages import TornPages

_SAMPLE = 16
_LOOKED_AT = 256


def likely_codecs(torn: TornPages, first: int, stop: int) -> list[int]:
    """Codecs that undo the first pages of ``[first, stop)``, of all columns alike.

    Where nothing in these pages is compressed, they are as good as uncompressed.
    """
    sample = []
    for page in range(first, min(stop, first + _LOOKED_AT)):
        if torn.pages.stored[page] and torn.pages.is_compressed[page]:
            sample.append(page)
        if len(sample) == _SAMPLE:
            break
    if not sample:
        return [CompressionCodec.UNCOMPRESSED]
    codecs = [int(codec) for codec in CompressionCodec if _undoes_all(codec, torn, sample)]
    if CompressionCodec.LZ4_RAW in codecs:  # the older LZ4 takes raw blocks as well
        codecs = [codec for codec in codecs if codec != CompressionCodec.LZ4]
    return codecs


def _undoes_all(codec: int, torn: TornPages, pages: list[int]) -> bool:
    return all(_undoes(codec, *torn.read(page)) for page in pages)


def _undoes(codec: int, header: PageHeader, body: memoryview) -> bool:
    size, v2 = header.uncompressed_page_size, header.data_page_header_v2
    levels = 0
    if v2 is not None:
        levels = v2.repetition_levels_byte_length + v2.definition_levels_byte_length
    if not 0 <= levels <= min(body.nbytes, size):
        return False
    try:
        check_size(header, codec)
        decompress(codec, body[levels:], size - levels)
    except FormatError:
        return False
    return True
