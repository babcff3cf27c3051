"""Checks reads with ``on_corrupt="skip"`` of files in which one byte is changed at random.

The data is small files (2,400 rows) of nine layouts, flat and nested, with and without indexes.
Each flip changes one byte of one file. Then several queries read the file, with and without
filters. Returned rows must be rows that were written, and only rows of the damaged page may be
missing. All rows of a row group may be missing in two cases: a damaged dictionary page, and a
nested column of a file without page indexes. Half of the flips hit any byte. The other half first
choose a part of the file, so that small parts are hit too.

``python benchmarks/rot.py --flips 1000`` prints a line for each part of the file:

- the flips, and those noticed by an error or a warning
- the flips after which a query raised an error ("refused")
- the rows lost, the rows lost outside the damaged page, and the wrong rows

``--cost ROWS`` instead prints the wall time of a scan in seconds for each kind of check, the best
of three.
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
    """Returns a table of flat columns; ``n`` is the row number."""
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
    """Returns a table of nested columns; ``n`` is the row number."""
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


def _write_plain(table: pa.Table, **options: object) -> bytes:
    buffer = io.BytesIO()
    settings = {
        "row_group_size": GROUP_ROWS,
        "max_rows_per_page": PAGE_ROWS,
        "write_batch_size": PAGE_ROWS,
        "write_page_checksum": True,
        **options,
    }
    pq.write_table(table, buffer, **settings)
    return buffer.getvalue()


def _write_indexed(table: pa.Table, **options: object) -> bytes:
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
    "flat, indexes": lambda: (flat(), _write_indexed(flat(), use_dictionary=["word"])),
    "flat V2, indexes": lambda: (flat(), _write_indexed(flat(), data_page_version="2.0")),
    "nested, indexes": lambda: (nested(), _write_indexed(nested())),
    "nested V2, indexes": lambda: (nested(), _write_indexed(nested(), data_page_version="2.0")),
    "pyarrow": lambda: (
        flat(),
        _write_plain(flat(), write_page_index=True, use_dictionary=["word"]),
    ),
    "pyarrow V2, zstd": lambda: (
        flat(),
        _write_plain(flat(), write_page_index=True, data_page_version="2.0", compression="zstd"),
    ),
    "pyarrow, nested": lambda: (nested(), _write_plain(nested(), write_page_index=True)),
    "pyarrow, no page index": lambda: (flat(), _write_plain(flat(), use_dictionary=["word"])),
    "pyarrow, nested, no page index": lambda: (nested(), _write_plain(nested(), compression=None)),
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
    """A file, the table written to it, and the places of its parts."""

    name: str
    table: pa.Table
    data: bytes
    places: list[Place] = field(default_factory=list)

    @classmethod
    def of(cls, name: str) -> Subject:
        """Returns the file of that layout."""
        table, data = SHAPES[name]()
        subject = cls(name, table, data)
        subject.places = sorted(subject._places(), key=lambda place: place.start)
        return subject

    @property
    def is_indexed(self) -> bool:
        """True if the file has a directory, and so a checksum of its footer."""
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
        group_rows = (group * GROUP_ROWS, (group + 1) * GROUP_ROWS)
        has_row_numbers = leaf.max_repetition_level == 0 or chunk.offset_index_offset is not None
        for page in file.pages(group, leaf.index):
            body = page.offset + page.header_size
            end = body + page.compressed_size
            if page.first_row is None:
                yield Place("dictionary", page.offset, end, leaf.path[0], group_rows)
                continue
            first = group_rows[0] + page.first_row
            rows = (first, first + page.num_rows) if has_row_numbers else group_rows
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
        """Returns the part that contains the byte at ``at``."""
        matches = [place for place in self.places if place.start <= at < place.stop]
        return matches[0] if matches else Place("other", at, at + 1)

    def random_byte(self, rng: random.Random) -> int:
        """Returns the offset of any byte, or of a byte of a random part."""
        if rng.random() < 0.5:
            return rng.randrange(len(self.data))
        part = rng.choice(sorted({place.part for place in self.places}))
        place = rng.choice([place for place in self.places if place.part == part])
        return rng.randrange(place.start, place.stop)


def queries_of(table: pa.Table) -> list[tuple[list[str], pc.Expression | None]]:
    """Returns columns and filter of each query."""
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
    """Returns the columns that a query returns or filters."""
    used = str(filter_)
    return {*columns, *(name for name in ("n", "id", "x", "text") if name in used)}


@dataclass
class Outcome:
    """The results of the queries of one file."""

    noticed: bool = False
    refused: bool = False
    lost: int = 0
    lost_elsewhere: int = 0
    wrong: int = 0
    different: bool = False


def ask(path: Path, subject: Subject, place: Place, outcome: Outcome) -> None:
    """Runs all queries on the file at ``path``, in which a byte of ``place`` is changed."""
    allowed = set(range(*place.rows))
    data = None
    for columns, filter_ in queries_of(subject.table):
        expected = subject.table if filter_ is None else subject.table.filter(filter_)
        expected = expected.select(columns)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                data = ia.dataset(path, on_corrupt="skip") if data is None else data
                answer = data.to_table([*columns, "__row_number"], filter_)
            except (ia.IntarsiaError, OSError, pa.ArrowException):
                outcome.noticed = outcome.refused = True
                continue
            finally:
                outcome.noticed |= bool(caught)
        numbers = expected["n"].to_numpy()
        rows = answer["__row_number"].to_numpy()
        positions = np.searchsorted(numbers, rows)
        is_known = len(np.unique(rows)) == len(rows) and np.isin(rows, numbers).all()
        expected_rows = expected.take(pa.array(positions)) if is_known else None
        if expected_rows is None or not _same(answer.select(columns), expected_rows):
            outcome.wrong += _wrong(answer, expected)
            continue
        missing = set(numbers.tolist()) - set(rows.tolist())
        own = allowed if place.column in columns_of(columns, filter_) else set()
        outcome.lost += len(missing & own)
        outcome.lost_elsewhere += len(missing - own)
        outcome.different |= bool(missing)


def _same(answer: pa.Table, expected: pa.Table) -> bool:
    return answer.schema.equals(expected.schema) and answer.equals(expected)


def _wrong(answer: pa.Table, expected: pa.Table) -> int:
    written_rows = {str(row) for row in expected.to_pylist()}
    return (
        sum(
            str(row) not in written_rows for row in answer.select(expected.column_names).to_pylist()
        )
        or 1
    )


def flip_one(subject: Subject, path: Path, rng: random.Random) -> tuple[int, int, Place, Outcome]:
    """Changes a byte and runs the queries. Returns offset, new byte, place and outcome."""
    at = subject.random_byte(rng)
    new = subject.data[at] ^ rng.choice([1 << rng.randrange(8), rng.randrange(1, 256)])
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
    """Flips bytes, and returns the counts by part and by whether the file has indexes.

    ``flips`` are divided among the layouts in ``shapes``. The run ends after ``minutes`` minutes.
    """
    counts: dict[tuple[str, bool], Counter[str]] = {}
    rng = random.Random(seed)
    subjects = [Subject.of(name) for name in shapes]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flipped.parquet"
        end = time.monotonic() + 60 * minutes
        for number in range(flips):
            if time.monotonic() > end:
                break
            subject = subjects[number % len(subjects)]
            at, new, place, outcome = flip_one(subject, path, rng)
            count = counts.setdefault((place.part, subject.is_indexed), Counter())
            count["flips"] += 1
            count["noticed"] += outcome.noticed
            count["refused"] += outcome.refused
            count["rows lost"] += outcome.lost
            count["lost elsewhere"] += outcome.lost_elsewhere
            count["wrong rows"] += outcome.wrong
            bad = outcome.wrong or outcome.lost_elsewhere
            if verbose and (bad or (outcome.refused and place.part != "footer")):
                change = f"byte {at}: {subject.data[at]} -> {new}"
                print(subject.name, place, change, outcome, flush=True)
    return counts


def table_of(counts: dict[tuple[str, bool], Counter[str]]) -> str:
    """Formats the counts as a table."""
    titles = ("flips", "noticed", "refused", "rows lost", "lost elsewhere", "wrong rows")
    lines = [
        "| part | " + " | ".join(titles) + " |",
        "|---|" + "---:|" * len(titles),
    ]
    for is_indexed in (True, False):
        for part in PARTS:
            count = counts.get((part, is_indexed))
            if count is not None:
                label = part if is_indexed else f"{part}, file without indexes"
                lines.append(f"| {label} | " + " | ".join(f"{count[t]:,}" for t in titles) + " |")
    return "\n".join(lines)


def cost(rows: int) -> str:
    """Returns a table of wall times in seconds of full scans, the best of three, by check."""
    checks = {"nothing": {}, "checksums": {"page_checksum_verification": True}}
    checks["pages, on_corrupt"] = {"on_corrupt": "raise"}
    numbers = np.random.default_rng(1).permutation(rows)
    table = pa.table({"n": numbers, "x": numbers * 0.37, "text": [f"text {n}" for n in numbers]})
    lines = ["| checked | seconds |", "|---|---:|"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        ia.write_table(table, path, indexes=[ia.PageIndex()])
        for name, options in checks.items():
            data = ia.dataset(path, **options)
            best = min(_seconds(data) for _ in range(3))
            lines.append(f"| {name} | {best:.3f} |")
    return "\n".join(lines)


def _seconds(data: ia.Dataset) -> float:
    start = time.perf_counter()
    data.to_table(filter=pc.field("n") >= 0)
    return time.perf_counter() - start


def main() -> None:
    """Runs the flips and prints the counts, or the cost of the checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="end after this many minutes"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--verbose", action="store_true", help="print each error with its place")
    parser.add_argument(
        "--cost", type=int, metavar="ROWS", help="only time scans of a file of ROWS rows"
    )
    options = parser.parse_args()
    if options.cost:
        print(cost(options.cost))
        return
    limits = {"verbose": options.verbose, "minutes": options.minutes}
    print(table_of(run(options.flips, options.seed, options.shapes, **limits)))


if __name__ == "__main__":
    main()
