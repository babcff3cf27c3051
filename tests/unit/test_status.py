"""The state of a data set: coverage of indexes, layout, policy, catalog and commits."""

import json
import os

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.indexing.policy import Policy, policy_above, policy_path, read_policy, write_policy

LOCAL = pafs.LocalFileSystem()


def rows_of(count, start=0):
    return pa.table({"k": [f"K{n}" for n in range(start, start + count)], "n": range(count)})


@pytest.fixture
def lake(tmp_path):
    """Files of 10, 20, 40 and 80 rows in two folders. The last one has no column ``k``."""
    root = tmp_path / "lake"
    for number, count in enumerate([10, 20, 40, 80]):
        folder = root / f"day={number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        table = rows_of(count) if count < 80 else rows_of(count).drop_columns(["k"])
        pq.write_table(table, folder / f"{count}.parquet")
    return root


def by_name(state):
    return {one.name: one for one in state.indexes}


def test_coverage_agrees_with_the_list_of_indexes(lake):
    ia.add_indexes(lake / "day=0" / "10.parquet", ["k:lookup", "n:bloom"])
    ia.add_indexes(lake / "day=1" / "20.parquet", ["k:lookup"], sidecar=True)
    reports = {report.path: report for report in ia.list_indexes(lake)}
    state = ia.status(lake)
    assert (state.files, state.rows, state.row_groups) == (4, 150, 4)
    assert state.bytes == sum(report.file_bytes for report in reports.values())
    lookups = [
        (report, entry)
        for report in reports.values()
        for entry in report.entries
        if entry.name == "k:lookup"
    ]
    lookup = by_name(state)["k:lookup"]
    assert (lookup.files, lookup.all_files, lookup.rows, lookup.all_rows) == (2, 3, 30, 70)
    assert lookup.bytes == sum(report.file_bytes for report, _ in lookups)
    assert lookup.index_bytes == sum(entry.length for _, entry in lookups)
    assert (lookup.unfit, lookup.stale, lookup.share) == (1, 0, 30 / 70)
    bloom, pages = by_name(state)["n:bloom"], by_name(state)["page_index"]
    assert (bloom.files, bloom.all_files, bloom.rows) == (1, 4, 10)
    assert (pages.files, pages.all_files) == (1, 4)
    standard = sum(own.bytes for report in reports.values() for own in report.standard)
    assert bloom.index_bytes + pages.index_bytes == standard
    assert state.index_bytes == standard + lookup.index_bytes
    assert state.coverage("lookup(k)") == lookup
    assert state.coverage("nothing:lookup") is None


def test_the_layout_counts_small_files_and_long_pages(tmp_path):
    (tmp_path / "alone").mkdir()
    long = pa.table({"n": range(40_000)})
    options = {"max_rows_per_page": 40_000, "data_page_size": 1 << 30, "use_dictionary": False}
    pq.write_table(long, tmp_path / "alone" / "long.parquet", **options)
    pq.write_table(rows_of(10), tmp_path / "a.parquet")
    pq.write_table(rows_of(30), tmp_path / "b.parquet")
    state = ia.status(tmp_path)
    assert (state.small_files, state.coarse_files, state.page_rows) == (2, 1, 30)
    assert "1 of 3 files with pages of 32,768 rows or more" in str(state)


def test_stale_indexes_and_damaged_files_are_reported(lake):
    ia.add_indexes(lake, ["n:lookup"])
    path = lake / "day=0" / "40.parquet"
    keys = pq.read_metadata(path).metadata
    table = rows_of(40, start=7).replace_schema_metadata({b"intarsia": keys[b"intarsia"]})
    pq.write_table(table, path)
    ia.add_indexes(lake / "day=1" / "20.parquet", ["n:minmax"], sidecar=True)
    ia.write_table(rows_of(20, start=3), lake / "day=1" / "20.parquet", indexes=["n:lookup"])
    (lake / "day=0" / "damaged.parquet").write_bytes(b"PAR1 no footer")
    state = ia.status(lake)
    lookup = by_name(state)["n:lookup"]
    assert (state.files, state.stale_files) == (4, 2)
    assert (lookup.files, lookup.rows) == (3, 110)
    bounds = by_name(state)["n:minmax"]
    assert (bounds.files, bounds.stale) == (0, 1)
    (problem,) = state.problems
    assert "damaged.parquet" in problem
    assert "damaged.parquet" in str(state)


def test_files_without_rows_do_not_count(lake):
    ia.add_indexes(lake, ["n:lookup"])
    pq.write_table(rows_of(0), lake / "day=0" / "empty.parquet")
    lookup = ia.status(lake).coverage("n:lookup")
    assert (lookup.files, lookup.all_files, lookup.unfit, lookup.share) == (4, 4, 0, 1.0)


def test_policy_catalog_and_commits_are_reported(lake):
    with pytest.warns(ia.IntarsiaWarning, match="cannot have it"):
        ia.add_indexes(lake, ["lookup(lower(k))", "n:lookup"])
    policy = Policy(
        ("lookup(lower(k))", "lookup(n, granule_rows=5)"), ("n",), {"row_group_rows": 9}
    )
    write_policy(LOCAL, str(lake), policy)
    ia.build_catalog(lake)
    (lake / "_SUCCESS").touch()
    os.utime(lake / "_SUCCESS", (1_000_000_000, 1_000_000_000))
    state = ia.status(lake)
    assert state.policy == policy
    assert (state.catalog.files, state.catalog.changed) == (4, 0)
    assert (state.last_commit, state.unfinished_commits) == ("2001-09-09T01:46:40+00:00", 0)
    first, second = state.indexes[:2]
    assert (first.is_wanted, first.share) == (True, 1.0)
    # The files' index has other parameters than the policy's.
    assert (second.name, second.is_wanted, second.share) == ("n:lookup", True, 0.0)
    assert "lookup(lower(k)), lookup(n, granule_rows=5); row_group_rows=9; sorted by n" in str(
        state
    )


def test_a_damaged_policy_is_a_problem_and_no_error(lake):
    write_policy(LOCAL, str(lake), Policy(("n:lookup",)))
    policy_file = lake / "_intarsia" / "policy.json"
    for data in (
        b"{",
        b"[]",
        b'{"version": 2}',
        b'{"version": 1, "layout": {"rows_per_page": "9"}}',
    ):
        policy_file.write_bytes(data)
        (problem,) = ia.status(lake).problems
        assert "policy.json" in problem
        with pytest.raises(ia.FormatError, match="policy"):
            read_policy(LOCAL, str(lake))
        with pytest.warns(ia.IntarsiaWarning, match="is ignored"):
            assert policy_above(LOCAL, f"{lake}/day=0") is None


def test_a_policy_is_found_above_partition_folders_only(lake):
    policy = Policy(("k:lookup", "bloom(n, fpp=0.5)", "page_index"), ("k", "n"))
    write_policy(LOCAL, str(lake), policy)
    assert policy_path(str(lake)) == f"{lake}/_intarsia/policy.json"
    assert policy_above(LOCAL, f"{lake}/day=0/hour=1") == policy
    assert policy_above(LOCAL, str(lake)) == policy
    (lake / "plain").mkdir()
    assert policy_above(LOCAL, f"{lake}/plain") is None
    assert pq.read_table(lake / "day=0", partitioning=None).num_rows == 50
    assert ia.dataset(lake).count_rows() == 150


@pytest.mark.parametrize(
    ("requirements", "code"),
    [
        (["lookup(k)>=100%"], 0),
        (["k:lookup >= 99.5 %", "n:bloom>=6%"], 0),
        (["n:bloom>=7%"], 5),
        (["lookup(k)>=100%", "words(k)>=1%"], 5),
        (["lookup(k)>100%"], 2),
        (["lookup(k)>=101%"], 2),
        (["nothing>=1%"], 1),
    ],
)
def test_requirements_have_an_exit_code(say, lake, requirements, code):
    ia.add_indexes(lake / "day=0" / "10.parquet", ["n:bloom"])
    with pytest.warns(ia.IntarsiaWarning, match="cannot have it"):
        ia.add_indexes(lake, ["k:lookup"])
    options = [part for text in requirements for part in ("--require", text)]
    said = say("status", lake, *options)
    assert said.code == code
    assert ("intarsia: " in said.err) == (code in (1, 5))


def test_the_document_has_what_the_text_shows(say, lake):
    ia.add_indexes(lake, ["n:lookup"])
    document = json.loads(say("status", lake, "--json", "--require", "words(k)>=50%").out)
    assert document["files"] == 4
    assert {one["name"]: one["share"] for one in document["indexes"]} == {
        "n:lookup": 1.0,
        "page_index": 1.0,
        "k:words": 0.0,
    }
    assert document["unmet"] == ["words(k) covers 0 % of the rows, not 50 %"]
    text = say("status", lake).out
    assert "n:lookup" in text
    assert "4 of 4" in text
