"""Page indexes of real files, compared with the output of another implementation."""

import json
import math

import numpy as np
import pytest

import intarsia as ia
from intarsia.parquet.metadata import BoundaryOrder
from intarsia.parquet.value_order import Domain

ORACLES = [
    "adam_genotypes",
    "dictionary_offset_indexed",
    "duckdb4442",
    "duckdb5533",
    "incorrect_map_schema",
    "offset_index_no_dict_offset",
    "plain-dict-uncompressed-checksum",
]


def oracle(corpus, name, which):
    """An oracle's columns by row group, or None if it has none of that kind."""
    path = corpus / "oracles" / "hyparquet" / f"{name}.{which}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def oracle_file(corpus, name):
    (path,) = (corpus / "files").glob(f"*-{name}.parquet")
    return ia.ParquetFile(path)


def test_every_oracle_is_compared(corpus):
    paths = (corpus / "oracles" / "hyparquet").glob("*_indexes.json")
    assert {path.name.split(".")[0] for path in paths} == set(ORACLES)


@pytest.mark.parametrize("name", ORACLES)
def test_offset_indexes_are_those_hyparquet_reads(corpus, name):
    file = oracle_file(corpus, name)
    groups = oracle(corpus, name, "offset_indexes")
    assert len(groups) == len(file.metadata.row_groups)
    compared = 0
    for group, columns in enumerate(groups):
        assert len(columns) == len(file.schema.leaves)
        for leaf, expected in enumerate(columns):
            actual = file.page_index(group, leaf).offset_index
            if expected is None:
                assert actual is None
                continue
            locations = expected["page_locations"]
            for field in ("offset", "compressed_page_size", "first_row_index"):
                assert getattr(actual, field).tolist() == [page[field] for page in locations]
            compared += 1
    assert compared


@pytest.mark.parametrize("name", ORACLES)
def test_column_indexes_are_those_hyparquet_reads(corpus, name):
    file = oracle_file(corpus, name)
    groups = oracle(corpus, name, "column_indexes")
    if groups is None:
        assert name in {"offset_index_no_dict_offset"}
        return
    for group, columns in enumerate(groups):
        assert len(columns) == len(file.schema.leaves)
        for leaf, expected in enumerate(columns):
            actual = file.page_index(group, leaf).column_index
            if expected is None:
                assert actual is None
            else:
                compare_column_index(file._opened.order(leaf), actual, expected)


def compare_column_index(order, found, expected):
    assert found.null_pages.tolist() == expected["null_pages"]
    assert BoundaryOrder(found.boundary_order).name == expected["boundary_order"]
    counts = ("null_counts", "repetition_level_histograms", "definition_level_histograms")
    for name in counts:
        held = getattr(found, name)
        assert (None if held is None else held.tolist()) == expected.get(name)
    for name in ("min_values", "max_values"):
        shown = [
            None if null else as_shown(order, value)
            for null, value in zip(found.null_pages, getattr(found, name), strict=True)
        ]
        assert len(shown) == len(expected[name])
        for mine, theirs, null in zip(shown, expected[name], found.null_pages, strict=True):
            if not null:
                assert shown_alike(mine, theirs)


def as_shown(order, value):
    """A bound as the oracles show it: numbers, text, or milliseconds of a time."""
    (key,), (usable,) = order.keys([value])
    if not usable:
        return list(value)
    if order.domain is Domain.TIMESTAMP:
        return str(np.datetime64(int(key) * 1000 // order.per_second, "ms")) + "Z"
    if order.domain is Domain.BOOLEAN:
        return bool(key)
    if isinstance(key, bytes):
        return key.decode()
    return key.item()


def shown_alike(mine, theirs):
    if isinstance(mine, float) and isinstance(theirs, int | float):
        return math.isclose(mine, theirs)
    return mine == theirs
