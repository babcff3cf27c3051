"""What of a torn file can be kept, and as what: pure reading, nothing is written here.

The last footer that accounts for every page before it is believed. Row groups behind it are looked
for by their pages.
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
from intarsia.index.directory import FOOTER_KEY, binding_of, checked_footer, read_directory
from intarsia.io.source import BufferSource, Source
from intarsia.parquet.footer import check_editable, framed, read_footer, with_key_values
from intarsia.parquet.metadata import FileMetaData, RowGroup
from intarsia.parquet.schema import Schema, read_schema
from intarsia.parquet.thrift import amended, decode, encode
from intarsia.recovery.byte_scan import FooterTile, Tiles, walk_tiles
from intarsia.recovery.codec_detection import likely_codecs
from intarsia.recovery.footer_check import (
    LostGroup,
    SavedGroup,
    Verdicts,
    claimed_groups,
    leading_groups,
)
from intarsia.recovery.row_group_rebuild import Rebuilder, Rebuilt
from intarsia.recovery.torn_pages import TornPages
from intarsia.writer.checkpoints import footer_of

_MOST_FOOTERS = 64
"""How many footers that do not fit are looked into, from the last one back."""


@dataclass(frozen=True, slots=True)
class Template:
    """A footer to take all but row groups from."""

    raw: bytes
    metadata: FileMetaData

    @property
    def codecs(self) -> list[int] | None:
        """The codec of each column, by its first row group; None where there is none."""
        if not len(self.metadata.row_groups):
            return None
        columns = self.metadata.row_groups[0].columns
        found = [chunk.meta_data.codec for chunk in columns if chunk.meta_data is not None]
        return found if len(found) == len(columns) else None


@dataclass(slots=True)
class Salvage:
    """What can be kept: ``length`` bytes from the file's start, then ``footer`` if it needs one.

    ``stopped_at`` is the offset up to which the file is understood.
    """

    length: int
    footer: bytes | None
    saved: list[SavedGroup]
    lost: list[LostGroup]
    checkpoint: int
    """Where the footer that was found ends; 0 where there was none."""
    stopped_at: int
    reason: str
    rows_begun: int = 0
    is_whole: bool = False
    """Is nothing missing?"""
    notes: list[str] = field(default_factory=list)

    def document(self, source: Source) -> bytes:
        """The file made of it, in memory."""
        return bytes(source.read([(0, self.length)])[0]) + (self.footer or b"")


def salvage(source: Source, schema_from: Template | pa.Schema | None = None) -> Salvage:
    """Find what can be kept. Reads ``source``, and decodes all pages.

    ``schema_from`` is used where the file has lost its own schema, or all that tells Arrow's types
    from Parquet's. Raises ``FormatError`` where nothing can be kept, or nothing tells the schema;
    ``UnsupportedError`` for encrypted files.
    """
    tiles = walk_tiles(source)
    last = list(reversed(tiles.footers))[:_MOST_FOOTERS]
    judged = [(tile, _footer_problem(source, tile)) for tile in last]
    # Those that are known to be damaged come after all others.
    for tile, problem in sorted(judged, key=lambda pair: bool(pair[1])):
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
        found = _from_pages(source, tiles, template, tiles.partial.row_groups)
        if given is not None and template is own:
            found.notes.append("what is left of its footer has other columns than schema_from")
        return found
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
            found = _from_pages(source, tiles, given, [])
            found.notes.append("its pages are in another codec than those of schema_from")
            return found
        raise


def template_of(schema: pa.Schema) -> Template:
    """The footer that pyarrow writes for ``schema``."""
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
    """``problem`` is what speaks against the footer, where anything does."""
    template = Template(tile.raw, tile.metadata)
    torn = _opened(source, tiles, template)
    verdicts = claimed_groups(torn, tile.metadata.row_groups, tile.pages_before)
    whole = None if problem else _whole(source, tiles, tile, verdicts)
    if whole is not None:
        return whole
    codecs = template.codecs
    rebuilt = _rebuilt(torn, tiles, tile.pages_before, codecs)
    found = _put_together(tiles, template, verdicts, rebuilt, tile.stop)
    if problem:
        found.notes.append(f"{problem}: what it says of values may be wrong")
    return found


def _footer_problem(source: Source, tile: FooterTile) -> str:
    """What its checksum says against a footer, where it has one."""
    try:
        checked_footer(tile.metadata, tile.raw, source, tile.offset)
    except FormatError as error:
        return error.message
    return ""


def _whole(source: Source, tiles: Tiles, tile: FooterTile, verdicts: Verdicts) -> Salvage | None:
    """The file as it is, where it ends in the footer, or in what was added to it since.

    That the last bytes are a footer proves nothing: they may lie within a page that was cut short.
    """
    saved = [group for group in verdicts if isinstance(group, SavedGroup)]
    if len(saved) < len(verdicts) or tile.pages_before < len(tiles.pages) or tiles.is_page_cut:
        return None
    if tile.stop < source.size and not _has_additions(source, tile):
        return None
    size = source.size
    return Salvage(size, None, saved, [], size, size, "the file ends", is_whole=True)


def _has_additions(source: Source, tile: FooterTile) -> bool:
    """Does the file end in a sound directory of indexes of the row groups of ``tile``?"""
    try:
        last = read_footer(source)
        checked_footer(last.metadata, last.raw, source, last.offset)
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
            verdicts, covered = leading_groups(torn, groups)
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
        reason = "no codec undoes all pages; give a file as schema_from that tells each column's"
        return Rebuilt(next_page=first, reason=reason)
    attempts = [attempt([codec] * leaves) for codec in likely]
    fruitful = [found for found in attempts if found.groups]
    if len(fruitful) > 1:
        return Rebuilt(next_page=first, reason="it cannot be told which codec the pages are in")
    return fruitful[0] if fruitful else attempts[0]


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
    found = Salvage(length, footer, saved, lost, checkpoint, stopped_at, reason)
    found.rows_begun = rebuilt.rows_begun
    found.notes += _notes(saved)
    return found


def _footer(template: Template, saved: Sequence[SavedGroup]) -> bytes:
    rows = sum(group.rows for group in saved)
    numbered = any(decode(RowGroup, group.raw)[0].ordinal is not None for group in saved)
    groups = [_numbered(group.raw, i if numbered else None) for i, group in enumerate(saved)]
    raw = footer_of(template.raw, rows, groups)
    # Row groups are other ones now: what points into the old file would be out of date.
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
            f"{unchecked:,} pages have no checksum: that they could be decoded is all that speaks "
            "for them"
        )
    if any(group.is_rebuilt for group in saved):
        notes.append("row groups found by their pages have no statistics and no page indexes")
    return notes
