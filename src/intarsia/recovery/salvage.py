"""Decides what can be recovered from a torn file. Only reads; writes nothing.

Uses the last footer that accounts for every page before it, and looks for row groups behind it by
their pages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from intarsia.decode.synthetic_footer import SchemaTemplates
from intarsia.errors import FormatError, UnsupportedError, Where
from intarsia.index.directory import binding_of, read_directory, verify_footer
from intarsia.io.source import BufferSource, Source
from intarsia.parquet.footer import check_editable, framed, read_footer, with_key_values
from intarsia.parquet.footer_cache import FOOTER_KEY
from intarsia.parquet.metadata import FileMetaData, RowGroup
from intarsia.parquet.schema import Schema, read_schema
from intarsia.parquet.thrift import amended, decode, encode
from intarsia.recovery.byte_scan import FooterTile, Tiles, walk_tiles
from intarsia.recovery.codec_detection import likely_codecs
from intarsia.recovery.footer_check import (
    LostGroup,
    SavedGroup,
    Verdicts,
    check_all_groups,
    check_leading_groups,
)
from intarsia.recovery.row_group_rebuild import Rebuilder, Rebuilt
from intarsia.recovery.torn_pages import TornPages
from intarsia.writer.checkpoints import footer_of

_MAX_FOOTERS = 64
"""Footers that are tried, from the last one back."""


@dataclass(frozen=True, slots=True)
class Template:
    """A footer from which the new one takes everything but the row groups."""

    raw: bytes
    metadata: FileMetaData

    @property
    def codecs(self) -> list[int] | None:
        """Each column's codec in the first row group, or None if there is none."""
        if not len(self.metadata.row_groups):
            return None
        columns = self.metadata.row_groups[0].columns
        codecs = [chunk.meta_data.codec for chunk in columns if chunk.meta_data is not None]
        return codecs if len(codecs) == len(columns) else None


@dataclass(slots=True)
class Salvage:
    """The recoverable file: ``length`` bytes from the torn file's start, then ``footer`` if any.

    ``stopped_at`` is the offset up to which the torn file could be read.
    """

    length: int
    footer: bytes | None
    saved: list[SavedGroup]
    lost: list[LostGroup]
    stopped_at: int
    reason: str
    rows_begun: int = 0
    is_whole: bool = False
    """True if nothing is missing."""
    notes: list[str] = field(default_factory=list)

    def document(self, source: Source) -> bytes:
        """Returns the bytes of the recovered file."""
        return bytes(source.read([(0, self.length)])[0]) + (self.footer or b"")


def salvage(source: Source, schema_from: Template | pa.Schema | None = None) -> Salvage:
    """Returns what can be recovered. Reads all of ``source``, and decodes all pages.

    ``schema_from`` is used if the file has lost its own schema, or the key/values that state Arrow
    types. Raises ``FormatError`` if nothing can be recovered or the schema is unknown, and
    ``UnsupportedError`` for encrypted files.
    """
    tiles = walk_tiles(source)
    last = list(reversed(tiles.footers))[:_MAX_FOOTERS]
    checked = [(tile, _footer_problem(source, tile)) for tile in last]
    # Footers with a wrong checksum come after all others.
    for tile, problem in sorted(checked, key=lambda pair: bool(pair[1])):
        try:
            return _from_footer(source, tiles, tile, problem)
        except UnsupportedError:
            raise
        except FormatError:
            continue
    given = template_of(schema_from) if isinstance(schema_from, pa.Schema) else schema_from
    if tiles.partial is not None:
        own = Template(tiles.partial.raw, decode(FileMetaData, tiles.partial.raw)[0])
        template = own
        if given is not None and given.metadata.schema == own.metadata.schema:
            template = given  # with key/values, which come last in a footer
        result = _from_pages(source, tiles, template, tiles.partial.row_groups)
        if given is not None and template is own:
            result.notes.append("what is left of its footer has other columns than schema_from")
        return result
    if given is None:
        raise FormatError(
            f"no footer of its own was found, and with it no schema: {tiles.reason}, at offset "
            f"{tiles.stop:,}; give a file or a schema of the same columns as schema_from",
            Where(offset=tiles.stop),
        )
    try:
        return _from_pages(source, tiles, given, [], codecs=given.codecs)
    except FormatError:
        if given.codecs is None:
            raise
        with contextlib.suppress(FormatError):
            result = _from_pages(source, tiles, given, [])
            result.notes.append("its pages are in another codec than those of schema_from")
            return result
        raise


def template_of(schema: pa.Schema) -> Template:
    """Returns the footer that pyarrow writes for ``schema``."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    footer = read_footer(BufferSource(memoryview(sink.getvalue())))
    raw = footer_of(footer.raw, 0, [])
    return Template(raw, decode(FileMetaData, raw)[0])


def _opened(source: Source, tiles: Tiles, template: Template) -> TornPages:
    check_editable(template.raw)
    schema: Schema = read_schema(template.metadata.schema)
    templates = SchemaTemplates(template.metadata, template.raw)
    return TornPages(source, tiles.pages, schema, templates)


def _from_footer(source: Source, tiles: Tiles, tile: FooterTile, problem: str) -> Salvage:
    """Salvages by a footer, with a ``problem`` or "". Raises ``FormatError`` if it does not fit."""
    template = Template(tile.raw, tile.metadata)
    torn = _opened(source, tiles, template)
    verdicts = check_all_groups(torn, tile.metadata.row_groups, tile.pages_before)
    whole = None if problem else _whole(source, tiles, tile, verdicts)
    if whole is not None:
        return whole
    codecs = template.codecs
    rebuilt = _rebuilt(torn, tiles, tile.pages_before, codecs)
    result = _put_together(tiles, template, verdicts, rebuilt, tile.stop)
    if problem:
        result.notes.append(f"{problem}: its statistics may be wrong")
    return result


def _footer_problem(source: Source, tile: FooterTile) -> str:
    """Returns the message of a footer's wrong checksum, or "" if it is right or missing."""
    try:
        verify_footer(tile.metadata, tile.raw, source, tile.offset)
    except FormatError as error:
        return error.message
    return ""


def _whole(source: Source, tiles: Tiles, tile: FooterTile, verdicts: Verdicts) -> Salvage | None:
    """Returns the unchanged file if it ends with the footer or added indexes, else None."""
    saved = [group for group in verdicts if isinstance(group, SavedGroup)]
    if len(saved) < len(verdicts) or tile.pages_before < len(tiles.pages) or tiles.is_page_cut:
        return None
    if tile.stop < source.size and not _has_additions(source, tile):
        return None
    size = source.size
    return Salvage(size, None, saved, [], size, "the file ends", is_whole=True)


def _has_additions(source: Source, tile: FooterTile) -> bool:
    """True if the file ends with an intact directory of indexes for the row groups of ``tile``."""
    try:
        last = read_footer(source)
        verify_footer(last.metadata, last.raw, source, last.offset)
        if binding_of(last.metadata) != binding_of(tile.metadata):
            return False
        directory = read_directory(last.metadata, source)
    except FormatError:
        return False
    same = last.metadata.schema == tile.metadata.schema
    return same and directory is not None and directory.base_length <= tile.stop


def _from_pages(
    source: Source,
    tiles: Tiles,
    template: Template,
    claims: Sequence[bytes],
    codecs: list[int] | None = None,
) -> Salvage:
    torn = _opened(source, tiles, template)
    verdicts: Verdicts = []
    covered = 0
    if claims:
        groups: list[RowGroup] = [decode(RowGroup, raw)[0] for raw in claims]
        try:
            verdicts, covered = check_leading_groups(torn, groups)
            columns = groups[0].columns
            codecs = [chunk.meta_data.codec for chunk in columns if chunk.meta_data is not None]
        except FormatError:
            verdicts, covered = [], 0
    rebuilt = _rebuilt(torn, tiles, covered, codecs)
    return _put_together(tiles, template, verdicts, rebuilt, 0)


def _rebuilt(torn: TornPages, tiles: Tiles, first: int, codecs: list[int] | None) -> Rebuilt:
    stop = len(tiles.pages)
    if first == stop:
        return Rebuilt(next_page=first)
    leaves = len(torn.schema.leaves)
    if not leaves:
        return Rebuilt(next_page=first, reason="the schema has no columns")

    def attempt(codecs: list[int]) -> Rebuilt:
        ended = tiles.is_end_of_pages
        breaks, ends = tiles.breaks, tiles.chunk_ends
        return Rebuilder(torn, codecs, (first, stop), breaks, ends, ended).run()

    if codecs is not None and len(codecs) == leaves:
        return attempt(codecs)
    likely = likely_codecs(torn, first, stop)
    if not likely:
        reason = "no codec decompresses all pages; pass a file with the same codecs as schema_from"
        return Rebuilt(next_page=first, reason=reason)
    attempts = [attempt([codec] * leaves) for codec in likely]
    successful = [rebuilt for rebuilt in attempts if rebuilt.groups]
    if len(successful) > 1:
        return Rebuilt(next_page=first, reason="more than one codec fits the pages")
    return successful[0] if successful else attempts[0]


def _put_together(
    tiles: Tiles, template: Template, verdicts: Verdicts, rebuilt: Rebuilt, checkpoint: int
) -> Salvage:
    saved = [group for group in verdicts if isinstance(group, SavedGroup)]
    lost = [group for group in verdicts if isinstance(group, LostGroup)]
    pages = tiles.pages
    stopped_at, reason = tiles.stop, tiles.reason
    if rebuilt.reason:
        stopped_at = int(pages.offset[rebuilt.next_page])
        reason = f"{rebuilt.reason} ({tiles.reason}, at offset {tiles.stop:,})"
    saved += rebuilt.groups
    if not saved and not checkpoint:
        raise FormatError(f"not one whole row group was found: {reason}", Where(offset=stopped_at))
    length = max([checkpoint, *(group.stop for group in saved)])
    if not checkpoint and tiles.partial is not None:
        length = max(length, tiles.stop)  # page indexes that the row groups point at
    footer = None
    if rebuilt.groups or lost or not checkpoint:
        footer = _footer(template, saved)
    rows_begun, notes = rebuilt.rows_begun, _notes(saved)
    return Salvage(length, footer, saved, lost, stopped_at, reason, rows_begun, notes=notes)


def _footer(template: Template, saved: Sequence[SavedGroup]) -> bytes:
    rows = sum(group.rows for group in saved)
    numbered = any(decode(RowGroup, group.raw)[0].ordinal is not None for group in saved)
    groups = [_numbered(group.raw, i if numbered else None) for i, group in enumerate(saved)]
    raw = footer_of(template.raw, rows, groups)
    # The row groups have changed, so a pointer to a directory in the torn file would be stale.
    return framed(with_key_values(raw, {FOOTER_KEY: None}))


def _numbered(raw: bytes, ordinal: int | None) -> bytes:
    ordinal = ordinal if ordinal is None or ordinal < 1 << 15 else None
    group, _ = decode(RowGroup, raw)
    return raw if group.ordinal == ordinal else encode(amended(group, ordinal=ordinal))


def _notes(saved: Sequence[SavedGroup]) -> list[str]:
    notes: list[str] = []
    unchecked: Any = sum(group.unchecked_pages for group in saved)
    if unchecked:
        notes.append(
            f"{unchecked:,} pages have no checksum: they were only checked by decoding them"
        )
    if any(group.is_rebuilt for group in saved):
        notes.append("row groups found by their pages have no statistics and no page indexes")
    return notes
