"""DuckDB's own readers of Iceberg and Delta tables read files that were given indexes.

The extensions fit one version of DuckDB, which is not the one that Intarsia needs. They are in an
environment of their own, with the packages ``duckdb``, ``duckdb-extension-avro``,
``duckdb-extension-iceberg`` and ``duckdb-extension-delta``.
"""

from __future__ import annotations

import json
import os
import subprocess

import deltalake
import iceberg_tables
import pytest
from iceberg_tables import catalog_in, data, local

import intarsia as ia

PYTHON = os.environ.get("INTARSIA_DUCKDB_PYTHON")
pytestmark = pytest.mark.skipif(
    PYTHON is None,
    reason="INTARSIA_DUCKDB_PYTHON names no Python that has DuckDB's extensions as packages",
)
READ = """
import json, pathlib, sys
import duckdb
query, *names = sys.argv[1:]
connection = duckdb.connect()
connection.execute("SET enable_progress_bar = false")
for name in names:
    folder = pathlib.Path(duckdb.__file__).parents[1] / f"duckdb_extension_{name}"
    (file,) = folder.rglob("*.duckdb_extension")
    connection.execute(f"LOAD '{file}'")
print(json.dumps(sorted(row for row, in connection.execute(query).fetchall())))
"""
SHAPES = [
    iceberg_tables.version_1,
    iceberg_tables.by_transforms,
    iceberg_tables.renamed,
    iceberg_tables.name_mapping,
    iceberg_tables.deleted_in_partitions,
    iceberg_tables.deletion_vectors,
    iceberg_tables.deletes_of_both_kinds,
    iceberg_tables.initial_defaults,
]


def read(query, *extensions):
    run = subprocess.run(
        [PYTHON, "-c", READ, query, *extensions], check=True, capture_output=True, text=True
    )
    return json.loads(run.stdout)


@pytest.mark.parametrize("make", SHAPES, ids=lambda make: make.__name__)
def test_iceberg_tables_with_indexes(tmp_path, make):
    catalog = catalog_in(tmp_path)
    table = make(catalog)
    catalog.close()
    query = f"SELECT id FROM iceberg_scan('{local(table.metadata_location)}')"
    ids = sorted(ia.iceberg(table).to_table()["id"].to_pylist())
    assert read(query, "avro", "iceberg") == ids
    ia.add_indexes(ia.iceberg(table), [ia.Lookup("id", granule_rows=4), ia.PageIndex()])
    assert read(query, "avro", "iceberg") == ids
    assert read(f"{query} WHERE id = 7", "avro", "iceberg") == [7] * ids.count(7)


def test_delta_tables_with_indexes(tmp_path):
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, data(), partition_by=["day"])
    ia.add_indexes(ia.delta(path), [ia.Lookup("id", granule_rows=4), ia.PageIndex()])
    assert read(f"SELECT id FROM delta_scan('{path}')", "delta") == list(range(40))
    assert read(f"SELECT id FROM delta_scan('{path}') WHERE id = 7", "delta") == [7]
