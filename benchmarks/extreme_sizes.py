"""Measures calls on files that hold very many of one thing: columns, row groups, pages, strings.

``python benchmarks/extreme_sizes.py [--scale F] [FILE ...] [--calls CALL ...]`` prints a line for
each file and call: seconds of processor time, the peak of memory in MiB above the start of the
call, and the answer. Each call runs in a process of its own, on a copy of the file. ``--scale 0.1``
makes files of a tenth of the things.
"""

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from memory import peak_bytes

import intarsia as ia

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "hostile"))

INDEXED = ("page_index", "bloom", "lookup")
FILES: dict[str, tuple[int, str, tuple[str, ...]]] = {
    "columns": (
        100_000,
        "c0",
        ("open", "column", "filter", "lookup", "list", "inspect", "explain", "verify"),
    ),
    "wide": (20_000, "c7", ("column", "filter", *INDEXED, "verify")),
    "row_groups": (
        100_000,
        "a",
        ("open", "table", "count", "filter", *INDEXED, "skip", "inspect", "explain", "verify"),
    ),
    "pages_of_one_value": (1_000_000, "a", ("count", "filter", *INDEXED, "verify", "recover")),
    "empty_pages": (200_000, "a", ("count", "filter", "verify", "recover")),
    "key_values": (1_000_000, "a", ("open", "lookup", "drop", "verify")),
    "tiny_pages": (200_000, "a", ("filter", "verify", "recover")),
    "strings": (2_600_000, "s", ("filter", *INDEXED, "verify")),
}
"""How many of its things a file has, the column that is filtered and indexed, and the calls."""


def write(name: str, count: int, path: Path) -> None:
    """Writes a file."""
    if name == "wide":
        table = pa.table({f"c{n}": np.arange(100) + n for n in range(count)})
        pq.write_table(table, path, row_group_size=10)
    elif name == "tiny_pages":  # half of them of each column
        table = pa.table(
            {"a": np.arange(count // 2), "s": [f"s{n}" for n in range(10**6, 10**6 + count // 2)]}
        )
        options: dict[str, Any] = {"use_dictionary": False, "write_batch_size": 1}
        pq.write_table(table, path, max_rows_per_page=1, row_group_size=count // 8, **options)
    elif name == "strings":
        with pq.ParquetWriter(path, pa.schema([("s", pa.string())]), compression="zstd") as file:
            values = [f"{n * 7919 % count:09}{'x' * 991}" for n in range(count)]
            file.write_table(pa.table({"s": values}), row_group_size=count)
    else:
        path.write_bytes(importlib.import_module("sizes").SIZES[name](count))


def run(call: str, path: Path, column: str) -> object:
    """Makes a call, and returns a short answer."""
    text = column == "s"
    where = pc.field(column) == (f"{7:09}{'x' * 991}" if text else 7)
    if call in INDEXED:
        ia.add_indexes(path, [call if call == "page_index" else f"{column}:{call}"])
        return f"{path.stat().st_size:,} bytes"
    if call == "inspect":
        command = [sys.executable, "-m", "intarsia", "inspect", path]
        return f"exit status {subprocess.run(command, capture_output=True, check=False).returncode}"
    if call == "recover":
        schema = pq.read_schema(path)
        os.truncate(path, footer_offset(path))
        return ia.recover(path, path.with_suffix(".out"), schema_from=schema).rows
    calls: dict[str, Callable[[], object]] = {
        "open": lambda: ia.ParquetFile(path).num_rows,
        "column": lambda: ia.dataset(path).to_table(columns=[column]).shape,
        "table": lambda: ia.dataset(path).to_table().shape,
        "skip": lambda: ia.dataset(path, on_corrupt="skip").to_table().shape,
        "count": lambda: ia.dataset(path).count_rows(filter=where),
        "filter": lambda: ia.dataset(path).to_table(columns=[column], filter=where).shape,
        "explain": lambda: f"{len(str(ia.dataset(path).explain(filter=where))):,} characters",
        "list": lambda: len(ia.list_indexes(path)),
        "drop": lambda: ia.drop_indexes(path, all=True),
        "verify": lambda: f"{len(ia.verify(path))} findings",
    }
    return calls[call]()


def footer_offset(path: Path) -> int:
    """Returns the offset of a file's footer."""
    with path.open("rb") as file:
        end = file.seek(-8, os.SEEK_END)
        return end - int.from_bytes(file.read(4), "little")


def measure(call: str, path: Path, column: str) -> str:
    """Returns a line about a call."""
    warnings.simplefilter("ignore")
    memory, begin = peak_bytes(), time.process_time()
    children = os.times()
    try:
        answer = run(call, path, column)
    except ia.IntarsiaError as error:
        answer = f"{type(error).__name__}: {str(error).replace(str(path), 'FILE')[:160]}"
    after = os.times()
    seconds = time.process_time() - begin + after[2] + after[3] - children[2] - children[3]
    return f"{seconds:9.2f} {(peak_bytes() - memory) // 2**20:7,}  {answer}"


def main() -> None:
    """Measures the calls that the command line names, by default all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help=", ".join(FILES))
    parser.add_argument("--calls", nargs="*")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        call, path, column = args.one
        print(measure(call, Path(path), column))
        return
    print(f"{'file':20} {'count':>9} {'call':10} {'seconds':>9} {'MiB':>7}  answer")
    for name in args.files or FILES:
        full, column, calls = FILES[name]
        count = int(full * args.scale)
        with tempfile.TemporaryDirectory() as folder:
            original, copy = Path(folder) / "original.parquet", Path(folder) / "t.parquet"
            write(name, count, original)
            for call in args.calls or calls:
                shutil.copy(original, copy)
                one = [sys.executable, __file__, "--one", call, str(copy), column]
                line = subprocess.run(one, capture_output=True, text=True, check=False).stdout
                print(f"{name:20} {count:9,} {call:10} {line.strip() or 'ended early'}", flush=True)


if __name__ == "__main__":
    main()
