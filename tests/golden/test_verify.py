"""``verify`` on real files: sound files have no findings, and each finding is a real error."""

import csv

import pytest
from gathered import TWO_GIGABYTES

SECONDS = 20
"""Limit of processor time, which other processes of the machine do not affect."""

CORRUPT_CHECKSUMS = {
    # Two pages were damaged after their checksums had been computed.
    "apache-parquet-testing__data-datapage_v1-corrupt-checksum.parquet": [("a", 0), ("b", 1)],
    # Fuzzed and unreadable. The fuzzer changed the checksums in these headers.
    "duckdb-duckdb__data-parquet-testing-broken-fuzzer4362.parquet": [("j", 0)],
    "duckdb-duckdb__data-parquet-testing-broken-fuzzer4381.parquet": [("tags.v_binary", 1)],
}

FUZZ = (
    "apache-arrow-testing__data-parquet-fuzzing-clusterfuzz-testcase-minimized-parquet-arrow-fuzz"
)
NOT_NULL_PAGES = {
    # An old parquet-mr without statistics wrote null_pages = true and null_counts = -1 for all
    # pages, although these columns are required and hold values.
    "column index: null_pages is True, not False",
    "column index: null_counts is -1, not 0",
}
BLOOM_FILTERS = {"a bloom filter of 10,000 bytes", "not a valid BloomFilterHeader: "}
# The only readable files with errors, and how their messages begin. Each was examined.
WRONG = {
    # Fields of the footer have other types than in the specification. pyarrow skips them, and reads
    # no column, no row group and no row.
    f"{FUZZ}-4740205688193024.parquet": {
        "not a valid FileMetaData: got wrong ttype while reading field"
    },
    f"{FUZZ}-5665099979423744.parquet": {
        "not a valid FileMetaData: got wrong ttype while reading field"
    },
    # A fuzzed page index lies past the end of the file; pyarrow reads the pages without it.
    f"{FUZZ}-5382863341289472.parquet": NOT_NULL_PAGES
    | {"19 bytes are referenced outside the 3,380 bytes there are"},
    "apache-parquet-testing__data-datapage_v1-corrupt-checksum.parquet": NOT_NULL_PAGES
    | {
        "checksum bbce3b9d in the header, 0f4f6d0a of the bytes",
        "checksum 48850d12 in the header, 0358a2bc of the bytes",
    },
    "apache-parquet-testing__data-datapage_v1-snappy-compressed-checksum.parquet": NOT_NULL_PAGES,
    "apache-parquet-testing__data-datapage_v1-uncompressed-checksum.parquet": NOT_NULL_PAGES,
    # Its row group has 6 rows, and pyarrow reads them.
    "apache-parquet-testing__data-repeated_no_annotation.parquet": {
        "the footer says 0 rows, its row groups 6"
    },
    # DuckDB's tests of a filter that claims 10,000 bytes instead of 32. Its header took two more
    # bytes for that, so all later filters begin two bytes after the footer's offsets.
    "duckdb-duckdb__data-parquet-testing-bloom_filter_bad_length_range.parquet": BLOOM_FILTERS,
    "duckdb-duckdb__data-parquet-testing-bloom_filter_bad_numbytes.parquet": BLOOM_FILTERS,
    # An old writer of V2 pages wrote the number of values, 278, as the number of rows, 30.
    **{
        f"duckdb-duckdb__data-parquet-testing-compression-generated-data_page_2_{codec}.parquet": {
            "the header says 278 rows, levels say 30"
        }
        for codec in ("BROTLI", "GZIP", "NONE", "SNAPPY")
    },
    # UINT_8 255, wrongly widened with its sign: the unsigned 4,294,967,295.
    "duckdb-duckdb__data-parquet-testing-out_of_range_stats.parquet": {
        "statistics: min_value b'\\xff\\xff\\xff\\xff' is above a value, b'\\xff\\x00\\x00\\x00'",
        "page statistics: min_value b'\\xff\\xff\\xff\\xff' is above a value, "
        "b'\\xff\\x00\\x00\\x00'",
    },
    # One value. The page's max_value holds other, malicious bytes; the chunk's is right.
    "duckdb-duckdb__data-parquet-testing-variant_malicious.parquet": {
        "page statistics: max_value is said to be exact and is not"
    },
    # Four values of a required column in a required group, but the row group has two rows. The same
    # chunks claim two NULLs in a column that cannot have any.
    "rapidsai-cudf__python-cudf-cudf-tests-data-parquet-nested-unsigned-malformed.parquet": {
        "pages hold 4 rows, the footer says 2",
        "statistics: null_count is 2, there are 0",
        "page statistics: null_count is 2, there are 0",
    },
}


# Files that pyarrow refuses and verify accepts. Their schema or the meaning of their values is
# unusual, which verify does not check.
ODD = {
    "apache-impala__testdata-data-create_table_like_parquet_test.parquet",  # a NULL group
    "apache-impala__testdata-data-decimal_padded_fixed_len_byte_array.parquet",  # of 17 bytes
    "apache-parquet-testing__data-incorrect_map_schema.parquet",  # keys of a map are optional
    "duckdb-duckdb__data-parquet-testing-bigdecimal.parquet",  # 77 digits
    "duckdb-duckdb__data-parquet-testing-negative-timetz.parquet",  # a time of day before midnight
}
NO_UTF8 = {
    "duckdb-duckdb__data-parquet-testing-invalid.parquet",
    "duckdb-duckdb__data-parquet-testing-invalid_utf8_dba.parquet",
    "duckdb-duckdb__data-parquet-testing-invalid_utf8_dlba.parquet",
}


@pytest.fixture(scope="module")
def manifest(corpus):
    with open(corpus / "manifest.tsv", newline="", encoding="utf-8") as lines:
        rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row["name"]: row for row in rows}


@pytest.fixture(scope="module")
def features(corpus):
    with open(corpus / "features.tsv", newline="", encoding="utf-8") as lines:
        rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row["sha256"]: row for row in rows}


@pytest.fixture(scope="module")
def found(outcomes):
    """Findings in every other file, by name."""
    return {name: actual["findings"] for name, actual in outcomes.items() if name != TWO_GIGABYTES}


def is_readable(row):
    return row["expected"].isdigit()


def is_error(finding):
    return finding["severity"] == "ERROR"


def test_a_file_is_verified_in_time_and_without_an_exception(outcomes, corpus_name):
    actual = outcomes[corpus_name]
    assert "died" not in actual
    assert actual["verify_seconds"] < SECONDS or corpus_name == TWO_GIGABYTES


def test_a_file_of_two_gigabytes_is_verified(outcomes):
    assert outcomes[TWO_GIGABYTES]["findings"] == []


def test_findings_in_readable_files_are_real_errors(found, manifest):
    for name, findings in found.items():
        if is_readable(manifest[name]):
            messages = {finding["message"] for finding in findings if is_error(finding)}
            known = WRONG.get(name, set())
            unknown = {message for message in messages if not message.startswith(tuple(known))}
            assert unknown == set(), name
            assert all(any(m.startswith(claim) for m in messages) for claim in known), name
    assert all(is_readable(manifest[name]) for name in WRONG)


def test_unreadable_files_are_clean_only_if_schema_or_values_are_unusual(found, manifest):
    unreadable = {name for name in found if not is_readable(manifest[name])}
    assert {name for name in unreadable if not found[name]} == ODD
    odd = {name for name in found if any("UTF-8" in f["message"] for f in found[name])}
    assert NO_UTF8 <= odd <= unreadable


def test_wrong_checksums_are_found(found, manifest, features):
    wrong = {}
    for name, findings in found.items():
        of_checksums = [f for f in findings if f["message"].startswith("checksum ")]
        assert all(map(is_error, of_checksums))
        if of_checksums:
            wrong[name] = [(f["column"], f["page"]) for f in of_checksums]
    assert wrong == CORRUPT_CHECKSUMS
    facts = {name: features[manifest[name]["sha256"]] for name in found}
    mismatch = {name for name, fact in facts.items() if fact["crc_check"] == "MISMATCH"}
    assert mismatch == {name for name in wrong if is_readable(manifest[name])}
    assert all(int(facts[name]["pages_with_crc"]) > 0 for name in wrong)
    right = [name for name, fact in facts.items() if fact["crc_check"] == "verified"]
    assert len(right) > 200
    assert not any(name in wrong for name in right)


def test_most_readable_files_are_clean(found, manifest):
    readable = {name: findings for name, findings in found.items() if is_readable(manifest[name])}
    wrong = {name for name, findings in readable.items() if any(map(is_error, findings))}
    assert wrong == set(WRONG)
    clean = [name for name, findings in readable.items() if not findings]
    assert len(clean) > 0.9 * len(readable)
