"""The state of a data set: coverage of indexes, layout, policy, catalog and commits."""

import json
import os
import time

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
        (["n:bloom>=7%"], 6),
        (["lookup(k)>=100%", "words(k)>=1%"], 6),
        (["lookup(k)>100%"], 2),
        (["lookup(k)>=101%"], 2),
    ],
)
def test_requirements_have_an_exit_code(say, lake, requirements, code):
    ia.add_indexes(lake / "day=0" / "10.parquet", ["n:bloom"])
    with pytest.warns(ia.IntarsiaWarning, match="cannot have it"):
        ia.add_indexes(lake, ["k:lookup"])
    options = [part for text in requirements for part in ("--require", text)]
    said = say("status", lake, *options)
    assert said.code == code
    assert ("intarsia: " in said.err) == (code == 6)


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


# --- the policy, and maintain -------------------------------------------------------------------


def state_of(lake):
    return {str(path): path.read_bytes() for path in sorted(lake.rglob("*")) if path.is_file()}


@pytest.fixture
def kept(lake):
    """The lake without the file that has no ``k``, with a policy."""
    (lake / "day=1" / "80.parquet").unlink()
    ia.add_indexes(lake, ["k:lookup", "bloom(n, fpp=0.5)"], keep=True)
    return lake


def test_keep_adds_to_the_policy(kept):
    assert read_policy(LOCAL, str(kept)) == Policy(("k:lookup", "bloom(n, fpp=0.5)"))
    ia.add_indexes(kept, ["lookup(k, granule_rows=5)", "page_index"], keep=True, page_index=False)
    expected = Policy(("lookup(k, granule_rows=5)", "bloom(n, fpp=0.5)"), page_index=True)
    assert read_policy(LOCAL, str(kept)) == expected
    ia.add_indexes(kept, ["k:words"], keep=True, page_index=False)
    assert read_policy(LOCAL, str(kept)).page_index is False


def test_keep_needs_a_folder_and_changes_nothing_otherwise(lake):
    file = lake / "day=0" / "10.parquet"
    before = file.read_bytes()
    for path in (file, [lake, lake], f"{lake}/*/*.parquet"):
        with pytest.raises(ia.PathError, match="folder"):
            ia.add_indexes(path, ["n:lookup"], keep=True)
    assert file.read_bytes() == before
    assert not (lake / "_intarsia").exists()


def test_reports_tell_the_seconds(kept):
    for build in (ia.maintain, ia.build_catalog):
        start = time.perf_counter()
        report = build(kept)
        took = time.perf_counter() - start
        assert took / 10 < report.seconds < took, build


def test_maintain_gives_new_files_what_the_policy_wants_and_nothing_else(kept):
    before = state_of(kept)
    assert ia.maintain(kept).changed == ()
    assert state_of(kept) == before
    new = kept / "day=7" / "new.parquet"
    new.parent.mkdir()
    pq.write_table(rows_of(30), new)
    unindexed = new.read_bytes()
    planned = ia.maintain(kept, dry_run=True)
    assert [(file.path, file.indexes) for file in planned.changed] == [
        (str(new), ("k:lookup", "n:bloom", "page_index"))
    ]
    assert new.read_bytes() == unindexed
    done = ia.maintain(kept)
    assert [file.path for file in done.changed] == [str(new)]
    assert sorted(done.changed[0].indexes) == ["k:lookup", "n:bloom", "page_index"]
    assert new.read_bytes().startswith(unindexed)
    assert pq.read_table(new).equals(rows_of(30))
    after = state_of(kept)
    assert {path: after[path] for path in before} == before
    assert all(one.share == 1 for one in ia.status(kept).indexes)
    assert ia.maintain(kept).changed == ()
    assert state_of(kept) == after


def test_maintain_refreshes_an_outdated_catalog_only(kept):
    assert ia.maintain(kept).catalog == "none"
    ia.build_catalog(kept)
    assert ia.maintain(kept).catalog == "current"
    pq.write_table(rows_of(5), kept / "day=0" / "new.parquet")
    assert ia.maintain(kept, dry_run=True).catalog == "outdated"
    assert ia.maintain(kept).catalog == "refreshed"
    assert ia.status(kept).catalog.changed == 0
    assert ia.maintain(kept).catalog == "current"


def test_an_error_in_one_file_does_not_stop_maintain(say, kept):
    (kept / "day=0" / "a_damaged.parquet").write_bytes(b"PAR1")
    pq.write_table(rows_of(5), kept / "day=0" / "new.parquet")
    said = say("maintain", kept, "--json")
    report = json.loads(said.out)
    assert said.code == 3
    assert [file["path"].rpartition("/")[2] for file in report["changed"]] == ["new.parquet"]
    (failed,) = report["failed"]
    assert "a_damaged.parquet" in failed["error"]


def test_maintain_says_what_it_does(say, kept):
    pq.write_table(rows_of(5), kept / "day=0" / "new.parquet")
    said = say("maintain", kept, "--dry-run")
    assert (said.code, said.lines[0]) == (0, f"{kept}: would change 1 of 4 files; catalog: none")
    assert "  k:lookup: 1 file" in said.lines
    assert say("maintain", kept).lines[0] == f"{kept}: changed 1 of 4 files; catalog: none"
    assert say("maintain", kept).lines == [f"{kept}: changed 0 of 4 files; catalog: none"]


def test_maintain_needs_a_policy(say, lake):
    with pytest.raises(ia.PathError, match="no policy"):
        ia.maintain(lake)
    assert "--keep" in say("maintain", lake).err
    missing = say("maintain", lake / "missing")
    assert (missing.code, "there is no such folder" in missing.err) == (5, True)


def test_a_policy_of_sidecars_changes_no_file(lake):
    (lake / "day=1" / "80.parquet").unlink()
    ia.add_indexes(lake, ["k:lookup"], sidecar=True, keep=True)
    new = lake / "day=0" / "new.parquet"
    pq.write_table(rows_of(5), new)
    before = new.read_bytes()
    assert ia.maintain(lake).changed[0].indexes == ("k:lookup",)
    assert new.read_bytes() == before
    assert ia.status(lake).coverage("k:lookup").share == 1
    assert ia.maintain(lake).changed == ()


def test_files_that_cannot_have_an_index_do_not_fail(lake):
    with pytest.warns(ia.IntarsiaWarning, match="cannot have it"):
        ia.add_indexes(lake, ["k:lookup"], keep=True)
    assert ia.maintain(lake).failed == ()
    assert ia.maintain(lake).changed == ()


def test_our_writers_follow_the_policy_of_their_folder(say, kept, tmp_path):
    ia.write_table(rows_of(5), kept / "day=3.parquet")
    ia.write_table(rows_of(5).drop_columns(["k"]), kept / "no_k.parquet")
    table = rows_of(6).append_column("day", pa.array([8, 8, 8, 9, 9, 9]))
    options = {"partitioning": ["day"], "partitioning_flavor": "hive"}
    ia.write_dataset(table, kept, existing_data_behavior="overwrite_or_ignore", **options)
    (tmp_path / "more.csv").write_text("k,n\na,1\n")
    say("write", tmp_path / "more.csv", kept / "day=9" / "csv.parquet")
    ia.write_table(rows_of(5), kept / "plain.parquet", indexes=[])
    reports = {report.path[len(str(kept)) + 1 :]: report for report in ia.list_indexes(kept)}

    def names(path):
        report = reports[path]
        standard = {own.name for own in report.standard} - {"page_index"}
        return {entry.name for entry in report.indexes} | standard

    both = {"k:lookup", "n:bloom"}
    assert names("day=3.parquet") == names("day=8/part-0.parquet") == both
    assert names("day=9/part-0.parquet") == names("day=9/csv.parquet") == both
    assert (names("no_k.parquet"), names("plain.parquet")) == ({"n:bloom"}, set())
    assert [file.path for file in ia.maintain(kept).changed] == [str(kept / "plain.parquet")]


def test_other_readers_do_not_see_the_policy(kept):
    import duckdb
    import polars
    import pyarrow.dataset as pads

    assert pads.dataset(kept, partitioning="hive").count_rows() == 70
    query = f"SELECT count(*) FROM '{kept}/**/*.parquet'"
    assert duckdb.sql(query).fetchall() == [(70,)]
    assert polars.scan_parquet(f"{kept}/**/*.parquet").collect().height == 70


def test_remote_files_are_read_and_maintained(kept):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.put(str(kept), "/lake", recursive=True)
    with memory.open("/lake/day=0/new.parquet", "wb") as out:
        pq.write_table(rows_of(5), out)
    assert ia.status("/lake", filesystem=memory).coverage("k:lookup").files == 3
    report = ia.maintain("/lake", filesystem=memory)
    assert [file.path for file in report.changed] == ["/lake/day=0/new.parquet"]
    state = ia.status("/lake", filesystem=memory)
    assert (state.coverage("k:lookup").share, state.policy.indexes[0]) == (1.0, "k:lookup")
