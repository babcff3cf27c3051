"""Finds the codec that pages were compressed with by trial, if no metadata names it."""

from __future__ import annotations

from intarsia.decode.page_validation import undoes
from intarsia.parquet.metadata import CompressionCodec
from intarsia.recovery.torn_pages import TornPages

_SAMPLED_PAGES = 16
"""Compressed pages that a codec must decompress, to rule out chance."""
_MAX_SEARCHED_PAGES = 256
"""Pages among which compressed ones are looked for."""


def likely_codecs(torn: TornPages, first: int, stop: int) -> list[int]:
    """Returns codecs that decompress the first pages; ``UNCOMPRESSED`` if none is compressed."""
    sample = []
    for page in range(first, min(stop, first + _MAX_SEARCHED_PAGES)):
        if torn.pages.stored[page] and torn.pages.is_compressed[page]:
            sample.append(page)
        if len(sample) == _SAMPLED_PAGES:
            break
    if not sample:
        return [CompressionCodec.UNCOMPRESSED]
    codecs = [int(codec) for codec in CompressionCodec if _undoes_all(codec, torn, sample)]
    if CompressionCodec.LZ4_RAW in codecs:  # the decoder of the older LZ4 accepts raw blocks too
        codecs = [codec for codec in codecs if codec != CompressionCodec.LZ4]
    return codecs


def _undoes_all(codec: int, torn: TornPages, pages: list[int]) -> bool:
    return all(undoes(codec, *torn.read(page)) for page in pages)
