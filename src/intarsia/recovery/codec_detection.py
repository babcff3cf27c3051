"""Which codec pages were compressed with, where nothing says so: by trial."""

from __future__ import annotations

from intarsia.decode.page_validation import undoes
from intarsia.parquet.metadata import CompressionCodec
from intarsia.recovery.torn_pages import TornPages

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
    return all(undoes(codec, *torn.read(page)) for page in pages)
