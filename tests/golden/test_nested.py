"""Nested columns of real files with added page indexes give the rows that pyarrow reads."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.row_ranges import RowRanges
from intarsia.scan import page_selection

FILES = [
    "apache-impala__testdata-ComplexTypesTbl-structs.parq.parquet",
    "apache-impala__testdata-CustomerMultiBlock-customer_multiblock.parquet",
    "apache-impala__testdata-data-schemas-nested-legacy_nested.parquet",
    "apache-impala__testdata-data-schemas-nested-modern_nested.parquet",
    "apache-parquet-testing__data-nonnullable.impala.parquet",
    "apache-parquet-testing__shredded_variant-case-044.parquet",
    "dask-fastparquet__test-data-map_array.parq.parquet",
    "duckdb-duckdb__data-parquet-testing-complex.parquet",
    "duckdb-duckdb__data-parquet-testing-malloy-smaller-tbl_.parquet",
    "duckdb-duckdb__data-parquet-testing-variant_array_object_string.parquet",
    "duckdb-duckdb__test-geoparquet-seattle.parquet",
    "hyparam-hyparquet__test-files-adam_genotypes.parquet",
    "rapidsai-cudf__cpp-examples-hybrid_scan_io-example.parquet",
]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("apart", [False, True], ids=["as planned", "every leaf by itself"])
def test_random_rows_are_pyarrows(corpus, tmp_path, monkeypatch, name, apart):
    if apart:  # most of these files are too small for leaves to have different pages

        def portions(read):
            return [(leaf,) for leaf in range(len(read.root.leaves))]

        monkeypatch.setattr(page_selection.ColumnRead, "portions", portions)
    path = tmp_path / name
    shutil.copy(corpus / "files" / name, path)
    expected = pq.ParquetFile(path).read()
    ia.add_indexes(path, [ia.PageIndex()])
    file = ia.ParquetFile(path)
    for seed, count in enumerate((1, 3, 30)):
        wanted = np.random.default_rng(seed).integers(0, file.num_rows, count)
        ranges = RowRanges.from_rows(wanted)
        actual = file.read(rows=ranges)
        actual.validate(full=True)
        assert actual.schema.equals(expected.schema)
        part = pa.concat_tables(expected.slice(a, b - a) for a, b in ranges)
        assert str(actual.to_pylist()) == str(part.to_pylist())  # compares NaN too
