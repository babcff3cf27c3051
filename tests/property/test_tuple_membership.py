"""A search for tuples passes the rows that the chain of equalities passes."""

import datetime
import functools
import operator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.expr import tuple_membership
from intarsia.expr.tree import calls_in, read_expression, to_expression
from intarsia.expr.tuple_membership import with_tuple_membership

DAYS = [None, *[datetime.date(2024, 1, day) for day in range(1, 6)]]
COLUMNS = {
    "i8": pa.array([None, 0, 1, -1, 127, 1], pa.int8()),
    "i64": pa.array([None, 0, 1, -1, 2**40, 1], pa.int64()),
    "u64": pa.array([None, 0, 1, 2**64 - 1, 7, 1], pa.uint64()),
    "f": pa.array([None, 0.0, -0.0, float("nan"), 7, 1], pa.float64()),
    "s": pa.array([None, "", "a", "b", "é", "a"]),
    "big": pa.array([None, "", "a", "b", "é", "a"], pa.large_string()),
    "code": pa.array([None, "", "a", "b", "é", "a"]).dictionary_encode(),
    "d": pa.array(DAYS),
    "ts": pa.array(DAYS, pa.date32()).cast(pa.timestamp("us")),
    "yes": pa.array([None, True, False, True, None, False]),
}
NUMBERS = [0, 1, -1, 7, 127, 300, 2**40, None]
STRINGS = ["", "a", "b", "é", "x"]
CONSTANTS = {
    "i8": NUMBERS,
    "i64": NUMBERS,
    "u64": [0, 1, 7, 2**63 - 1],
    "f": [0.0, -0.0, 7.0, 1.0],
    "s": STRINGS,
    "big": STRINGS,
    "code": STRINGS,
    "d": DAYS,
    "ts": [None, *[datetime.datetime(2024, 1, day) for day in range(1, 5)]],
    "yes": [True, False],
}
PAIRS = [(one, other) for one in range(6) for other in range(6)]
"""Every value of each column meets every value of the next column."""
TABLE = pa.table(
    {
        name: values.take(pa.array([pair[number % 2] for pair in PAIRS]))
        for number, (name, values) in enumerate(COLUMNS.items())
    }
).append_column("row", pa.array(range(len(PAIRS))))


@pytest.fixture(autouse=True)
def _few_terms(monkeypatch):
    monkeypatch.setattr(tuple_membership, "MIN_TERMS", 3)


def equality(name, value):
    kind = None if name == "code" else TABLE.schema.field(name).type
    if name in ("i8", "i64"):
        kind = pa.int64()
    return pc.field(name) == pa.scalar(value, kind)


@st.composite
def chains(draw):
    names = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=3, unique=True))
    values = st.tuples(*[st.sampled_from(CONSTANTS[name]) for name in names])
    tuples = draw(st.lists(values, min_size=3, max_size=12))
    terms = [
        functools.reduce(operator.and_, map(equality, names, constants)) for constants in tuples
    ]
    others = [pc.field("i64") > 1, pc.field("s").is_null(), equality("s", "b"), pc.field("yes")]
    terms += draw(st.lists(st.sampled_from(others), max_size=2))
    chain = functools.reduce(operator.or_, draw(st.permutations(terms)))
    return draw(st.sampled_from([chain, chain & (pc.field("i8") < 5), ~chain]))


@settings(max_examples=400, deadline=None)
@given(chains())
def test_the_search_passes_the_same_rows(chain):
    search = to_expression(with_tuple_membership(read_expression(chain), TABLE.schema))
    assert TABLE.filter(search)["row"].equals(TABLE.filter(chain)["row"])


@pytest.mark.parametrize("names", [["i64"], ["s", "i8"], ["d", "ts", "big"]])
def test_long_chains_become_a_search_of_constant_size(names, monkeypatch):
    def nodes_of(count):
        terms = [
            functools.reduce(
                operator.and_,
                [
                    equality(name, CONSTANTS[name][1 + (n // 3**i) % 3])
                    for i, name in enumerate(names)
                ],
            )
            for n in range(count)
        ]
        while len(terms) > 1:
            terms = [
                functools.reduce(operator.or_, terms[i : i + 30]) for i in range(0, len(terms), 30)
            ]
        return len(list(calls_in(with_tuple_membership(read_expression(terms[0]), TABLE.schema))))

    assert nodes_of(81) == nodes_of(2_000) < 60


@pytest.mark.parametrize("as_text", [True, False])
def test_thousands_of_terms_give_the_rows_of_a_loop(tmp_path, as_text, monkeypatch):
    monkeypatch.setattr(tuple_membership, "MIN_TERMS", 64)
    rows, terms = 20_000, 3_000
    table = pa.table({"a": range(rows), "b": [None if n % 11 == 0 else n % 7 for n in range(rows)]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=5_000, write_page_index=True)
    data = ia.dataset(tmp_path / "t.parquet")
    pairs = [(5 * n, n % 7) for n in range(terms)]
    if as_text:
        condition = " OR ".join(f"(a = {a} AND b = {b})" for a, b in pairs)
    else:
        alternatives = [(pc.field("a") == a) & (pc.field("b") == b) for a, b in pairs]
        condition = functools.reduce(operator.or_, alternatives)
    known = set(pairs)
    expected = [row for row in table.to_pylist() if (row["a"], row["b"]) in known]
    assert data.to_table(filter=condition).to_pylist() == expected
    assert data.count_rows(filter=condition) == len(expected)
