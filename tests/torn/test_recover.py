"""``recover`` and the command: what they write and report, and what does not change."""

import json
import os
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyarrow.fs import LocalFileSystem

import intarsia as ia
from intarsia.cli.command_line import cli
from intarsia.io.storage import FileSource
from intarsia.parquet.footer import read_footer
from intarsia.parquet.metadata import ColumnMetaData
from intarsia.parquet.thrift import amended, decode, encode

TABLE = pa.table({"n": range(40), "s": [f"x{n % 7}" for n in range(40)]})


@pytest.fixture
def torn(tmp_path):
    """Three row groups of ten rows, a footer after each, and half of a fourth."""
    path = tmp_path / "t.parquet"
    with ia.ParquetWriter(path, TABLE.schema, checkpoint_row_groups=1) as writer:
        writer.write_table(TABLE, 10)
    last = ia.ParquetFile(path).metadata.row_groups[3].columns[1].meta_data
    os.truncate(path, last.data_page_offset + 3)
    return path


def test_the_report_counts_recovered_and_lost_rows(torn, tmp_path):
    before = torn.read_bytes()
    out = tmp_path / "out.parquet"
    report = ia.recover(torn, out)
    assert pq.read_table(out).equals(TABLE.slice(0, 30))
    assert torn.read_bytes() == before
    assert before.startswith(out.read_bytes())
    assert (report.rows, report.row_groups, report.checkpoint_rows) == (30, 3, 30)
    assert report.bytes_kept + report.bytes_gone == report.bytes == len(before)
    assert report.bytes_gone > 0
    assert report.rows_gone == 10
    assert not report.is_whole
    assert "not finished" in report.reason
    assert "30 rows in 3 row groups recovered" in str(report)
    assert [group.ordinal for group in ia.ParquetFile(out).metadata.row_groups] == [0, 1, 2]
    assert ia.verify(out) == []


def test_the_command_prints_the_same_and_exits_with_3(torn, tmp_path):
    out = tmp_path / "out.parquet"
    done = CliRunner().invoke(cli, ["recover", str(torn), str(out)])
    assert done.exit_code == 3
    assert "30 rows" in done.output
    done = CliRunner().invoke(cli, ["recover", str(torn), str(out), "--json"])
    assert json.loads(done.output)["rows"] == 30
    again = CliRunner().invoke(cli, ["recover", str(out), str(tmp_path / "again.parquet")])
    assert again.exit_code == 0
    assert "nothing is missing" in again.output


def test_a_file_without_a_footer_takes_its_schema_from_another(tmp_path):
    path, other, out = (tmp_path / f"{name}.parquet" for name in ("t", "other", "out"))
    ia.write_table(TABLE, path, row_group_size=10)
    ia.write_table(TABLE.slice(0, 1), other)
    group = ia.ParquetFile(path).metadata.row_groups[1]
    stop = max(c.meta_data.start + c.meta_data.total_compressed_size for c in group.columns)
    os.truncate(path, stop + 30)
    with pytest.raises(ia.FormatError, match="schema_from"):
        ia.recover(path, out)
    assert not out.exists()
    for source in (other, TABLE.schema):
        report = ia.recover(path, out, schema_from=source)
        assert (report.rows, report.rebuilt_rows, report.rebuilt_row_groups) == (20, 20, 2)
        assert pq.read_table(out).equals(TABLE.slice(0, 20))
        assert ia.verify(out) == []
    command = ["recover", str(path), str(out), "--schema-from", str(other)]
    assert CliRunner().invoke(cli, command).exit_code == 3


def test_a_footer_that_lost_its_key_values_takes_those_of_another(tmp_path):
    kinds = {"ts": pa.timestamp("us", "Europe/Berlin"), "s": pa.large_string()}
    table = pa.table({"ts": pa.array([1, 2, 3], kinds["ts"]), "s": pa.array(["a"] * 3, kinds["s"])})
    path, other, out = (tmp_path / f"{name}.parquet" for name in ("t", "other", "out"))
    ia.write_table(table, path)
    ia.write_table(table.slice(0, 1), other)
    os.truncate(path, path.read_bytes().rindex(b"ARROW:schema"))
    ia.recover(path, out)
    assert pq.read_table(out).schema.types == [pa.timestamp("us", "UTC"), pa.string()]
    for source in (other, table.schema):
        assert not ia.recover(path, out, schema_from=source).notes
        assert pq.read_table(out).equals(table)
    report = ia.recover(path, out, schema_from=TABLE.schema)
    assert report.notes == ("what is left of its footer has other columns than schema_from",)
    assert report.rows == 3


def test_a_schema_of_other_columns_recovers_nothing(tmp_path):
    path, out = tmp_path / "t.parquet", tmp_path / "out.parquet"
    ia.write_table(TABLE, path, row_group_size=10)
    os.truncate(path, 900)
    for schema in (
        pa.schema([("s", pa.string()), ("n", pa.int64())]),
        pa.schema([("n", pa.int32()), ("s", pa.string())]),
        pa.schema([*TABLE.schema, ("more", pa.int64())]),
    ):
        with pytest.raises(ia.FormatError, match="not one whole row group"):
            ia.recover(path, out, schema_from=schema)
    assert os.listdir(tmp_path) == ["t.parquet"]


def test_invalid_paths_are_refused(torn, tmp_path):
    with pytest.raises(ia.PathError, match="not to be changed"):
        ia.recover(torn, torn)
    link = tmp_path / "link.parquet"
    link.symlink_to(torn)
    with pytest.raises(ia.PathError, match="not to be changed"):
        ia.recover(torn, link)
    with pytest.raises(ia.PathError, match="no such file"):
        ia.recover(tmp_path / "none.parquet", tmp_path / "out.parquet")
    with pytest.raises(ia.PathError, match="no such folder"):
        ia.recover(torn, tmp_path / "none" / "out.parquet")
    (tmp_path / "text").write_text("no Parquet at all")
    with pytest.raises(ia.FormatError, match="does not begin with PAR1"):
        ia.recover(tmp_path / "text", tmp_path / "out.parquet")


def test_the_error_about_a_missing_file_names_its_unfinished_writes(tmp_path):
    path = tmp_path / "t.parquet"

    def stop():
        with ia.ParquetWriter(
            path, TABLE.schema, checkpoint_row_groups=1, keep_unfinished=True
        ) as writer:
            writer.write_table(TABLE, 10)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError) as raised:
        stop()
    (left,) = os.listdir(tmp_path)
    assert left in raised.value.__notes__[0]
    with pytest.raises(ia.PathError, match="unfinished writes of it") as missing:
        ia.recover(path, tmp_path / "out.parquet")
    assert left in str(missing.value)
    assert ia.recover(tmp_path / left, path).rows == 40


@pytest.mark.parametrize("claim", [1 << 31, 0xFFFFFFFF, 1000])
def test_invalid_lengths_cost_neither_time_nor_memory(tmp_path, claim):
    """A trailer that claims any length, and a page header that claims 2 GiB."""
    data = b"PAR1" + b"\x15\x00\x15\xfe\xff\xff\xff\x0f\x15\xfe\xff\xff\xff\x0f" + bytes(64)
    path = tmp_path / "t.parquet"
    path.write_bytes(data + struct.pack("<I", claim) + b"PAR1")
    with pytest.raises(ia.FormatError):
        ia.recover(path, tmp_path / "out.parquet", schema_from=TABLE.schema)


CODECS = ("none", "snappy", "zstd", "gzip")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("other", CODECS)
def test_the_file_that_provides_the_schema_may_have_another_codec(codec, other, tmp_path):
    path, like, out = (tmp_path / f"{name}.parquet" for name in ("t", "like", "out"))
    table = pa.table({"n": range(20_000), "s": [f"text {n}" for n in range(20_000)]})
    pq.write_table(table, path, row_group_size=5_000, compression=codec)
    pq.write_table(table.slice(0, 9), like, compression=other)
    third = pq.read_metadata(path).row_group(3).column(0)
    os.truncate(path, third.data_page_offset + 9)
    report = ia.recover(path, out, schema_from=like)
    assert pq.read_table(out).equals(table.slice(0, 15_000))
    assert ("another codec" in str(report)) == (codec != other)


def with_codec_22(data, raw):
    """Sets the codec of the last of these chunks to an unknown one, as a footer describes it."""
    changed = encode(amended(decode(ColumnMetaData, raw)[0], codec=22))
    assert len(raw) == len(changed)
    before, after = data.rsplit(raw, 1)
    return before + changed + after


def test_a_footer_that_contradicts_its_checksum_is_not_trusted(tmp_path):
    """The footer from before indexes were embedded is taken; without it a row group is lost."""
    path, out = tmp_path / "t.parquet", tmp_path / "out.parquet"
    ia.write_table(TABLE, path, row_group_size=10, indexes=[ia.Lookup("n")])
    footer = read_footer(FileSource(LocalFileSystem(), str(path)))
    raw = encode(footer.metadata.row_groups[2].columns[1].meta_data)
    damaged = with_codec_22(path.read_bytes(), raw)
    path.write_bytes(damaged)
    assert ia.recover(path, out).rows == 40
    assert pq.read_table(out).equals(TABLE)
    path.write_bytes(with_codec_22(damaged, raw))
    report = ia.recover(path, out)
    assert pq.read_table(out).equals(pa.concat_tables([TABLE.slice(0, 20), TABLE.slice(30)]))
    assert not report.is_whole
    assert "compression codec 22 is not known" in str(report)
