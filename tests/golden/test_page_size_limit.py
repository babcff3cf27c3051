"""No readable file of other writers exceeds ``page_size_limit``."""

import csv

import intarsia as ia

LIMIT = 64 << 20


def test_no_readable_file_of_the_corpus_holds_a_larger_page(corpus):
    """Two files exceed it: one holds 2 GB in 4 KB, which pyarrow does not decode; one is broken."""
    with open(corpus / "manifest.tsv", newline="", encoding="utf-8") as lines:
        rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        names = [row["name"] for row in rows]
    refused, num_read = {}, 0
    for name in names:
        try:
            file = ia.ParquetFile(corpus / "files" / name, page_size_limit=LIMIT)
            assert file.read().num_rows == file.num_rows
            num_read += 1
        except ia.FormatError as error:
            if "page_size_limit" in error.message:
                refused[name] = error.message
    assert num_read > 500
    assert refused == {
        "apache-parquet-testing__data-large_string_map.brotli.parquet": (
            "a page that holds 1,073,741,828 bytes, where page_size_limit is 67,108,864"
        ),
        "duckdb-duckdb__test-sql-copy-parquet-broken-broken_structure.parquet": (
            "a page that holds 17,179,869,176 bytes, where page_size_limit is 67,108,864"
        ),
    }
