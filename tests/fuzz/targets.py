"""Targets of the guided fuzzer: functions of bytes that may raise only Intarsia's errors.

A target is a function in ``TARGETS`` and a folder of its name in ``seeds``; ``seeds.py`` makes the
seeds. The targets set valid checksums, because an attacker could do so too.
"""

import json
import struct
import warnings
import zlib
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import intarsia as ia
from intarsia.catalog.manifest import decode_pointer
from intarsia.catalog.segment_reader import SegmentReader
from intarsia.decode.page_data import page_levels
from intarsia.expr.comparison_operators import Op
from intarsia.file.open_file import OpenedFile
from intarsia.file.read_options import DEFAULTS
from intarsia.index.base import Subject
from intarsia.index.directory import directory_at
from intarsia.index.key_formula import Keys, KeysWhere
from intarsia.index.registry import make
from intarsia.index.section.probe import InvertedSection, SummarySection
from intarsia.index.sidecar import Owner, Sidecar
from intarsia.io.source import BufferSource, EndSource
from intarsia.parquet.column_order import order_of
from intarsia.parquet.footer import MAGIC, framed
from intarsia.parquet.metadata import SchemaElement, Type
from intarsia.parquet.page_header import read_page_header
from intarsia.parquet.page_index import read_column_index, read_offset_index
from intarsia.parquet.schema import Leaf
from intarsia.parquet.statistics import page_bounds
from intarsia.pruning.predicates import Comparison
from intarsia.pruning.term import field_term
from intarsia.recovery.salvage import salvage
from intarsia.scan.parquet_file import open_file
from intarsia.scan.request import Filter, Request

ROWS = 1000
FILE_ID = "f" * 32
FOOTER_HASH = b"a footer"
OWNER = Owner.of(1234, "time 1", FOOTER_HASH)
LEVELS = Leaf(0, 0, ("l",), SchemaElement(name="l", type=Type.INT64), (1,), 3, 1)
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.string())])
REQUESTS = [
    Request(SCHEMA, ("k",), Filter.of(condition, SCHEMA))
    for condition in (
        pc.field("k") == 7,
        pc.field("k") > 90,
        pc.field("t").isin(["a text 3", "b"]) | pc.field("k").is_null(),
        pc.utf8_lower(pc.field("t")) == "a text 3",
    )
]
KEYS = np.array([0, 7, 1 << 20, 1 << 31, (1 << 32) - 1], dtype=np.uint32)


def footer(data):
    """A footer at the end of a file that holds nothing else."""
    file = ia.ParquetFile(BufferSource(MAGIC + framed(data)))
    for action in (lambda: file.schema_arrow, lambda: file.indexes, lambda: file.num_rows):
        with suppress(ia.IntarsiaError):
            action()
    opened = open_file(BufferSource(MAGIC + framed(data)))
    for group in range(min(len(opened.metadata.row_groups), 4)):
        for leaf in range(min(len(opened.schema.leaves), 8)):
            for ask in (opened.chunk, opened.page_indexes.offsets, opened.page_indexes.columns):
                with suppress(ia.IntarsiaError):
                    ask(group, leaf)


def page_index(data):
    """Either page index of a chunk, and bounds of every physical type."""
    with suppress(ia.IntarsiaError):
        index = read_offset_index(memoryview(data))
        index.problem(ROWS, 4, 1 << 20)
    index = read_column_index(memoryview(data))
    for kind in Type:
        order = order_of(SchemaElement(name="c", type=kind, type_length=4))
        with suppress(ia.IntarsiaError):
            page_bounds(order, index, declared=True)


def page(data):
    """A stored page: its header, its levels, and its compressed body."""
    header, size = read_page_header(memoryview(data))
    for codec in (0, 1, 2, 4, 5, 6, 7):
        with suppress(ia.IntarsiaError):
            page_levels(header, memoryview(data)[size:], LEVELS, codec)


def section(data):
    """An index's section, opened and queried as each of the three layouts."""
    if len(data) < 6:
        return
    (length,) = struct.unpack("<I", data[-4:])
    (pages,) = struct.unpack("<H", data[:2])  # number of metadata bytes before the footer
    body = data[2:]
    meta = min(length + 4 + pages, len(body))
    place = BufferSource(body), meta, zlib.crc32(body[-meta:]), FILE_ID, ROWS
    of = Subject(field_term("k"), pa.int64(), order_of(LEVELS.element))
    with suppress(ia.IntarsiaError):
        InvertedSection(*place).rows_of(Keys(KEYS), of)
    with suppress(ia.IntarsiaError):
        exact = InvertedSection(*place, exact=True)
        exact.rows_of(KeysWhere(Comparison(field_term("k"), Op.GE, pa.array([7]))), of)
        exact.values()
    with suppress(ia.IntarsiaError):
        summary = SummarySection(*place)
        summary.summaries(np.arange(min(summary.num_pages, 4)))


class _Roomy(BufferSource):
    """Bytes at the start of a file that is long enough for any section."""

    size = 1 << 40


def directory(data):
    """A directory with a valid checksum."""
    pointer = {"version": 1, "offset": 0, "length": len(data), "crc32": zlib.crc32(data)}
    actual = directory_at(pointer, _Roomy(data))
    for entry in actual.indexes:
        with suppress(ia.IntarsiaError):
            make(entry.kind, entry.on, entry.params)


def sidecar(data):
    """A sidecar: pointer and directory."""
    Sidecar(BufferSource(data), OWNER)


def catalog(data):
    """A byte that selects the query, a pointer and its tables, each after its length.

    The pointer's lengths and checksums of the tables are corrected.
    """
    parts, ask = list(_divided(data[1:])), data[0] if data else 0
    body, tables = (parts[0], parts[1:]) if parts else (b"", [])
    by_name = {}
    with suppress(ValueError, RecursionError):
        document = json.loads(body)
        _fit(document, tables, by_name)
        body = json.dumps(document).encode()
    head = {"version": 1, "length": len(body), "crc32": zlib.crc32(body)}
    pointer = decode_pointer(json.dumps(head).encode() + b"\n" + body)
    if pointer.first is not None:
        with suppress(ia.IntarsiaError):
            source = EndSource(pointer.first.size, memoryview(pointer.first.tail))
            OpenedFile(source, "first", len(pointer.first.tail))
    for segment in pointer.segments[-1:]:
        reader = SegmentReader(segment, lambda t: BufferSource(by_name.get(t.name, b"")), DEFAULTS)
        if ask % 8 < len(REQUESTS):
            numbers = np.flatnonzero(reader.listed.schema_groups == 0)[:100]
            reader.might_match(numbers, 0, {}, REQUESTS[ask % 8])
        elif ask % 8 == 7 and segment.num_files:
            reader.tail(ask % segment.num_files)
        elif segment.keys:
            number = ask % len(segment.keys)
            granules = reader.covered(number).num_granules
            for part in segment.keys[number].parts[:4]:
                reader.part(part.table, granules).all()


def _divided(data):
    """Splits data into parts, each preceded by its length."""
    at = 0
    while at + 4 <= len(data):
        (length,) = struct.unpack("<I", data[at : at + 4])
        yield data[at + 4 : at + 4 + length]
        at += 4 + length


def _fit(value, tables, by_name):
    """Corrects length and checksum of every table in a document, in the order of ``tables``.

    Tables are identified by their names.
    """
    inner = value if isinstance(value, list) else [*value.values()]
    for item in inner:
        if isinstance(item, dict | list):
            _fit(item, tables, by_name)
    length = value.get("meta_length") if isinstance(value, dict) else None
    if isinstance(length, int) and isinstance(value.get("name"), str):
        if value["name"] not in by_name and len(by_name) < len(tables):
            by_name[value["name"]] = tables[len(by_name)]
        table = by_name.get(value["name"], b"")
        meta = table[: max(len(table) - 4, 0)][-max(length, 1) :]
        value |= {"size": len(table), "meta_crc32": zlib.crc32(meta)}


def recover(data):
    """A torn file."""
    actual = salvage(BufferSource(data), pa.schema([("k", pa.int64()), ("t", pa.string())]))
    actual.document(BufferSource(data))


def file(data):
    """A whole file: opened, filtered, read."""
    opened = ia.ParquetFile(BufferSource(data))
    if opened.num_rows > 1 << 20:
        return
    for action in (
        lambda: opened.read(filter=pc.field("k") == 7),
        lambda: opened.read(rows=ia.RowRanges.of((1, 3)).clip(0, opened.num_rows)),
        lambda: opened.read(),
    ):
        with suppress(ia.IntarsiaError):
            action()


TARGETS = {
    target.__name__: target
    for target in (footer, page_index, page, section, directory, sidecar, catalog, recover, file)
}


def attempt(target, data):
    """Runs a target once. Only Intarsia's own errors are caught."""
    with warnings.catch_warnings(), suppress(ia.IntarsiaError):
        warnings.simplefilter("ignore")
        TARGETS[target](bytes(data))
