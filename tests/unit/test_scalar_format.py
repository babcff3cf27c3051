"""Values beyond Python's own types: shown and compared, with and without pandas."""

import datetime as dt
import subprocess
import sys
import textwrap

import pyarrow as pa
import pytest

from intarsia.expr.scalar_format import readable, readable_values

NO_PANDAS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
"""


def run(code, *arguments):
    """Returns the output of ``code`` in a Python without pandas."""
    command = [sys.executable, "-c", NO_PANDAS + textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def not_utf8(kind):
    return pa.Array.from_buffers(kind, 1, pa.array([b"\xff"]).cast(pa.binary()).buffers())


VALUES = [
    (pa.array([-1], pa.timestamp("ns")), "1969-12-31 23:59:59.999999999"),
    (pa.array([5], pa.timestamp("ns", "Europe/Berlin")), "1970-01-01 01:00:00.000000005+01:00"),
    (pa.array([5000], pa.timestamp("ns")), dt.datetime(1970, 1, 1, 0, 0, 0, 5)),
    (pa.array([5], pa.time64("ns")), "00:00:00.000000005"),
    (pa.array([5000], pa.time64("ns")), dt.time(0, 0, 0, 5)),
    (pa.array([5], pa.duration("ns")), 5),
    (pa.array([2**62], pa.timestamp("s")), 2**62),
    (pa.array([2**30], pa.date32()), 2**30),
    (pa.array([[5, None]], pa.list_(pa.time64("ns"))), ["00:00:00.000000005", None]),
    (pa.array([{"a": 2**30}], pa.struct([("a", pa.date32())])), {"a": 2**30}),
    (pa.array([[("k", 2**30)]], pa.map_(pa.string(), pa.date32())), [("k", 2**30)]),
    (pa.array([2**30], pa.date32()).dictionary_encode(), 2**30),
    (not_utf8(pa.string()), "0xff"),
    (pa.array([None], pa.time64("ns")), None),
    (pa.array([7], pa.timestamp("ns", "Not/AZone")), 7),
    (pa.array([-(2**63)], pa.int64()).cast(pa.timestamp("ns")), -(2**63)),
    (pa.array([-(2**63)], pa.int64()).cast(pa.duration("ns")), -(2**63)),
    (pa.array([86_400_000], pa.int32()).cast(pa.time32("ms")), 86_400_000),
    (pa.array([-1], pa.int64()).cast(pa.time64("us")), -1),
    (
        pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
        [("a", 1), ("a", 2)],
    ),
]
"""Arrays of one value, and the text expected."""


@pytest.fixture(scope="module")
def displayed():
    """Returns the text shown for each value."""
    code = """
        import pyarrow as pa
        from intarsia.expr.scalar_format import readable
        with pa.ipc.open_stream(bytes.fromhex(sys.argv[1])) as stream:
            for column in stream.read_all().columns:
                print(repr(readable(column[0])))
    """
    sink = pa.BufferOutputStream()
    table = pa.table([values for values, _ in VALUES], [str(i) for i in range(len(VALUES))])
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return run(code, sink.getvalue().to_pybytes().hex())


@pytest.mark.parametrize("number", range(len(VALUES)), ids=lambda n: str(VALUES[n][0].type))
def test_a_value_is_readable(number, displayed):
    assert displayed[number] == repr(VALUES[number][1])


def test_what_pandas_holds_is_its_own():
    moments = pa.array([5, None], pa.timestamp("ns"))
    assert str(readable_values(moments)[0]) == "1970-01-01 00:00:00.000000005"
    assert readable(moments[1]) is None


def test_moments_are_asked_for_without_pandas(tmp_path):
    code = """
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq
        import intarsia as ia

        path = sys.argv[1]
        table = pa.table({
            "ts": pa.array(range(100), pa.timestamp("ns")),
            "zoned": pa.array(range(100), pa.timestamp("ns", "UTC")),
            "time": pa.array(range(100), pa.time64("ns")),
            "span": pa.array(range(100), pa.duration("ns")),
            "far": pa.array(range(2**30, 2**30 + 100), pa.date32()),
            "later": pa.array(range(2**60, 2**60 + 100), pa.timestamp("ms")),
        })
        pq.write_table(table, path, row_group_size=25, write_page_index=True)
        for indexes in ([], ["lookup"], ["distinct"]):
            if indexes:
                names = set(table.column_names) - ({"span"} if indexes == ["lookup"] else set())
                ia.add_indexes(path, [f"{name}:{indexes[0]}" for name in sorted(names)])
            data = ia.dataset(path)
            for name, values in zip(table.column_names, table.columns):
                field = pc.field(name)
                among = field.isin(values.slice(30, 5).combine_chunks())
                for wanted in (field == values[30], field > values[30], field != values[30], among):
                    assert data.to_table(filter=wanted).equals(table.filter(wanted)), str(wanted)
                    assert data.count_rows(filter=wanted) == table.filter(wanted).num_rows
                    assert "rows" in str(data.explain(filter=wanted, analyze=True))
        assert not ia.verify(path)
        assert ia.advise(path, [pc.field("ts") == table["ts"][3]])
    """
    assert run(code, tmp_path / "a.parquet") == []


def test_the_command_line_prints_moments_without_pandas(tmp_path):
    code = """
        import pyarrow as pa
        import pyarrow.parquet as pq
        from intarsia.cli import main

        table = pa.table({
            "ts": pa.array([1, 5], pa.timestamp("ns")),
            "ends": pa.array([[7], None], pa.list_(pa.timestamp("ns"))),
        })
        pq.write_table(table, sys.argv[1])
        sys.argv[1:] = ["scan", *sys.argv[1:]]
        main()
    """
    given = tmp_path / "a.parquet", "--where", "ts = '1970-01-01T00:00:00.000000005'"
    assert run(code, *given)[1].split("  ")[1:] == ["1970-01-01 00:00:00.000000005", "NULL"]
    assert run(code, given[0], "--format", "json", "--limit", 1) == [
        '{"ts": "1970-01-01 00:00:00.000000001", "ends": ["1970-01-01 00:00:00.000000007"]}'
    ]
