"""What kinds of keys of texts take, and what they leave: how the grams were chosen.

``python benchmarks/text_keys.py`` reads the changelogs that Debian packages install (or the gzipped
texts of ``--glob``), a row a line, and prints for each kind of keys the pairs of key and granule,
what they take of the stored column, and how many granules are left of each text looked for. Nothing
is stored but the table of lines.

::

    pairs     sorted, distinct (key, granule)
    columns   the share of the zstd column that two columns take, DELTA_BINARY_PACKED
    stepwise  the same, but granules as steps from one to the next of a key, BYTE_STREAM_SPLIT
    one       one column, the steps of key * granules + granule, BYTE_STREAM_SPLIT
"""

from __future__ import annotations

import argparse
import glob
import gzip
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from intarsia.index.key_formula import granules_of
from intarsia.index.kinds import gram_keys
from intarsia.index.kinds.required_substrings import required_by_literal
from intarsia.strings import tokenizer

SEED = 5
PAGE_ROWS = 8192
_RANDOM = random.Random(SEED)


def _hexadecimal(digits: int) -> str:
    return "".join(_RANDOM.choice("0123456789abcdef") for _ in range(digits))


WANTED = {
    "frequent": ["closes:", "debian"],
    "rare": ["zlib1g-dev", "hurd-i386"],
    "3 characters": ["x11", "zq9", "qxj"],
    "4 characters": ["curl", "zzzz", "9f3a"],
    "absent words": ["xylophone", "quagmires", "zebrafishes", "flibbertig", "wombatic"],
    "absent hex, 8": [_hexadecimal(8) for _ in range(10)],
    "absent hex, 32": [_hexadecimal(32) for _ in range(10)],
    "long": ["drop unnecessary build-dependency on", "the quick brown fox jumps over"],
}
Pairs = tuple[np.ndarray, np.ndarray]
Keys = Callable[[pa.Array, np.ndarray], Pairs]


def lines(pattern: str) -> Iterator[str]:
    """The lines of all files, in the order of their names."""
    for name in sorted(glob.glob(pattern)):
        with gzip.open(name, "rt", encoding="utf-8", errors="replace") as file:
            yield from file.read().splitlines()


def table_of(pattern: str, rows: int | None, folder: Path) -> Path:
    """The lines as a Parquet file, made once."""
    path = folder / f"text-{rows or 'all'}.parquet"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        values = pa.array(lines(pattern), pa.string())[:rows]
        write(pa.table({"text": values}), path, PAGE_ROWS)
    return path


def write(table: pa.Table, path: Path, page_rows: int) -> None:
    """The lines, in pages of so many rows."""
    pq.write_table(
        table,
        path,
        compression="zstd",
        use_dictionary=False,
        max_rows_per_page=page_rows,
        write_page_index=True,
    )


def fixed(length: int, bits: int) -> Keys:
    """Keys of all grams of ``length`` bytes, ASCII without its case, hashed to ``bits``."""
    factor = np.uint64(0x9E3779B97F4A7C15)
    mask = np.uint64((1 << 8 * length) - 1)

    def keys(values: pa.Array, positions: np.ndarray) -> Pairs:
        found = []
        for granule in np.unique(positions):
            first, stop = np.searchsorted(positions, [granule, granule + 1]).tolist()
            part = pc.ascii_lower(values[first:stop])
            text = "\0".join(part.to_pylist()).encode() + bytes(8)
            data = np.frombuffer(text, np.uint8)
            gram_keys = np.ndarray((len(data) - 7,), "<u8", text, strides=(1,)) & mask
            whole = np.ones(len(gram_keys), dtype=bool)
            for i in range(length):
                whole &= data[i : i + len(gram_keys)] != 0
            mine = np.unique((gram_keys[whole] * factor) >> np.uint64(64 - bits))
            found.append((mine.astype(np.uint32), np.full(len(mine), granule)))
        return tuple(np.concatenate(part) for part in zip(*found, strict=True))  # type: ignore

    return keys


def fixed_left(keys: Keys, pairs: Pairs, text: str, granules: int) -> int:
    """How many granules have all keys of ``text``."""
    mine, _ = keys(pa.array([text]), np.zeros(1, np.int64))
    left = np.ones(granules, dtype=bool)
    for key in mine:
        left &= _having(pairs, np.array([key]), granules)
    return int(left.sum())


def grams_left(pairs: Pairs, text: str, granules: int) -> int:
    """How many granules a search for ``text`` has to look at."""
    formula = gram_keys.keys_needed(required_by_literal(text))
    if formula is None:
        return granules
    left = granules_of(formula, lambda leaf: _having(pairs, leaf.keys, granules), granules)
    return int(left.sum())


def _having(pairs: Pairs, keys: np.ndarray, granules: int) -> np.ndarray:
    found = np.zeros(granules, dtype=bool)
    bounds = np.searchsorted(pairs[0], keys), np.searchsorted(pairs[0], keys, side="right")
    for first, stop in zip(*bounds, strict=True):
        found[pairs[1][first:stop]] = True
    return found


def ordered(pairs: Pairs) -> Pairs:
    """Sorted by key, distinct."""
    packed = np.unique(pairs[0].astype(np.uint64) << np.uint64(32) | pairs[1].astype(np.uint64))
    return (packed >> np.uint64(32)).astype(np.uint32), packed.astype(np.uint32)


def stored(**columns: tuple[np.ndarray, str]) -> int:
    """The bytes of a page-indexed file of these columns, each with its encoding."""
    out = pa.BufferOutputStream()
    pq.write_table(
        pa.table({name: values for name, (values, _) in columns.items()}),
        out,
        compression="zstd",
        use_dictionary=False,
        column_encoding={name: encoding for name, (_, encoding) in columns.items()},
        max_rows_per_page=PAGE_ROWS,
        write_batch_size=PAGE_ROWS,
        write_page_index=True,
        row_group_size=1 << 30,
        store_schema=False,
    )
    return out.tell()


def measure(name: str, keys: Keys, values: pa.Array, positions: np.ndarray, column: int) -> Pairs:
    """Build, and print a row; the seconds are of this process, not of the clock."""
    start = time.process_time()
    made = keys(values, positions)
    seconds = time.process_time() - start
    key, granule = pairs = ordered(made)
    step = np.diff(granule, prepend=np.uint32(0))
    anew = np.diff(key, prepend=np.uint32(0)) != 0
    anew[::PAGE_ROWS] = True
    step[anew] = granule[anew]
    whole = np.diff(key.astype(np.int64) * (int(positions[-1]) + 1) + granule, prepend=0)
    delta, split = "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"
    shares = [
        stored(key=(key, delta), granule=(granule, delta)) / column,
        stored(key=(key, delta), step=(step, split)) / column,
        stored(step=(whole, split)) / column,
    ]
    print(
        f"{name:16} {len(key) / 1e6:6.1f} M pairs   columns {shares[0]:6.1%}   stepwise "
        f"{shares[1]:6.1%}   one {shares[2]:6.1%}   {values.nbytes / seconds / 1e6:5.0f} MB/s"
    )
    return pairs


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--glob", default="/usr/share/doc/*/changelog*.gz")
    parser.add_argument("--rows", type=int, help="at most so many lines")
    parser.add_argument("--granule-rows", type=int, default=8192)
    parser.add_argument("--data", type=Path, default=Path("bench-data"))
    given = parser.parse_args()
    path = table_of(given.glob, given.rows, given.data)
    groups = pq.read_metadata(path)
    column = sum(
        groups.row_group(i).column(0).total_compressed_size for i in range(groups.num_row_groups)
    )
    values = pq.read_table(path).column(0).combine_chunks()
    positions = np.arange(len(values)) // given.granule_rows
    granules = int(positions[-1]) + 1
    print(f"{len(values):,} rows, {values.nbytes / 1e6:.0f} MB, stored {column / 1e6:.1f} MB")
    left: dict[str, Callable[[str], int]] = {}
    for length, bits in ((3, 32), (4, 32), (4, 20)):
        name, keys = f"n = {length}, {bits} bits", fixed(length, bits)
        pairs = measure(name, keys, values, positions, column)
        left[name] = lambda text, keys=keys, pairs=pairs: fixed_left(keys, pairs, text, granules)
    pairs = measure("NGram", gram_keys.keys_of_strings, values, positions, column)
    left["NGram"] = lambda text, pairs=pairs: grams_left(pairs, text, granules)
    measure("Words", tokenizer.keys_of_strings, values, positions, column)
    folded = pc.ascii_lower(values)
    print(
        f"\ngranules left of {granules}, mean{'':11}",
        *(f"{name:>16}" for name in left),
        "   hold it",
    )
    for name, texts in WANTED.items():
        means = [np.mean([count(text) for text in texts]) for count in left.values()]
        hold = [len(np.unique(positions[_holding(folded, text)])) for text in texts]
        print(f"  {name:34}", *(f"{mean:16.1f}" for mean in means), f"{np.mean(hold):10.1f}")


def _holding(values: pa.Array, text: str) -> np.ndarray:
    return pc.indices_nonzero(pc.match_substring(values, text)).to_numpy()


if __name__ == "__main__":
    main()
