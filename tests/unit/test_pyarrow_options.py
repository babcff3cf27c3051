"""Options with which pyarrow's scans hang or fail are refused by every way to scan."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import intarsia as ia

WAYS = {
    "scanner": lambda ds, **options: ds.scanner(**options).to_table().num_rows,
    "count of a scanner": lambda ds, **options: ds.scanner(**options).count_rows(),
    "to_table": lambda ds, **options: ds.to_table(**options).num_rows,
    "to_batches": lambda ds, **options: sum(b.num_rows for b in ds.to_batches(**options)),
    "count_rows": lambda ds, **options: ds.count_rows(**options),
    "head": lambda ds, **options: ds.head(99, **options).num_rows,
    "take": lambda ds, **options: ds.take(range(10), **options).num_rows,
}
SOURCES = {
    "data set": lambda ds: ds,
    "filtered data set": lambda ds: ds.filter(pads.field("a") >= 0),
    "planned fragment": lambda ds: next(iter(ds.get_fragments(pads.field("a") >= 0))),
    "fragment": lambda ds: next(iter(ds.get_fragments())),
}
REFUSED = {
    "batch_size": [0, -1],
    "batch_readahead": [-1],
    "fragment_readahead": [0, -1],
}
SMALLEST = {"batch_size": 1, "batch_readahead": 0, "fragment_readahead": 1}
MADE_BY_PYARROW = {
    "from_dataset": lambda ds, **options: pads.Scanner.from_dataset(ds, **options).to_table(),
    "Acero": lambda ds, **options: acero.Declaration(
        "scan", acero.ScanNodeOptions(ds, **options)
    ).to_table(),
}
"""Scans that pyarrow makes of a data set's C++ object."""
IN_TIME = """
import sys
import pyarrow.dataset as pads
from test_pyarrow_options import MADE_BY_PYARROW, REFUSED, SOURCES, WAYS, opened

def is_refused(scan, source, name, value):
    try:
        scan(source, **{name: value})
    except ValueError as error:
        return f"{name} is " in str(error) and f"not {value}" in str(error)

ds = opened(sys.argv[1])
for source_name, of in SOURCES.items():
    for way, scan in WAYS.items():
        for name, values in REFUSED.items():
            for value in values:
                if not is_refused(scan, of(ds), name, value):
                    print(source_name, way, name, value)
for way, scan in MADE_BY_PYARROW.items():
    for source in (ds, ds.filter(pads.field("a") >= 0), ds.replace_schema(ds.schema)):
        if not is_refused(scan, source, "fragment_readahead", 0):
            print(way, type(source))
"""


def opened(folder):
    return ia.dataset(folder)


@pytest.fixture
def folder(tmp_path):
    for number in range(3):
        table = pa.table({"a": range(10)})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=4)
    return tmp_path


def test_counts_that_are_too_small_are_refused_at_once(folder):
    command = [sys.executable, "-c", IN_TIME, str(folder)]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("scan", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("of", SOURCES.values(), ids=SOURCES)
def test_the_smallest_counts_that_are_taken_change_no_answer(scan, of, folder):
    rows = scan(of(opened(folder)))
    for name, value in SMALLEST.items():
        assert scan(of(opened(folder)), **{name: value}) == rows


def test_options_are_counts_and_have_known_names(folder):
    ds = opened(folder)
    with pytest.raises(TypeError, match="unknown options: readahead"):
        ds.to_table(readahead=1)
    with pytest.raises(TypeError):
        ds.to_table(fragment_readahead="1")
    with pytest.raises(ValueError, match="fragments ahead never ends"):
        ds.to_table(fragment_readahead=0)


def test_a_file_refuses_batches_of_no_rows(folder):
    file = ia.ParquetFile(folder / "0.parquet")
    for value in REFUSED["batch_size"]:
        with pytest.raises(ValueError, match=f"batch_size is 1 at least, not {value}"):
            file.iter_batches(value)
