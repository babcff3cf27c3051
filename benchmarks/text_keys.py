"""Compares kinds of search keys for text by size and by candidate granules.

The comparison is why ``NGram`` has its keys. The data is the changelogs that Debian packages
install (or the gzipped files of ``--glob``), one line a row. Only the table of lines is stored.

``python benchmarks/text_keys.py`` prints a line for each kind of keys: pairs of key and granule in
millions, their sizes as shares of the compressed column, and the build speed in MB/s of processor
time. The second table has the mean number of candidate granules for each group of search
strings, and the number that contain the string ("hold it").

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


SEARCHES = {
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
    """Yields the lines of all files, in the order of their names."""
    for name in sorted(glob.glob(pattern)):
        with gzip.open(name, "rt", encoding="utf-8", errors="replace") as file:
            yield from file.read().splitlines()


def table_of(pattern: str, rows: int | None, folder: Path) -> Path:
    """Returns the Parquet file of the lines, and writes it if it does not exist."""
    path = folder / f"text-{rows or 'all'}.parquet"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        values = pa.array(lines(pattern), pa.string())[:rows]
        write(pa.table({"text": values}), path, PAGE_ROWS)
    return path


def write(table: pa.Table, path: Path, page_rows: int) -> None:
    """Writes the lines in pages of ``page_rows`` rows."""
    pq.write_table(
        table,
        path,
        compression="zstd",
        use_dictionary=False,
        max_rows_per_page=page_rows,
        write_page_index=True,
    )


def fixed_grams(length: int, bits: int) -> Keys:
    """Returns keys of all ASCII-lowercased grams of ``length`` bytes, hashed to ``bits`` bits."""
    factor = np.uint64(0x9E3779B97F4A7C15)
    mask = np.uint64((1 << 8 * length) - 1)

    def keys(values: pa.Array, positions: np.ndarray) -> Pairs:
        parts = []
        for granule in np.unique(positions):
            first, stop = np.searchsorted(positions, [granule, granule + 1]).tolist()
            part = pc.ascii_lower(values[first:stop])
            text = "\0".join(part.to_pylist()).encode() + bytes(8)
            data = np.frombuffer(text, np.uint8)
            gram_keys = np.ndarray((len(data) - 7,), "<u8", text, strides=(1,)) & mask
            is_whole = np.ones(len(gram_keys), dtype=bool)
            for i in range(length):
                is_whole &= data[i : i + len(gram_keys)] != 0
            granule_keys = np.unique((gram_keys[is_whole] * factor) >> np.uint64(64 - bits))
            parts.append((granule_keys.astype(np.uint32), np.full(len(granule_keys), granule)))
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))  # type: ignore

    return keys


def count_fixed(keys: Keys, pairs: Pairs, string: str, granules: int) -> int:
    """Returns the number of granules that have all keys of ``string``."""
    string_keys, _ = keys(pa.array([string]), np.zeros(1, np.int64))
    mask = np.ones(granules, dtype=bool)
    for key in string_keys:
        mask &= _granules_with(pairs, np.array([key]), granules)
    return int(mask.sum())


def count_ngram(pairs: Pairs, string: str, granules: int) -> int:
    """Returns the number of granules in which ``NGram`` has to search for ``string``."""
    formula = gram_keys.keys_needed(required_by_literal(string))
    if formula is None:
        return granules
    mask = granules_of(formula, lambda leaf: _granules_with(pairs, leaf.keys, granules), granules)
    return int(mask.sum())


def _granules_with(pairs: Pairs, keys: np.ndarray, granules: int) -> np.ndarray:
    mask = np.zeros(granules, dtype=bool)
    bounds = np.searchsorted(pairs[0], keys), np.searchsorted(pairs[0], keys, side="right")
    for first, stop in zip(*bounds, strict=True):
        mask[pairs[1][first:stop]] = True
    return mask


def sort_pairs(pairs: Pairs) -> Pairs:
    """Sorts by key, and removes duplicates."""
    packed = np.unique(pairs[0].astype(np.uint64) << np.uint64(32) | pairs[1].astype(np.uint64))
    return (packed >> np.uint64(32)).astype(np.uint32), packed.astype(np.uint32)


def file_bytes(**columns: tuple[np.ndarray, str]) -> int:
    """Returns the bytes of a page-indexed file of these columns, each with its encoding."""
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
    """Builds keys and prints a line; the speed is MB of text a second of processor time."""
    start = time.process_time()
    unsorted_pairs = keys(values, positions)
    seconds = time.process_time() - start
    key, granule = pairs = sort_pairs(unsorted_pairs)
    step = np.diff(granule, prepend=np.uint32(0))
    is_first = np.diff(key, prepend=np.uint32(0)) != 0
    is_first[::PAGE_ROWS] = True
    step[is_first] = granule[is_first]
    combined_steps = np.diff(key.astype(np.int64) * (int(positions[-1]) + 1) + granule, prepend=0)
    delta, split = "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"
    shares = [
        file_bytes(key=(key, delta), granule=(granule, delta)) / column,
        file_bytes(key=(key, delta), step=(step, split)) / column,
        file_bytes(step=(combined_steps, split)) / column,
    ]
    print(
        f"{name:16} {len(key) / 1e6:6.1f} M pairs   columns {shares[0]:6.1%}   stepwise "
        f"{shares[1]:6.1%}   one {shares[2]:6.1%}   {values.nbytes / seconds / 1e6:5.0f} MB/s"
    )
    return pairs


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--glob", default="/usr/share/doc/*/changelog*.gz")
    parser.add_argument("--rows", type=int, help="maximum number of lines")
    parser.add_argument("--granule-rows", type=int, default=8192)
    parser.add_argument("--data", type=Path, default=Path("bench-data"))
    options = parser.parse_args()
    path = table_of(options.glob, options.rows, options.data)
    groups = pq.read_metadata(path)
    column = sum(
        groups.row_group(i).column(0).total_compressed_size for i in range(groups.num_row_groups)
    )
    values = pq.read_table(path).column(0).combine_chunks()
    positions = np.arange(len(values)) // options.granule_rows
    granules = int(positions[-1]) + 1
    print(f"{len(values):,} rows, {values.nbytes / 1e6:.0f} MB, stored {column / 1e6:.1f} MB")
    counters: dict[str, Callable[[str], int]] = {}
    for length, bits in ((3, 32), (4, 32), (4, 20)):
        name, keys = f"n = {length}, {bits} bits", fixed_grams(length, bits)
        pairs = measure(name, keys, values, positions, column)
        counters[name] = lambda string, keys=keys, pairs=pairs: count_fixed(
            keys, pairs, string, granules
        )
    pairs = measure("NGram", gram_keys.keys_of_strings, values, positions, column)
    counters["NGram"] = lambda string, pairs=pairs: count_ngram(pairs, string, granules)
    measure("Words", tokenizer.keys_of_strings, values, positions, column)
    folded = pc.ascii_lower(values)
    print(
        f"\ngranules left of {granules}, mean{'':11}",
        *(f"{name:>16}" for name in counters),
        "   hold it",
    )
    for name, strings in SEARCHES.items():
        means = [np.mean([count(string) for string in strings]) for count in counters.values()]
        true_counts = [len(np.unique(positions[_rows_with(folded, string)])) for string in strings]
        print(f"  {name:34}", *(f"{mean:16.1f}" for mean in means), f"{np.mean(true_counts):10.1f}")


def _rows_with(values: pa.Array, string: str) -> np.ndarray:
    return pc.indices_nonzero(pc.match_substring(values, string)).to_numpy()


if __name__ == "__main__":
    main()
