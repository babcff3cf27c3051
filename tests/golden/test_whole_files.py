"""Every file of the corpus, read and changed in every way."""

import csv

import gathered
import pytest

WALKS_THAT_FAIL = {
    # These are damaged on purpose, encrypted, or hold no data of their own.
    "apache-impala__testdata-data-bad_compressed_dict_page_size.parquet",
    "apache-parquet-testing__data-aes256-encrypt_columns_plaintext_footer.parquet.encrypted.parquet",
    "dask-fastparquet__test-data-split-_metadata.parquet",
    "duckdb-duckdb__data-parquet-testing-broken-fuzzer4362.parquet",
    "duckdb-duckdb__data-parquet-testing-broken-fuzzer4381.parquet",
    "duckdb-duckdb__data-parquet-testing-page_size_corruption.parquet",
    "duckdb-duckdb__data-parquet-testing-plaintext_footer_crypto_metadata.parquet",
}

WITHOUT_PAGE_INDEX = {
    # Levels contradict the row count in the footer; pyarrow does not check that.
    "rapidsai-cudf__python-cudf-cudf-tests-data-parquet-nested-unsigned-malformed.parquet",
}


@pytest.fixture(scope="module")
def oracle(corpus):
    """The file ``features.tsv``: the features of each corpus file, by name."""
    hashes = {row["sha256"]: row["name"] for row in rows(corpus / "manifest.tsv")}
    return {hashes[row["sha256"]]: row for row in rows(corpus / "features.tsv")}


def rows(path):
    with open(path, newline="", encoding="utf-8") as lines:
        yield from csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)


def names(outcomes, **expected):
    return {
        name
        for name, actual in outcomes.items()
        if all(actual.get(check) == value for check, value in expected.items())
    }


def made_to_break(name):
    return "fuzz" in name or "broken" in name


def test_no_file_kills_the_process(outcomes):
    assert {name: actual["died"] for name, actual in outcomes.items() if "died" in actual} == {}


def test_reencoded_footers_are_the_same_bytes(outcomes):
    assert all(made_to_break(name) for name in names(outcomes, footer="differs"))
    assert len(names(outcomes, footer="identical")) > 650


def test_rows_equal_pyarrows(outcomes):
    assert names(outcomes, reads="differently") == set()
    assert names(outcomes, reads="here only") == set()
    # Two fuzzed footers with wrong field types and without columns.
    only_there = names(outcomes, reads="by pyarrow only")
    assert len(only_there) == 2
    assert all("fuzz" in name for name in only_there)
    assert len(names(outcomes, reads="equal")) > 570


def test_rows_that_pyarrow_reads_are_not_lost_to_checks_and_filters(outcomes):
    assert names(outcomes, left="not all") == {
        # A checksum that is wrong on purpose, and a compressed page whose header says that it is
        # not. pyarrow recognizes that version of its own writer.
        "apache-parquet-testing__data-datapage_v1-corrupt-checksum.parquet",
        "apache-arrow-testing__data-parquet-ARROW-17100.parquet",
    }
    assert len(names(outcomes, left="all")) > 570
    assert names(outcomes, left="not here") == set()


def test_page_walks_find_all_pages(outcomes, oracle):
    failed = set()
    for name, actual in outcomes.items():
        if actual["opens"] != "yes" or name not in oracle:
            continue
        if isinstance(actual["pages"], str):
            failed.add(name)
            continue
        types = [part.split(":") for part in oracle[name]["page_types"].split(",") if part]
        counts = {kind if kind in KINDS else "other": int(count) for kind, count in types}
        assert actual["pages"] == counts, name
        assert actual["crc"] == int(oracle[name]["pages_with_crc"] or 0), name
    assert {name for name in failed if "fuzz" not in name} == {
        name for name in WALKS_THAT_FAIL if "fuzz" not in name
    }


KINDS = ("DATA_V1", "DATA_V2", "DICT", "INDEX")


def test_an_added_page_index_changes_no_answer_and_moves_no_byte(outcomes):
    assert {actual.get("page_index") for actual in outcomes.values()} == {"added", "refused", None}
    assert len(names(outcomes, page_index="added")) > 580
    refused = names(outcomes, reads="equal", page_index="refused")
    assert {name for name in refused if "fuzz" not in name} == WITHOUT_PAGE_INDEX


def test_an_added_page_index_has_no_findings(outcomes):
    for name, actual in outcomes.items():
        if "findings_after" in actual:
            after, before = map(gathered.grades, (actual["findings_after"], actual["findings"]))
            assert after <= before, name


def test_the_table_in_the_documents_is_up_to_date(outcomes):
    assert gathered.written_table() == gathered.table(outcomes)
