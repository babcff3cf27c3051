"""Bytes flipped at random, and what is read of the files with ``on_corrupt="skip"``.

``python benchmarks/rot.py --flips 1000``: each flip changes one byte of one file; then questions
are asked of it, with and without filters. What comes back has to be rows that were written, and all
of them but those of the damaged page: of its row group, where a dictionary is hit, and of a nested
column of a file without page indexes. Half of the flips hit any byte, half any byte of any part of
the file, so that small parts have their share.
"""

from __future__ import annotations

import argparse
import io
import random
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import intarsia as ia
from intarsia.io.source import BufferSource
from intarsia.parquet.footer import read_footer

ROWS, GROUP_ROWS, PAGE_ROWS = 2400, 800, 100
ON_PAGES = ("page body", "page header", "dictionary")
PARTS = (
    *ON_PAGES,
    "page index",
    "bloom filter",
    "section",
    "directory",
    "footer",
    "old footer",
    "other",
)


def flat() -> pa.Table:
    """Rows of flat columns; ``n`` is their number."""
    numbers = np.arange(ROWS)
    mixed = np.random.default_rng(5).permutation(ROWS)
    return pa.table(
        {
            "n": numbers,
            "id": mixed * 7919,
            "x": pa.array(np.round(mixed * 0.37, 2), mask=mixed % 11 == 0),
            "word": [f"word {n % 13}" for n in mixed],
            "text": [f"text {n} of {n % 97} and {n * 31 % 89}" for n in mixed],
        }
    )


def nested() -> pa.Table:
    """Rows of nested columns."""
    numbers = [int(n) for n in np.random.default_rng(6).permutation(ROWS)]
    item = pa.struct([("a", pa.int64()), ("b", pa.string())])
    return pa.table(
        {
            "n": np.arange(ROWS),
            "id": [n * 7919 for n in numbers],
            "x": [n * 0.37 for n in numbers],
            "l": pa.array([[n + i for i in range(n % 4)] for n in numbers], pa.list_(pa.int64())),
            "text": [f"text {n} of {n % 97}" for n in numbers],
            "s": pa.array(
                [[{"a": n, "b": str(i)} for i in range(n % 3)] for n in numbers], pa.list_(item)
            ),
        }
    )


def _written(table: pa.Table, **options: object) -> bytes:
    out = io.BytesIO()
    written = {
        "row_group_size": GROUP_ROWS,
        "max_rows_per_page": PAGE_ROWS,
        "write_batch_size": PAGE_ROWS,
        "write_page_checksum": True,
        **options,
    }
    pq.write_table(table, out, **written)
    return out.getvalue()


def _indexed(table: pa.Table, **options: object) -> bytes:
    kinds = [
        ia.Lookup("id"),
        ia.NGram("text"),
        ia.MinMax("x", granule_rows=PAGE_ROWS),
        ia.Bloom("id"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        ia.write_table(
            table,
            path,
            indexes=kinds,
            row_group_size=GROUP_ROWS,
            max_rows_per_page=PAGE_ROWS,
            write_batch_size=PAGE_ROWS,
            **options,
        )
        return path.read_bytes()


SHAPES = {
    "flat, indexes": lambda: (flat(), _indexed(flat(), use_dictionary=["word"])),
    "flat V2, indexes": lambda: (flat(), _indexed(flat(), data_page_version="2.0")),
    "nested, indexes": lambda: (nested(), _indexed(nested())),
    "nested V2, indexes": lambda: (nested(), _indexed(nested(), data_page_version="2.0")),
    "pyarrow": lambda: (flat(), _written(flat(), write_page_index=True, use_dictionary=["word"])),
    "pyarrow V2, zstd": lambda: (
        flat(),
        _written(flat(), write_page_index=True, data_page_version="2.0", compression="zstd"),
    ),
    "pyarrow, nested": lambda: (nested(), _written(nested(), write_page_index=True)),
    "pyarrow, no page index": lambda: (flat(), _written(flat(), use_dictionary=["word"])),
    "pyarrow, nested, no page index": lambda: (nested(), _written(nested(), compression=None)),
}


@dataclass
class Place:
    """A part of the file: bytes ``[start, stop)``, and the rows that may be lost with it."""

    part: str
    start: int
    stop: int
    column: str | None = None
    rows: tuple[int, int] = (0, 0)


@dataclass
class Subject:
    """A file, what was written to it, and where everything is."""

    name: str
    table: pa.Table
    data: bytes
    places: list[Place] = field(default_factory=list)

    @classmethod
    def of(cls, name: str) -> Subject:
        """The file of that shape."""
        table, data = SHAPES[name]()
        made = cls(name, table, data)
        made.places = sorted(made._places(), key=lambda place: place.start)
        return made

    @property
    def is_indexed(self) -> bool:
        """Has it a directory, and so a checksum of its footer?"""
        return self.name.endswith(", indexes")

    def _places(self) -> Iterator[Place]:
        source = BufferSource(self.data)
        file = ia.ParquetFile(source)
        for group in range(len(file.metadata.row_groups)):
            for leaf in file.schema.leaves:
                yield from self._pages(file, group, leaf)
        footer = read_footer(source)
        yield Place("footer", footer.offset, len(self.data))
        for entry in file.indexes:
            yield Place("section", entry.offset, entry.offset + entry.length)
        if file.indexes:
            directory = file._opened.directory
            end = max(entry.offset + entry.length for entry in file.indexes)
            yield Place("directory", end, footer.offset)
            base = read_footer(BufferSource(self.data[: directory.base_length]))
            yield Place("old footer", base.offset, directory.base_length)

    def _pages(self, file: ia.ParquetFile, group: int, leaf: object) -> Iterator[Place]:
        chunk = file.metadata.row_groups[group].columns[leaf.index]
        whole = (group * GROUP_ROWS, (group + 1) * GROUP_ROWS)
        is_followed = leaf.max_repetition_level == 0 or chunk.offset_index_offset is not None
        for page in file.pages(group, leaf.index):
            body = page.offset + page.header_size
            end = body + page.compressed_size
            if page.first_row is None:
                yield Place("dictionary", page.offset, end, leaf.path[0], whole)
                continue
            first = whole[0] + page.first_row
            rows = (first, first + page.num_rows) if is_followed else whole
            yield Place("page header", page.offset, body, leaf.path[0], rows)
            yield Place("page body", body, end, leaf.path[0], rows)
        for name in ("offset_index", "column_index"):
            start, length = getattr(chunk, f"{name}_offset"), getattr(chunk, f"{name}_length")
            if start is not None:
                yield Place("page index", start, start + length)
        data = chunk.meta_data
        if data.bloom_filter_offset is not None:
            start = data.bloom_filter_offset
            yield Place("bloom filter", start, start + data.bloom_filter_length)

    def place(self, at: int) -> Place:
        """What the byte at ``at`` is part of."""
        found = [place for place in self.places if place.start <= at < place.stop]
        return found[0] if found else Place("other", at, at + 1)

    def random_byte(self, chance: random.Random) -> int:
        """Any byte, or any of any part."""
        if chance.random() < 0.5:
            return chance.randrange(len(self.data))
        part = chance.choice(sorted({place.part for place in self.places}))
        place = chance.choice([place for place in self.places if place.part == part])
        return chance.randrange(place.start, place.stop)


def questions(table: pa.Table) -> list[tuple[list[str], pc.Expression | None]]:
    """Columns and filters."""
    n, id_, x, text = (pc.field(name) for name in ("n", "id", "x", "text"))
    value = table["id"][1234].as_py()
    names = table.column_names
    return [
        (names, None),
        (names, id_ == value),
        (names, (n >= 700) & (n < 1010)),
        (["n", "text"], (x > 100.0) & (x < 130.0)),
        (["n", "id"], pc.match_substring(text, "of 42")),
        (["n", names[3]], id_ != value),
    ]


def columns_of(columns: list[str], filter_: pc.Expression | None) -> set[str]:
    """The columns a question is about."""
    used = str(filter_)
    return {*columns, *(name for name in ("n", "id", "x", "text") if name in used)}


@dataclass
class Outcome:
    """What became of the questions asked of one file."""

    noticed: bool = False
    refused: bool = False
    lost: int = 0
    lost_elsewhere: int = 0
    wrong: int = 0
    different: bool = False


def ask(path: Path, subject: Subject, place: Place, outcome: Outcome) -> None:
    """Ask all questions of the file at ``path``, of which ``place`` was hit."""
    allowed = set(range(*place.rows))
    data = None
    for columns, filter_ in questions(subject.table):
        expected = subject.table if filter_ is None else subject.table.filter(filter_)
        expected = expected.select(columns)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                data = ia.dataset(path, on_corrupt="skip") if data is None else data
                found = data.to_table([*columns, "__row_number"], filter_)
            except (ia.IntarsiaError, OSError, pa.ArrowException):
                outcome.noticed = outcome.refused = True
                continue
            finally:
                outcome.noticed |= bool(said)
        numbers = expected["n"].to_numpy()
        rows = found["__row_number"].to_numpy()
        at = np.searchsorted(numbers, rows)
        is_known = len(np.unique(rows)) == len(rows) and np.isin(rows, numbers).all()
        right = expected.take(pa.array(at)) if is_known else None
        if right is None or not _same(found.select(columns), right):
            outcome.wrong += _wrong(found, expected)
            continue
        missing = set(numbers.tolist()) - set(rows.tolist())
        own = allowed if place.column in columns_of(columns, filter_) else set()
        outcome.lost += len(missing & own)
        outcome.lost_elsewhere += len(missing - own)
        outcome.different |= bool(missing)


def _same(found: pa.Table, right: pa.Table) -> bool:
    return found.schema.equals(right.schema) and found.equals(right)


def _wrong(found: pa.Table, expected: pa.Table) -> int:
    true = {str(row) for row in expected.to_pylist()}
    return sum(str(row) not in true for row in found.select(expected.column_names).to_pylist()) or 1


def flip_one(
    subject: Subject, path: Path, chance: random.Random
) -> tuple[int, int, Place, Outcome]:
    """Flip a byte and ask: where, to what, and the outcome."""
    at = subject.random_byte(chance)
    new = subject.data[at] ^ chance.choice([1 << chance.randrange(8), chance.randrange(1, 256)])
    data = bytearray(subject.data)
    data[at] = new
    path.write_bytes(data)
    place = subject.place(at)
    outcome = Outcome()
    ask(path, subject, place, outcome)
    return at, new, place, outcome


def run(
    flips: int,
    seed: int,
    shapes: list[str],
    *,
    verbose: bool = False,
    minutes: float = float("inf"),
) -> dict[tuple[str, bool], Counter[str]]:
    """Counts by part, and whether the file has indexes; ``flips`` are divided among the shapes.

    Ends after so many ``minutes``.
    """
    counts: dict[tuple[str, bool], Counter[str]] = {}
    chance = random.Random(seed)
    subjects = [Subject.of(name) for name in shapes]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flipped.parquet"
        end = time.monotonic() + 60 * minutes
        for number in range(flips):
            if time.monotonic() > end:
                break
            subject = subjects[number % len(subjects)]
            at, new, place, outcome = flip_one(subject, path, chance)
            own = counts.setdefault((place.part, subject.is_indexed), Counter())
            own["flips"] += 1
            own["noticed"] += outcome.noticed
            own["refused"] += outcome.refused
            own["rows lost"] += outcome.lost
            own["lost elsewhere"] += outcome.lost_elsewhere
            own["wrong rows"] += outcome.wrong
            bad = outcome.wrong or outcome.lost_elsewhere
            if verbose and (bad or (outcome.refused and place.part != "footer")):
                what = f"byte {at}: {subject.data[at]} -> {new}"
                print(subject.name, place, what, outcome, flush=True)
    return counts


def table_of(counts: dict[tuple[str, bool], Counter[str]]) -> str:
    """The counts as a table."""
    titles = ("flips", "noticed", "refused", "rows lost", "lost elsewhere", "wrong rows")
    lines = [
        "| part | " + " | ".join(titles) + " |",
        "|---|" + "---:|" * len(titles),
    ]
    for is_indexed in (True, False):
        for part in PARTS:
            own = counts.get((part, is_indexed))
            if own is not None:
                kind = part if is_indexed else f"{part}, file without indexes"
                lines.append(f"| {kind} | " + " | ".join(f"{own[t]:,}" for t in titles) + " |")
    return "\n".join(lines)


def cost(rows: int) -> str:
    """Seconds of scans of all rows, the best of three, by what is checked."""
    ways = {"nothing": {}, "checksums": {"page_checksum_verification": True}}
    ways["pages, on_corrupt"] = {"on_corrupt": "raise"}
    numbers = np.random.default_rng(1).permutation(rows)
    table = pa.table({"n": numbers, "x": numbers * 0.37, "text": [f"text {n}" for n in numbers]})
    lines = ["| checked | seconds |", "|---|---:|"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        ia.write_table(table, path, indexes=[ia.PageIndex()])
        for name, options in ways.items():
            data = ia.dataset(path, **options)
            best = min(_seconds(data) for _ in range(3))
            lines.append(f"| {name} | {best:.3f} |")
    return "\n".join(lines)


def _seconds(data: ia.Dataset) -> float:
    start = time.perf_counter()
    data.to_table(filter=pc.field("n") >= 0)
    return time.perf_counter() - start


def main() -> None:
    """Flip, ask, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--verbose", action="store_true", help="say what went wrong, and where")
    parser.add_argument("--cost", type=int, metavar="ROWS", help="time scans of so many instead")
    options = parser.parse_args()
    if options.cost:
        print(cost(options.cost))
        return
    limits = {"verbose": options.verbose, "minutes": options.minutes}
    print(table_of(run(options.flips, options.seed, options.shapes, **limits)))


if __name__ == "__main__":
    main()
