import contextlib
import datetime
import decimal
import math
import operator

import duckdb
import pyarrow as pa
import pytest

from intarsia.errors import PredicateError
from intarsia.expr.evaluate import evaluate
from intarsia.expr.filterable_types import filterable_schema
from intarsia.sql.where_clause import parse_where

DAYS = [datetime.datetime(2020, 1, day, 12) for day in range(1, 6)]
TABLE = pa.table(
    {
        "row": range(6),
        "i": pa.array([1, 2, 3, 7, -7, None], pa.int64()),
        "i8": pa.array([1, 2, 100, -100, 0, None], pa.int8()),
        "u": pa.array([1, 2, 2**63, 0, 5, None], pa.uint64()),
        "f": pa.array([0.1, 1.5, 2.5, -0.0, 7, None], pa.float32()),
        "d": pa.array([0.1, 1.5, 2.5, -0.0, 7, None], pa.float64()),
        "dec": pa.array(
            [decimal.Decimal(v) for v in ("1.10", "2.50", "-3.00", "0.00", "9.99")] + [None],
            pa.decimal128(9, 2),
        ),
        "wide": pa.array([decimal.Decimal(n) for n in range(5)] + [None], pa.decimal128(38, 2)),
        "big": pa.array([1.5, math.inf, -math.inf, 3.4e38, 0.1, None], pa.float32()),
        "s": ["a_b", "axb", "a\\_b", "A\nB", "10%", None],
        "ls": pa.array(["x", None, "y", "z", "xy", ""], pa.large_string()),
        "di": pa.array(["x", None, "y", "z", "xy", ""]).dictionary_encode(),
        "bin": pa.array([b"x", None, b"y", b"z", b"xy", b""]),
        "b": [True, False, None, True, False, None],
        "date": [day.date() for day in DAYS] + [None],
        "ts": pa.array([*DAYS, None], pa.timestamp("us")),
        "tz": pa.array([*DAYS, None], pa.timestamp("us", "UTC")),
        "time": pa.array([*(datetime.time(n, 30) for n in range(5)), None], pa.time64("us")),
        "l": pa.array([[1, 2], [], None, [None, 2], [3], [2]], pa.list_(pa.int64())),
        "lt": pa.array([["a"], ["é", None], None, [], ["b", "a"], ["c"]]),
        "m": pa.array([[("a", 1)], [], None, [("b", 2)], [], []], pa.map_("string", "int64")),
        "st": pa.array([{"a": n, "B c": -n} for n in range(6)]),
        "Odd Name": range(6),
    }
)


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        connection.register("t", TABLE)
        yield connection


UNDERSTOOD = """
st['a'] = 3
st['B c'] + 1 = -2 OR NOT st['A'] < 4
m['a'] = 1
m['b'] <> 1 OR m['zz'] IS NOT NULL
m['a'] IS NULL
m['b'] IN (1, 2, NULL)
bin = 'x'::BLOB
bin > '\\x78'::BLOB
starts_with(s, 'x')
prefix(s, 'a') OR s ^@ 'é'
NOT ends_with(s, 'b')
suffix(s, 'b')
contains(s, 'a')
NOT contains(s, '')
contains(lower(s), 'a')
lower(di) = 'x'
upper(di) = upper(ls)
lower(di) LIKE 'x%'
coalesce(upper(di), 'Z') = 'Z'
regexp_matches(s, 'a.*b')
regexp_matches(s, '^A', 'i')
NOT regexp_matches(s, '[a-x]$')
regexp_matches(s, '')
s ~ 'a.*b'
s !~ '^a'
i IS DISTINCT FROM 2
NOT (2 IS NOT DISTINCT FROM i)
i IS DISTINCT FROM NULL
s IS NOT DISTINCT FROM 'axb'
isnan(d)
NOT isnan(f)
coalesce(i, 0) > 1
coalesce(i, i, 3) = 3
coalesce(tz, '2020-01-01') = '2020-01-01'
coalesce(d, 0) <= 0
coalesce(dec, 1.1) = 1.1
coalesce(date, DATE '2020-01-01') = '2020-01-01'
coalesce(ts, TIMESTAMP '2020-01-01') = TIMESTAMP '2020-01-01'
ifnull(s, 'none') = 'none'
coalesce(ts, '2020-01-01') < '2020-01-02'
coalesce(i, NULL) = 2
coalesce(lower(s), 'x') <> 'axb'
-i > 1
-d < -1.5
coalesce(-i, 7) = 7
i = 2
i == 2
2 = i
i <> 2
i != 2
i < 2
2 < i
i <= 2
i > 2
i >= 2
i = -7
I = 2
"i" = 2
"Odd Name" = 3
"odd name" = 3
i = NULL
i = 1.5
i < 1.5
i = 1e0
i = '2'
i8 = 300
i8 < 300
u = 5
u > 5
u IN (5, 2)
d = 1.5
d = '1.5'
d > 2
d = -0.0
f = 1.5
f = 0.1
f > 0.1
f <= 0.1
f IN (0.1, 7)
d IN (0.1, 7)
dec = 1.1
dec > 2
dec < 1.105
dec IN (1.1, -3)
s = 'axb'
s > 'a'
s <> 'axb'
bin = 'x'
ls = 'x'
ls IN ('x', 'y')
di = 'x'
di IN ('x', 'y')
b
NOT b
b = true
b IS TRUE
b IS NOT TRUE
b IS FALSE
b IS NOT FALSE
b IS NULL
b IS NOT NULL
(i > 2) IS TRUE
(i > 2) IS NOT FALSE
i IS NULL
i IS NOT NULL
i ISNULL
i NOTNULL
i BETWEEN 1 AND 3
i NOT BETWEEN 1 AND 3
NOT (i BETWEEN 1 AND 3)
i IN (1, 2)
i IN (2)
i NOT IN (1, 2)
i IN (1, NULL)
i NOT IN (1, NULL)
NOT (i IN (1, NULL))
i IN (NULL)
i IN (1.0, 2.5)
i8 IN (300, 1)
i < d
date < ts
i = 1 OR i = 2 AND i = 3
(i = 1 OR i = 2) AND i = 2
NOT i = 1
NOT (i = 1 OR b)
NOT (i > 1 AND b)
i = 1 OR b IS NULL
s LIKE 'a_b'
s LIKE 'a%'
s LIKE '%b'
s LIKE 'axb'
s LIKE ''
s LIKE '10%'
s LIKE '10\\%'
s LIKE 'a\\_b'
s LIKE 'A%B'
s NOT LIKE 'a%'
NOT (s LIKE 'a%')
NOT (s NOT LIKE 'a%')
s ILIKE 'A%'
s NOT ILIKE 'a%'
s LIKE 'a!_b' ESCAPE '!'
s NOT LIKE 'a!%' ESCAPE '!'
s LIKE '10!%' ESCAPE '!'
s LIKE '%\\%'
s LIKE '%!!' ESCAPE '!'
ls LIKE 'x%'
di LIKE 'x%'
lower(s) LIKE 'a%b'
lower(s) = 'axb'
upper(s) IN ('AXB')
upper(s) = s
length(s) = 3
length(s) IN (3, NULL)
length(s) IN (NULL)
length(di) = 1
length(l) = 2
len(l) BETWEEN 1 AND 2
length(lt) <> 0
NOT (length(l) > 0)
abs(i) = 7
abs(d) > 2
i + 1 > 3
i * 2 - 1 = 5
i + (2 - 1) > 3
i = 1 + 1
i = -(7)
i IN (7 // 2, 10 % 4)
d > 7 / 2 - 1
dec = 1.05 + 0.05
i = '3'::INT::DOUBLE
lower(s) = lower('AXB')
s LIKE '_' || upper('x') || '%' OR s LIKE 'a' || '%'
date = DATE '2020-01-01' + 1
date BETWEEN make_date(2020, 1, 2) AND DATE '2020-01-01' + INTERVAL 2 DAYS
date IN ('2020-01-02 12:00'::TIMESTAMP::DATE, current_date)
date > current_date - 7
ts > TIMESTAMP '2020-01-02' + INTERVAL '1 day 2 hours'
ts > TIMESTAMPTZ '2020-01-02 14:00:00+02:00'
ts > now() - INTERVAL 1 MONTH
ts < now()
date < now()
tz < localtimestamp
tz > date_trunc('day', TIMESTAMPTZ '2020-01-03 14:00:00+02:00')
tz < to_timestamp(1578000000)
(i + 1) * 2 = 6
date = '2020-01-02'
date > DATE '2020-01-02'
date >= TIMESTAMP '2020-01-02 06:00:00'
date BETWEEN '2020-01-02' AND '2020-01-03'
date IN ('2020-01-02', '2020-01-05')
ts > '2020-01-02'
ts = '2020-01-02 12:00:00'
ts > DATE '2020-01-02'
ts > TIMESTAMP '2020-01-02 12:00:00'
time > '01:30:00'
time = '01:30:00.000000'
time >= TIME '02:30:00'
time IN ('01:30:00', '03:30:00')
tz > '2020-01-02 12:00:00'
tz > '2020-01-02 12:00:00+02:00'
tz > TIMESTAMPTZ '2020-01-02 12:00:00+00:00'
floor(d) = 1
ceil(d) = 2
ceiling(d * 2) > 2
CAST(i AS DOUBLE) = 2
CAST('2' AS BIGINT) = i
i::varchar = '2'
CAST(ts AS DATE) = '2020-01-02'
date(ts) = '2020-01-02'
date(tz) < date('2020-01-03') OR DATE(ts) >= date(now())
st.a = 3
st."B c" = -3
st.a IN (1, 2)
list_contains(l, 2)
LIST_HAS(l, 2)
array_contains(l, 2)
array_has(l, 2)
NOT list_contains(l, 2)
list_contains(l, 2) IS NOT TRUE
list_contains(l, '2')
list_contains(l, NULL)
contains(l, 2)
contains(m, 'a')
NOT list_contains(l, NULL)
NOT map_contains(m, NULL)
NOT (NULL IN l)
2 IN l
'a' IN m
2 = ANY(l)
2 = ANY(l) OR i = 7
list_has_any(l, [1, 3, NULL])
list_has_any(l, [])
array_has_any(lt, ['a', 'é'])
l && [3]
list_has_all(l, [1, 2])
l @> [2]
[2] <@ l
array_has_all(lt, ['b', 'a'])
map_contains(m, 'a')
NOT map_contains(m, 'b')
big > 1e39
big < -1e39
big = 1e300
big IN (1e300)
big IN (1e300, 1.5)
NOT big IN (1e300)
big BETWEEN 0.1 AND 1e300
abs(dec) > 2
abs(dec) BETWEEN 1 AND 2.5
abs(dec - 1.1) IN (0, 1.4)
dec + 1 > 2.1
1 + dec * 2 = 3.2
dec + 0.5 = 3.00
dec + NULL = 1
dec - '1.1' = 0
dec - dec = 0
dec * i8 < 0
i8 + dec = i8 + 1.1
i - wide = 0
wide + 1 > 2.5
wide * 10 >= dec
-wide - 1 < -3
dec * d > 3
1 = 1
TRUE
FALSE
i = 1 OR FALSE
""".strip().splitlines()


@pytest.mark.parametrize("condition", UNDERSTOOD)
def test_a_condition_means_the_same_as_in_duckdb(connection, condition):
    result = connection.execute(f"SELECT row FROM t WHERE {condition} ORDER BY row")
    expected = [row for (row,) in result.fetchall()]
    assert evaluate(parse_where(condition, TABLE.schema), TABLE)["row"].to_pylist() == expected


def test_nan_compares_as_in_pyarrow():
    table = pa.table({"x": [1.0, float("nan")]})
    assert table.filter(parse_where("x > 2", table.schema)).num_rows == 0
    assert table.filter(parse_where("x <> 1", table.schema)).num_rows == 1


REFUSED = """
i =
= 1
(i = 1
i = 1)
i = 1; DROP TABLE t
s LIKE 'a!' ESCAPE '!'
s LIKE 'a' ESCAPE '!!'
SELECT 1
nosuch = 1
st.nosuch = 1
i.a = 1
x.y.z = 1
i
i AND b
5
'text'
s = 5
s IN ('a_b', 5)
b = 1
ts = 5
date = 5
i = 'two'
date = '2020-13-01'
ts = 'noon'
ts > INTERVAL 1 DAY
s > CAST(now() AS VARCHAR)
ts > TRY_CAST(now() AS DATE)
ts > date_trunc('century', now())
i LIKE '1%'
s LIKE ls
s LIKE 5
s SIMILAR TO 'a'
i BETWEEN SYMMETRIC 3 AND 1
i % 2 = 1
-(i) LIKE 3
coalesce(ts, '2020-01-01 00:00:00.0000001') = '2020-01-01'
coalesce(i, i8) = 3
coalesce(i, 0.5) = 3
coalesce(dec, 1.105) = 3
s || 'x' = 'axbx'
i IS DISTINCT FROM s
i IS 5
i IN (SELECT 1)
i IN (d, 1)
i = (SELECT 1)
i = ANY([1, 2])
EXISTS (SELECT 1)
CASE WHEN i = 1 THEN true END
count(i) = 1
sum(i) OVER () = 1
CAST(s AS BLOB) = 'x'
CAST(s AS STRUCT(a INT)) = 'x'
TRY_CAST(s AS INT) = 1
floor(i) = 1
floor(dec) = 1
floor(s) = 1
floor(d, 1) = 1
i / 2 = 1
i = $1
i = ?
*
i > 99999999999999999999
NOT (2 = ANY(l))
(2 = ANY(l)) IS TRUE
2 = ALL(l)
i = ANY(l)
list_contains(l, i)
list_contains(l, 'x')
list_contains(i, 2)
list_contains(m, 'a')
list_contains(lt, 2)
list_has_any(l, 2)
list_has_any(l, NULL)
list_has_any(l, [i])
map_contains(l, 2)
""".strip().splitlines()


@pytest.mark.parametrize(
    "condition",
    [
        "",
        " ",
        *REFUSED,
        "@ > NOT t",
        "regexp_matches(s, 'a', 'x')",
        "regexp_matches(s, '(')",
        "contains(s, s)",
        "contains(i, 'a')",
        "s = '\ud800'",
    ],
)
def test_a_condition_that_is_not_understood_is_refused(condition):
    with pytest.raises(PredicateError):
        parse_where(condition, TABLE.schema)


def test_an_error_about_an_unknown_field_lists_the_known_ones():
    with pytest.raises(PredicateError, match=r"'nosuch' is not there; there are: .*\bi8\b"):
        parse_where("nosuch = 1", TABLE.schema)


def test_an_error_names_a_field_with_a_similar_name():
    for name in ("od_name", "ODD NAMES", "Od Name"):
        with pytest.raises(PredicateError, match=r"is not there, 'Odd Name' is"):
            parse_where(f'"{name}" = 1', TABLE.schema)


def test_an_error_names_a_type_that_has_no_length():
    for name in ("m", "i", "bin"):
        with pytest.raises(PredicateError, match=f"length needs text, and {name} is"):
            parse_where(f"length({name}) = 1", TABLE.schema)


def test_a_name_that_two_fields_match_in_another_case_is_refused():
    schema = pa.schema([("Ab", pa.int64()), ("aB", pa.int64())])
    with pytest.raises(PredicateError, match="ambiguous"):
        parse_where("ab = 1", schema)
    parse_where('"Ab" = 1', schema)


def test_a_name_that_is_twice_in_the_schema_is_refused():
    schema = pa.schema([("a", pa.int64()), ("a", pa.int64())])
    with pytest.raises(PredicateError, match="ambiguous"):
        parse_where("a = 1", schema)


@pytest.mark.parametrize(
    "condition",
    [
        " OR ".join(f"i = {n}" for n in range(2000)),
        "(" * 2000 + "i = 1" + ")" * 2000,
        "NOT " * 2000 + "b",
        "i" + " + 1" * 2000 + " = 1",
        "dec" + " + 1" * 25 + " = 1",
    ],
    ids=["or", "parentheses", "not", "sum", "decimals"],
)
def test_a_long_condition_is_understood_or_refused(condition):
    with contextlib.suppress(PredicateError):
        parse_where(condition, TABLE.schema)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("second", ["5", "5.000000", "5.001", "4.5", "4.5005", "4.000000500"])
def test_timestamps_finer_than_the_column_are_compared_exactly(unit, zone, second):
    ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    moments = pa.array([4 * ticks, 4 * ticks + 1, 5 * ticks, None], pa.timestamp(unit, zone))
    table = pa.table({"t": moments})
    actual = decimal.Decimal(second)
    sought = f"1970-01-01 00:00:0{second}"
    exact = [
        None if n is None else decimal.Decimal(n) / ticks for n in moments.cast("int64").to_pylist()
    ]
    for sign, compare in {"<": operator.lt, "=": operator.eq, ">=": operator.ge}.items():
        matching = evaluate(parse_where(f"t {sign} '{sought}'", table.schema), table)[
            "t"
        ].to_pylist()
        expected = [one is not None and compare(one, actual) for one in exact]
        assert matching == table.filter(expected)["t"].to_pylist()
    condition = f"t IN ('{sought}', '1970-01-01 00:00:05')"
    matching = evaluate(parse_where(condition, table.schema), table)["t"].to_pylist()
    assert matching == table.filter([one in (actual, 5) for one in exact])["t"].to_pylist()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("current_date = DATE '2000-01-01'", "current_date"),
        ("at > current_timestamp", "current_timestamp"),
        ("date_trunc(day, at) = TIMESTAMP '2000-01-01'", "day"),
        ("3 = ANY(array[1])", "array"),
    ],
)
def test_names_of_functions_that_are_columns_as_well_need_quotes(text, name):
    moments = dict.fromkeys(["at", "current_timestamp"], pa.timestamp("us"))
    names = {**moments, "current_date": pa.date32(), "day": pa.string()}
    schema = pa.schema({**names, "array": pa.list_(pa.int64()), "interval": pa.int64()})
    with pytest.raises(PredicateError, match=f'a column is called {name}; write "{name}" for it'):
        parse_where(text, schema)


def test_columns_with_the_names_of_functions_are_read_in_quotes():
    days = pa.array([datetime.date(2000, 1, 1), datetime.date(2000, 1, 2)])
    table = pa.table({"current_date": days, "day": ["x", "y"], "interval": [1, 2]})
    actual = parse_where("\"current_date\" = DATE '2000-01-01'", table.schema)
    assert table.filter(actual)["day"].to_pylist() == ["x"]
    for text in (
        "\"current_date\" < now() - INTERVAL '1' day",
        '"current_date" < current_date()',
        "date_trunc('day', \"current_date\") < TIMESTAMP '2001-01-01'",
        "day IN ('x', 'y')",
        "date_trunc('day', \"current_date\") > TIMESTAMP '1999-01-01' - INTERVAL 1 DAY",
        'date_trunc(\'day\', "current_date") < now() AND extract(day FROM "current_date") < 3',
    ):
        assert table.filter(parse_where(text, table.schema)).num_rows == 2, text


CONSTANTS = ["1000.0", "1e3", "1000.5", "0.5", "2e7", "-0.5", "-1.5", "-5", "-5.0", "-5::DOUBLE"]
CONSTANTS += ["1000.00000000000000001", "998.99999999999999999", "-0.00000000000000001"]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.uint64()])
@pytest.mark.parametrize("constant", CONSTANTS)
def test_integers_beyond_exact_doubles_are_compared_with_fractions(kind, constant):
    most = 2 ** (kind.bit_width - (1 if pa.types.is_signed_integer(kind) else 0)) - 1
    table = pa.table({"i": pa.array([0, 1, 999, 1000, 1001, 16_777_217, most, None], kind)})
    checks = [f"i {op} {constant}" for op in ("=", "<>", "<", "<=", ">", ">=")]
    checks += [f"{constant} {op} i" for op in ("=", "<>", "<", "<=", ">", ">=")]
    greatest = "20000000" if len(constant) > 15 else "2e7"  # beside which all are doubles
    checks += [f"i BETWEEN {constant} AND {greatest}", f"i IN ({constant}, 1)"]
    checks += [f"NOT (i = {constant})", f"i IS DISTINCT FROM {constant}"]
    for condition in checks:
        expected = duckdb.sql(f'SELECT i FROM "table" WHERE {condition}').to_arrow_table()["i"]
        actual = table.filter(parse_where(condition, table.schema))["i"]
        assert actual.to_pylist() == expected.to_pylist(), condition


@pytest.mark.parametrize(
    "condition",
    [
        *("i IN (9007199254740992.5)", "i IN (9007199254740989.1, 9007199254740991.5)"),
        *("i = 9007199254740992.5", "i IN (9007199254740993, 9007199254740993.5)"),
        *("i <= 9007199254740992.5", "i > 9007199254740990.000000001", "i = 9007199254740990.0"),
        *("i < 9223372036854775806.5", "NOT (i = 9223372036854775806.5)"),
    ],
)
def test_fractions_near_the_end_of_exact_doubles(condition):
    near = [2**53 + n for n in range(-3, 4)]
    table = pa.table({"i": pa.array([*near, 2**63 - 1, 1, None], pa.int64())})
    expected = duckdb.sql(f'SELECT i FROM "table" WHERE {condition}').to_arrow_table()["i"]
    assert (
        table.filter(parse_where(condition, table.schema))["i"].to_pylist() == expected.to_pylist()
    )


NUMBERS = pa.table(
    {
        "i": pa.array([3, 1, 2, None, 5, 7], pa.int32()),
        "l": pa.array([3, 1, 2, None, 2**40, -7]),
        "d": pa.array([0.3, 0.1, 0.2, None, 5, 7]),
        "f": pa.array([0.3, 0.1, -1.5, None, 0.5, 16_777_216], pa.float32()),
        "p": pa.array([decimal.Decimal("0.3"), *map(decimal.Decimal, (1, 2, 3, 4, 5))]),
        "s": ["a", "ab", "abc", None, "", "x"],
    }
)
FRACTIONS = [
    *(f"f {op} {number}" for op in ("=", "<", ">=", "<>") for number in ("0.1", "1e-1", "3e-1")),
    "f IN (1e-1, 0.3, 5e-1)",
    "f NOT IN (1e-1, 0.3)",
    "f BETWEEN 1e-1 AND 0.5",
    "f BETWEEN 5e-2 AND 0.3",
    "f BETWEEN 0.05 AND 0.3",
    "f BETWEEN i AND 5e-1",
    "f = 16777217",
    "f = 16777217.0",
    "d = 9007199254740993",
    "f < 123456789012345678901234567890",
    "f * 1 = 0.1",
    "f * 1 = 1e-1",
    "f * 2 = 0.2",
    "f * 1.0 >= 0.1",
    "f + f = 0.6",
    "f + i = 3.3",
    "0.1 + f = 0.2",
    "f + 1e-1 = 0.2",
    "i * 0.1 = 0.3",
    "0.1 * i > 0.3",
    "l * 0.1 <= 0.3",
    "i * 0.1 * 0.1 = 0.03",
    "(i + 1) * 0.1 = 0.3",
    "i - 0.7 = 0.3",
    "i - -0.7 = 3.7",
    "i * 1e-1 = 0.3",
    "i + 1 > 3.5",
    "coalesce(i + 1, 0) = 3",
    "length(s) * 0.1 > 0.2",
    "abs(i) * 0.1 = 0.3",
    "d * 3 = 0.9",
    "d + 0.1 = 0.2",
    "p * 0.1 = 0.03",
    "p + 1 = 1.3",
    "p = f",
    "p < d",
    "f - p IN (0, 2e-1)",
    "i * 0.1 = d",
    "i * 0.1 = f",
    "l + 1e0 > 4",
    "l * 1e-3 < 1",
    "l > f",
    "l = d + 2.7",
    "(f * 1e3) * 2 > 200",
    "(f * 1e0) IN (1e3, 10, 0.3)",
    "f IN (1e0, 100000000000, 10)",
]


@pytest.mark.parametrize("condition", FRACTIONS)
def test_fractions_have_the_values_that_duckdb_gives_them(condition):
    expected = duckdb.sql(f"SELECT i FROM NUMBERS WHERE {condition}").to_arrow_table()["i"]
    actual = evaluate(parse_where(condition, NUMBERS.schema), NUMBERS)["i"]
    assert actual.to_pylist() == expected.to_pylist()


def test_a_string_with_a_point_is_no_fraction():
    with pytest.raises(PredicateError):
        evaluate(parse_where("i + '1.5' = 2", NUMBERS.schema), NUMBERS)


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()])
def test_constants_may_be_views(kind):
    table = pa.table({"id": [1, 2, 3], "t": pa.array(["aa", "bb", None], kind)})
    seen = table.cast(filterable_schema(table.schema))
    for condition, expected in {"t IN ('aa', 'x')": [1], "t NOT IN ('aa')": [2]}.items():
        actual = evaluate(parse_where(condition, table.schema), seen)
        assert actual["id"].to_pylist() == expected


BYTES = [
    r"b = '\xFF'",
    r"b <> '\xff'",
    r"b IN ('\x61', 'a\xFFb')",
    r"b < '\xFF'",
    r"b BETWEEN 'a' AND '\xC3\xA9'",
    r"b = '\x5CxFF'",
    "b = ''",
]


@pytest.mark.parametrize("condition", BYTES)
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_bytes_in_strings_are_read_as_in_duckdb(condition, kind):
    values = [b"\xff", b"a", rb"\xFF", "é".encode(), None, b"a\xffb", b""]
    table = pa.table({"b": pa.array(values, kind)})
    expected = duckdb.sql(f'SELECT b FROM "table" WHERE {condition}').to_arrow_table()["b"]
    actual = table.filter(parse_where(condition, table.schema))["b"]
    assert actual.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize(
    ("text", "kind"), [(r"\q", pa.binary()), (r"\x4", pa.binary_view()), (r"\xFF", pa.binary(2))]
)
def test_a_string_that_encodes_no_bytes_is_refused(text, kind):
    with pytest.raises(PredicateError, match=r"b: .* cannot be read as"):
        parse_where(f"b = '{text}'", pa.schema({"b": kind}))


@pytest.mark.parametrize("condition", ["f = 'NaN'::DOUBLE", "f IN (1.5, 'NaN'::FLOAT8)"])
def test_an_error_about_nan_names_isnan(condition):
    with pytest.raises(
        PredicateError, match="f: a comparison with NaN is not supported; use isnan"
    ):
        parse_where(condition, pa.schema({"f": pa.float64()}))


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("when = 1", 'a column is called when: write "when" for it'),
        ("k = 'from' AND WHEN > 3", 'a column is called when: write "when" for it'),
        ('k = "abc"', r"'abc' is not there.* \(a text would have single quotes: 'abc'\)"),
    ],
)
def test_an_error_says_how_to_quote(condition, hint):
    schema = pa.schema({"when": pa.int64(), "from": pa.string(), "k": pa.string()})
    with pytest.raises(PredicateError, match=hint) as caught:
        parse_where(condition, schema)
    assert "called from" not in str(caught.value)
    assert str(parse_where("\"when\" = 1 AND k = 'abc'", schema))


@pytest.mark.parametrize(
    ("condition", "meant"),
    [
        ("http.status = 5", 'the column of that name is "http.status", in double quotes'),
        ("attrs.host = 'x'", r"a map's key is attrs\['host'\]"),
        ("s.m.error.type = 'x'", r"a map's key is s.m\['error.type'\]"),
    ],
)
def test_an_error_says_how_to_write_a_field_of_a_struct(condition, meant):
    maps = pa.map_(pa.string(), pa.string())
    schema = pa.schema({"http.status": pa.int32(), "attrs": maps, "s": pa.struct({"m": maps})})
    with pytest.raises(PredicateError, match=f"is not there; .*{meant}"):
        parse_where(condition, schema)
