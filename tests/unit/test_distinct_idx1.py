"""DataFusion's published list of distinct values: written, read, and validated."""

import contextlib
import pickle
import struct
import warnings

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.cli.command_line import run
from intarsia.index.kinds.distinct_idx1 import KEY
from intarsia.io.source import BufferSource
from intarsia.parquet.footer import framed, read_footer, with_key_values

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
category = pc.field("category")
TABLE = pa.table(
    {
        "category": ["foo", "bar", None, "baz", "foo"] * 20,
        "other": [f"o{i}" for i in range(100)],
        "n": range(100),
    }
)


def their_reader(path):
    """Reads a file as the article's reader does: the set of lines at the offset in the footer."""
    offset = int(pq.read_metadata(path).metadata[KEY.encode()])
    with open(path, "rb") as file:
        file.seek(offset)
        assert file.read(4) == b"IDX1"
        (length,) = struct.unpack("<Q", file.read(8))
        text = file.read(length).decode()
    lines = text.split("\n")
    if lines[-1] == "":  # like Rust's ``str::lines``: nothing follows a final line feed
        lines.pop()
    return {line.removesuffix("\r") for line in lines}


def their_file(table=TABLE, lines=("foo", "bar", "baz"), *, key=None, payload=None, **options):
    """A file as the article's writer makes it: the list follows the row groups."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=30, **options)
    whole = sink.getvalue().to_pybytes()
    footer = read_footer(BufferSource(memoryview(whole)))
    text = "\n".join(lines).encode()
    payload = b"IDX1" + struct.pack("<Q", len(text)) + text if payload is None else payload
    key = str(footer.offset) if key is None else key
    raw = with_key_values(footer.raw, {KEY: key})
    return whole[: footer.offset] + payload + framed(raw)


def rows_left(path, condition, **options):
    source = ia.dataset(path, **options)
    return sum(file.plan.rows.num_rows for file in source.explain(filter=condition).files)


@pytest.fixture
def ours(tmp_path):
    path = tmp_path / "ours.parquet"
    pq.write_table(TABLE, path, row_group_size=30)
    ia.add_indexes(path, ia.DistinctIDX1("category"))
    return path


@pytest.fixture
def theirs(tmp_path):
    path = tmp_path / "theirs.parquet"
    path.write_bytes(their_file())
    return path


# --- writing --------------------------------------------------------------------------------------


def test_their_reader_reads_what_is_written(ours):
    assert their_reader(ours) == {"foo", "bar", "baz"}
    assert pq.read_table(ours).equals(TABLE)


@SETTINGS
@given(data=st.data())
def test_readers_of_the_list_miss_no_value(data, tmp_path_factory):
    text = st.text(st.sampled_from("ab\r\n ä"), max_size=3) | st.none()
    cells = data.draw(st.lists(text, max_size=12))
    path = tmp_path_factory.mktemp("idx1") / "t.parquet"
    kind = data.draw(st.sampled_from([pa.string(), pa.large_string()]))
    pq.write_table(pa.table({"category": pa.array(cells, kind)}), path)
    values = {cell for cell in cells if cell is not None}
    if any("\n" in cell or cell.endswith("\r") for cell in values) or values == {""}:
        before = path.read_bytes()
        with pytest.raises(ia.IndexSpecError, match=r"line feed|carriage return|only value"):
            ia.add_indexes(path, "category:distinct_idx1")
        assert path.read_bytes() == before
        return
    ia.add_indexes(path, "category:distinct_idx1")
    assert their_reader(path) == values
    assert ia.verify(path) == []
    literal = data.draw(text.filter(lambda t: t is not None))
    one = pc.scalar(literal)
    for condition in (
        category == one, category != one, category < one, category.isin([literal, "b"]),
        pc.match_like(category, "a%"), ~pc.match_substring(category, "a"), category.is_valid(),
        category.is_null(), ~category.isin([literal]), pc.starts_with(category, literal),
    ):  # fmt: skip
        expected = pq.read_table(path).filter(condition)
        assert ia.dataset(path).to_table(filter=condition).equals(expected)


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        (category == "bas", 0),
        (category == "bar", 100),
        (category.isin(["bas", "fox"]), 0),
        (pc.match_like(category, "%x%"), 0),
        (pc.starts_with(category, "bas"), 0),
        (pc.match_substring_regex(category, "^q"), 0),
        ((category > "baz") & (category < "foo"), 100),  # each part by itself may pass
        ((category == "bas") | (pc.field("n") < 5), 30),  # statistics of row groups
        ((category == "bas") & (pc.field("n") < 5), 0),
        (category.is_null(), 100),
    ],
    ids=str,
)
def test_a_file_that_lists_no_match_is_skipped(ours, condition, left):
    assert rows_left(ours, condition) == left
    assert ia.dataset(ours).to_table(filter=condition).equals(TABLE.filter(condition))


def test_other_indexes_are_used_if_the_list_cannot_decide(ours):
    ia.add_indexes(ours, ia.Lookup("category", granule_rows=1))
    assert rows_left(ours, category == "bar") == 20
    assert rows_left(ours, category == "bas") == 0


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (ia.DistinctIDX1("n"), "lists strings"),
        (ia.DistinctIDX1(pc.utf8_lower(category)), "not of a function"),
        (ia.DistinctIDX1("none"), "is not there"),
    ],
)
def test_columns_that_cannot_have_a_list(ours, spec, reason):
    with pytest.raises(ia.IndexSpecError, match=reason):
        ia.add_indexes(ours, spec)


def test_too_long_a_list_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"category": [f"{i:0100000}" for i in range(170)]}), path)
    with pytest.raises(ia.IndexSpecError, match="try distinct"):
        ia.add_indexes(path, "category:distinct_idx1")


def test_a_file_can_have_only_one_list(ours):
    with pytest.raises(ia.IndexSpecError, match="can have only one"):
        ia.add_indexes(ours, ia.DistinctIDX1("other"))
    ia.drop_indexes(ours, "category:distinct_idx1")
    ia.add_indexes(ours, ia.DistinctIDX1("other"))
    assert len(their_reader(ours)) == 100


def test_the_footer_follows_the_list(ours, tmp_path):
    before = tmp_path / "before.parquet"
    pq.write_table(TABLE, before, row_group_size=30)
    ia.add_indexes(ours, ["n:lookup", "other:bloom"])
    ia.add_indexes(ours, "category:distinct_idx1")  # replaced, its space reclaimed
    ia.add_indexes(ours, "other:lookup")
    assert their_reader(ours) == {"foo", "bar", "baz"}
    assert ia.verify(ours) == []
    ia.drop_indexes(ours, "n:lookup")
    assert their_reader(ours) == {"foo", "bar", "baz"}
    ia.drop_indexes(ours, "category:distinct_idx1")
    assert KEY.encode() not in (pq.read_metadata(ours).metadata or {})
    ia.drop_indexes(ours, all=True)
    assert ours.read_bytes() == before.read_bytes()


def test_a_file_that_another_tool_rewrote_is_read_whole(ours, tmp_path):
    """pyarrow copies the keys of the footer, both theirs and ours."""
    table = pq.read_table(ours)
    metadata = pq.read_metadata(ours).metadata
    keys = {name: metadata[name] for name in (b"intarsia", KEY.encode())}
    changed = table.set_column(0, "category", pa.array(["new"] * 100))
    stale = tmp_path / "stale.parquet"
    pq.write_table(changed.replace_schema_metadata(keys), stale)
    for options in ({}, {"distinct_index_column": "category"}):
        with pytest.warns(ia.IntarsiaWarning, match="ignored|rewrite"):
            actual = ia.dataset(stale, **options).to_table(filter=category == "new")
        assert actual.num_rows == 100
    assert any("rewritten" in str(finding) for finding in ia.verify(stale))


def test_every_changed_byte_is_noticed(ours):
    (entry,) = ia.list_indexes(ours)[0].indexes
    stored = ours.read_bytes()
    for at in range(entry.offset, entry.offset + entry.length):
        changed = bytearray(stored)
        changed[at] ^= 1
        file = ia.ParquetFile(BufferSource(memoryview(changed)))
        with pytest.warns(ia.IntarsiaWarning, match="checksum"):
            assert file.read(filter=category == "foo").num_rows == 40


# --- reading --------------------------------------------------------------------------------------


def test_their_list_is_used_if_its_column_is_given(theirs):
    absent = category == "bas"
    options = {"distinct_index_column": "category"}
    assert rows_left(theirs, absent) == 100  # the file does not say which column it describes
    assert rows_left(theirs, absent, **options) == 0
    assert rows_left(theirs, category.isin(["bas", "bat"]), **options) == 0
    assert rows_left(theirs, category == "bar", **options) == 100
    assert rows_left(theirs, pc.field("other") == "p", **options) == 0  # by statistics
    assert rows_left(theirs, pc.field("other") == "o999", **options) == 0
    assert rows_left(theirs, pc.field("other") == "o11x", **options) > 0
    assert ia.ParquetFile(theirs, **options).read(filter=absent).num_rows == 0
    source = ia.dataset(theirs, **options)
    for same in (pickle.loads(pickle.dumps(source)), source.filter(absent)):
        assert same.explain(filter=absent).files[0].plan.rows.num_rows == 0
    assert ia.verify(theirs) == []
    (report,) = ia.list_indexes(theirs)
    assert [(one.name, one.bytes) for one in report.standard] == [("distinct_idx1", 23)]


@pytest.mark.parametrize("command", [["index", "list"], ["inspect"]])
def test_the_command_line_shows_both(ours, theirs, command, monkeypatch, capsys):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    for path, shown in (
        (ours, "category:distinct_idx1: 23 bytes"),
        (theirs, "distinct_idx1: on a column that it does not name, 23 bytes"),
    ):
        monkeypatch.setattr("sys.argv", ["intarsia", *command, str(path)])
        with contextlib.suppress(SystemExit):
            run()
        assert shown in " ".join(capsys.readouterr().out.split())


def test_only_complete_lines_are_looked_up(tmp_path):
    """The writer splits values at line feeds, and then no line may pass the filter that the value
    does.
    """
    table = pa.table({"category": ["a\nz", "b"]})
    path = tmp_path / "t.parquet"
    path.write_bytes(their_file(table, ("a\nz", "b"), write_statistics=False))
    source = ia.dataset(path, distinct_index_column="category")
    for condition in (
        category == "a\nz", category.isin(["a\nz", "q"]), pc.starts_with(category, "a\n"),
        pc.match_like(category, "a_z"), (category > "a") & (category < "b"), category != "b",
        category.isin(["q", None]), category.is_null(),
    ):  # fmt: skip
        assert source.to_table(filter=condition).equals(table.filter(condition))
    assert rows_left(path, category == "az", distinct_index_column="category") == 0
    assert ia.verify(path) == []


U64 = struct.Struct("<Q").pack
BROKEN = {
    "no offset": {"key": "x"},
    "an offset of another script": {"key": "١٢"},
    "a negative offset": {"key": "-1"},
    "an offset beyond the file": {"key": str(10**12)},
    "an offset of many digits": {"key": "9" * 30},
    "an offset into a column": {"key": "4"},
    "no magic": {"payload": b"IDX2" + U64(3) + b"foo"},
    "a length beyond the footer": {"payload": b"IDX1" + U64(4000) + b"foo"},
    "a hostile length": {"payload": b"IDX1" + U64(2**63) + b"foo"},
    "no UTF-8": {"payload": b"IDX1" + U64(3) + b"\xff\xfe\xfd"},
    "no header": {"payload": b"IDX1"},
    "another column's values": {"lines": ("o1", "o2")},
    "no values": {"lines": ()},
}


@pytest.mark.parametrize("changes", BROKEN.values(), ids=BROKEN)
def test_an_invalid_list_is_ignored(tmp_path, changes):
    path = tmp_path / "t.parquet"
    path.write_bytes(their_file(**changes))
    with pytest.warns(ia.IntarsiaWarning, match=f"{KEY} is ignored"):
        actual = ia.dataset(path, distinct_index_column="category").to_table(
            filter=category == "foo"
        )
    assert actual.num_rows == 40
    assert any(KEY in str(finding) for finding in ia.verify(path))
    assert ia.dataset(path).count_rows(filter=category == "foo") == 40
    assert ia.list_indexes(path)  # either no warning, or that it exists


def test_a_column_value_that_looks_like_a_list_is_not_used(tmp_path):
    """A value of a binary column that looks like a list: its bytes belong to the column."""
    fake = b"IDX1" + U64(3) + b"foo"
    table = TABLE.append_column("trap", pa.array([fake] * 100))
    whole = their_file(table, payload=b"", key="0")
    path = tmp_path / "t.parquet"
    path.write_bytes(their_file(table, payload=b"", key=str(whole.index(fake))))
    with pytest.warns(ia.IntarsiaWarning, match="rewritten"):
        actual = ia.dataset(path, distinct_index_column="category").to_table(
            filter=category == "bar"
        )
    assert actual.num_rows == 20


@SETTINGS
@given(data=st.data())
def test_a_damaged_list_of_theirs_loses_a_row_only_where_its_values_were_changed(data):
    """Without a checksum, changed values cannot be detected; header and place are checked."""
    stored = bytearray(their_file())
    at = stored.index(b"IDX1") + data.draw(st.integers(0, 11))
    stored[at] ^= data.draw(st.integers(1, 255))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ia.IntarsiaWarning)
        file = ia.ParquetFile(BufferSource(memoryview(stored)), distinct_index_column="category")
        assert file.read(filter=category == "bar").num_rows == 20


def test_adding_an_index_keeps_their_list(theirs):
    ia.add_indexes(theirs, ["n:lookup", ia.PageIndex()])
    assert their_reader(theirs) == {"foo", "bar", "baz"}
    assert rows_left(theirs, category == "bas", distinct_index_column="category") == 0
    ia.add_indexes(theirs, "category:distinct_idx1")  # our own, which knows its column
    assert rows_left(theirs, category == "bas") == 0
    ia.drop_indexes(theirs, ["category:distinct_idx1", "n:lookup", "page_index"])
    assert theirs.read_bytes() == their_file()


@pytest.mark.parametrize("column", ["n", "none"])
def test_a_column_that_the_list_cannot_describe(theirs, column):
    source = ia.dataset(theirs, distinct_index_column=column)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ia.IntarsiaWarning)
        assert source.to_table(filter=pc.field("n") == 7).num_rows == 1
        assert source.to_table(filter=category == "bar").num_rows == 20
