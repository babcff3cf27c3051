"""What ``page_size_limit`` refuses of the files that other writers made."""

import csv

import intarsia as ia

LIMIT = 64 << 20


def test_one_file_of_the_corpus_holds_a_larger_page(corpus):
    """All others are read as they are without a limit; Apache's own has 2 GB in 4 KB."""
    refused = {}
    with open(corpus / "manifest.tsv", newline="", encoding="utf-8") as lines:
        rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        names = [row["name"] for row in rows if row["expected"].isdigit()]
    for name in names:
        file = ia.ParquetFile(corpus / "files" / name, page_size_limit=LIMIT)
        try:
            assert file.read().num_rows == file.num_rows
        except ia.UnsupportedError:
            pass  # pyarrow does not decode it either
        except ia.FormatError as error:
            refused[name] = error.message
    assert refused == {
        "apache-parquet-testing__data-large_string_map.brotli.parquet": (
            "a page that holds 1,073,741,828 bytes, where page_size_limit is 67,108,864"
        )
    }
