"""Writes the seeds of the guided fuzzer, from tables of a few rows: ``python tests/fuzz/seeds.py``.

The seeds are in the repository; this script made them.
"""

import io
import json
import struct
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from targets import FILE_ID, FOOTER_HASH, OWNER, ROWS

import intarsia as ia
from intarsia.catalog.manifest import decode_pointer
from intarsia.index.directory import Directory, IndexEntry
from intarsia.index.sidecar import MAGIC, encode_end
from intarsia.io.source import BufferSource
from intarsia.parquet.footer import read_footer
from intarsia.scan.parquet_file import open_file

FOLDER = Path(__file__).with_name("seeds")
TABLE = pa.table(
    {
        "k": [n * 7919 % 101 for n in range(200)],
        "t": [None if n % 9 == 0 else f"a text {n % 13}" for n in range(200)],
        "l": [[n % 3] * (n % 4) for n in range(200)],
        "s": [{"x": n / 7} for n in range(200)],
    }
)
LAYOUTS = {
    "plain": {"compression": "none", "use_dictionary": False},
    "paged": {"max_rows_per_page": 32, "write_batch_size": 32, "write_page_index": True},
    "v2": {"data_page_version": "2.0", "compression": "zstd", "write_page_checksum": True},
    "gzip": {"compression": "gzip", "row_group_size": 70},
}
INDEXES = ["k:lookup", "k:minmax", "t:distinct", "t:ngram", "l:elements", "lookup(lower(t))"]


def main():
    for name, options in LAYOUTS.items():
        out = io.BytesIO()
        pq.write_table(TABLE, out, **options)
        from_file(name, out.getvalue())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "indexed.parquet")
        ia.write_table(TABLE, path, indexes=INDEXES, max_rows_per_page=40)
        save("file", "indexed", path.read_bytes())
        from_sections(path)
        torn = Path(folder, "torn.parquet")
        ia.write_table(TABLE.select(["k", "t"]), torn, checkpoint_row_groups=1, row_group_size=50)
        for cut in (3000, 2000):
            save("recover", f"checkpoints_{cut}", torn.read_bytes()[:cut])
    from_catalogs()
    entry = IndexEntry("lookup", 1, "k", {"granule_rows": 10}, 8, 100, 20, 0)
    directory = Directory(FILE_ID, "0" * 32, OWNER.size, (entry,))
    save("sidecar", "one", MAGIC + bytes(100) + encode_end(directory, OWNER, len(MAGIC) + 100))
    assert len(FOOTER_HASH)


def from_file(name, data):
    footer = read_footer(BufferSource(data))
    save("file", name, data)
    save("footer", name, footer.raw)
    save("recover", name, data[: len(data) * 3 // 4])
    for number, chunk in enumerate(footer.metadata.row_groups[0].columns):
        start = chunk.meta_data.data_page_offset
        save(
            "page", f"{name}_{number}", data[start : start + chunk.meta_data.total_compressed_size]
        )
        for kind in ("column_index", "offset_index"):
            at, size = (getattr(chunk, f"{kind}_{part}") for part in ("offset", "length"))
            if at is not None:
                save("page_index", f"{name}_{number}_{kind}", data[at : at + size])


def from_sections(path):
    """Sections as ``targets.section`` takes them, as if from a file of ``ROWS`` rows."""
    table = pa.concat_tables([TABLE] * (ROWS // TABLE.num_rows))
    ia.write_table(table, path, indexes=INDEXES, max_rows_per_page=200)
    opened, data = open_file(path), path.read_bytes()
    own = opened.directory.file_id.encode()
    for entry in opened.directory.indexes:
        section = data[entry.offset : entry.offset + entry.length].replace(own, FILE_ID.encode())
        (footer,) = struct.unpack("<I", section[-4:])
        name = entry.name.replace(":", "_").replace("(", "_").replace(")", "")
        save("section", name, struct.pack("<H", entry.meta_length - footer - 4) + section)
    pointer = json.loads(opened.metadata.key_value("intarsia"))
    start = pointer["offset"]
    save("directory", "indexed", data[start : start + pointer["length"]])


def from_catalogs():
    """Catalogs of a folder: with one segment, with two, and without the files' indexes."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(5):
            rows = TABLE.select(["k", "t"]).slice(number * 40, 40)
            path = Path(folder, f"{number}.parquet")
            pq.write_table(rows, path, row_group_size=25)
            if number == 0:
                ia.build_catalog(folder)
                save("catalog", "plain", catalog_of(folder))
            if number > 1:
                ia.add_indexes(path, ["k:lookup", "lookup(lower(t))"])
            if number > 2:
                ia.build_catalog(folder, refresh=number == 4)
                save("catalog", "one" if number == 3 else "two", catalog_of(folder))


def catalog_of(folder):
    """A catalog as ``targets.catalog`` takes it."""
    actual = Path(folder, "_intarsia")
    pointer = (actual / "catalog.json").read_bytes()
    tables = [(actual / name).read_bytes() for name in decode_pointer(pointer).names]
    parts = [pointer.partition(b"\n")[2], *tables]
    return b"\0" + b"".join(struct.pack("<I", len(part)) + part for part in parts)


def save(target, name, data):
    path = FOLDER / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


if __name__ == "__main__":
    main()
