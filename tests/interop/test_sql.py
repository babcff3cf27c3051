"""``ia.sql`` answers as DuckDB does over the same tables in memory, and reads little."""

from __future__ import annotations

import datetime
import decimal
import gc
import itertools
import os
import re
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import intarsia as ia
import intarsia.duckdb_session as connection_module
from intarsia.engines.duckdb import sql as duckdb_sql
from intarsia.sql.query import predicate_pushdown
from intarsia.sql.query.equivalence import equal_columns
from intarsia.sql.query.scans import Query, scans_of

CONDITIONS = """
i = 2
2 < i
i <> 2
i = 1.5
i > 1.5
i = 2.0
i <> 1.5
NOT (i = 1.5)
i IS DISTINCT FROM 1.5
i IS NOT DISTINCT FROM 1.5
i NOT IN (1.5, 2)
i IN (1.5, NULL)
i IN (1.5)
i BETWEEN 0.5 AND 2.5
i NOT BETWEEN 1.5 AND 2.5
u >= -0.5
u < -0.5
u > -5::DOUBLE
u = -5
u IN (-5, 1.0::DOUBLE, 2)
u NOT IN (-5, 2)
u BETWEEN -5 AND 7.5
u > -5::DECIMAL(10,2)
u IS DISTINCT FROM -5::DOUBLE
NOT (u = CAST('-5' AS DOUBLE))
-1 < u
1.5 > i8
i >= 1.5::DOUBLE
i = CAST('2' AS BIGINT)
length(s) > 0.5
d = CAST('0.1' AS DOUBLE)
dec = CAST(1.5 AS DECIMAL(4, 2))
d >= CAST(1.4 AS DECIMAL(10))
i8 = CAST('2' AS SMALLINT)
i8 > CAST(2 AS UTINYINT)
s = CAST('a' AS VARCHAR)
year(ts) > 2019.5
i = '2'
i = NULL
i IN (1, 2, NULL)
i NOT IN (1, 2)
i NOT IN (1, NULL)
NOT (i IN (1, NULL))
i IN (NULL)
i BETWEEN 1 AND 3
i NOT BETWEEN 1 AND 3
i IS DISTINCT FROM 2
i IS NOT DISTINCT FROM 2
i IS NOT DISTINCT FROM NULL
i IS NOT DISTINCT FROM (NULL)
i IS DISTINCT FROM (NULL)
NOT (i IS NOT DISTINCT FROM 2)
i / 2 = 1
i // 2 = 1
i % 2 = 1
i + 1 > 3
i = 2 * 3 + 1
i < 2147483647 + 1
d >= 7 / 2
f > 0.05 + 0.05
dec = 0.55 * 2
s LIKE '%' || '_' || '%'
upper(s) = upper('a_b')
date = DATE '2020-01-01' + 1
date + 1 = DATE '2020-01-03'
date > TIMESTAMPTZ '2020-01-03 00:30:00+02:00' - INTERVAL 1 HOUR
ts BETWEEN DATE '2020-01-01' AND DATE '2020-01-01' + INTERVAL '2 days 12 hours'
ts_ms >= TIMESTAMP '2020-01-02 12:00:00' + INTERVAL 1 MICROSECOND
ts_ns > epoch_ms(1577966400000)
tz IN (to_timestamp(1577966400), '2020-01-03 12:00:00.000003')
paris > date_trunc('week', TIMESTAMP '2020-01-08 00:00:00')
ts < now() AND date < current_date - INTERVAL 1 DAY AND paris < localtimestamp
ts > now() - INTERVAL 1 YEAR
i8 = 300
i8 + 100 < 200
u > 9223372036854775807
u = 18446744073709551615
u > -1
u IN (5, 2)
i = u
i = i8
d > 5
d >= 5
5 < d
d < 5
d <= 5
d = 0
d = -0.0
d <> 1.5
NOT (d > 5)
NOT (d < 5)
d > 'nan'
d = 'nan'
d IN (0, 7)
d NOT IN (0, 7)
d IN (0, NULL)
d BETWEEN 1 AND 8
d NOT BETWEEN 1 AND 8
d > 'inf'
d IS DISTINCT FROM 7
isnan(d)
d = f
d > f
f = 0.1
f > 0.1
f <= 0.1
f IN (0.1, 2.5)
f = 0.1::FLOAT
f > 1e0
f = 16777217
dec = 1.1
dec < 1.105
dec > 1.105
dec = '1.105'
dec IN (1.1, -3)
dec > 1e0
dec > 2
dec = 1.10500000000000000000000000000000000000001
s = 'axb'
s > 'a'
s < 'B'
s = 5::VARCHAR
s COLLATE NOCASE = 'AXB'
s LIKE 'a_b'
s LIKE 'a%'
s LIKE '%b'
s LIKE 'A%B'
s LIKE '10\\%'
s LIKE 'a\\_b'
s LIKE 'a!_b' ESCAPE '!'
s NOT LIKE 'a%'
NOT (s NOT LIKE 'a%')
s ILIKE 'A%'
s ILIKE '%S%'
s ILIKE '%i%'
s NOT ILIKE '%s%'
s ILIKE 'é%'
s LIKE s
s ~ 'a'
NOT (s ~ 'a')
s !~ 'A'
s ~ 'a.b'
regexp_matches(s, 'a.b')
regexp_matches(s, 'A.B')
NOT regexp_matches(s, 'a.b')
regexp_matches(s, 'AX', 'i')
regexp_matches(s, 'A.B', 's')
regexp_matches(s, 'a.b', 'is')
regexp_matches(s, 'a.b', 'si')
regexp_matches(s, 's', 'i')
regexp_matches(s, '^[^a]', 'i')
regexp_matches(s, 'a|b', 'i')
regexp_matches(s, 'É', 'i')
regexp_matches(s, 'a.b', 'g')
regexp_matches(s, 'a.b', 'l')
regexp_matches(s, 'a)(b', 'i')
regexp_matches(s, 'A$', 'm')
regexp_matches(s, 'A$')
regexp_matches(s, '\\pL')
regexp_matches(s, '^\\w+$')
regexp_matches(s, '')
regexp_matches(s, NULL)
regexp_matches(s, s)
s SIMILAR TO 'a.b'
s SIMILAR TO 'A.B'
s SIMILAR TO 'a|axb'
s SIMILAR TO 'a%'
s NOT SIMILAR TO 'a.b'
s SIMILAR TO 'a)(b'
s SIMILAR TO ''
regexp_full_match(s, 'a.b')
regexp_full_match(s, 'A.B', 's')
regexp_full_match(s, 'AXB', 'i')
regexp_full_match(s, 'a')
regexp_full_match(ls, 'x|y')
regexp_full_match(lower(s), 'a.b')
i8::BIGINT = 100
i8::INT > 2
i8::BIGINT > 300
i8::DOUBLE > 1.5
i8::BIGINT = i
i::DOUBLE > 1.5
u::BIGINT = 2
CAST(f AS DOUBLE) > 1.5
CAST(f AS DOUBLE) = 0.1
TRY_CAST(i8 AS BIGINT) = 2
i8::BIGINT IN (1, 2, NULL)
s::VARCHAR LIKE 'a%'
starts_with(s, 'a')
NOT starts_with(s, 'a')
s ^@ 'a'
prefix(s, 'a')
suffix(s, 'b')
ends_with(s, 'b')
contains(s, 'x')
NOT contains(s, '')
contains(s, NULL)
starts_with(lower(s), 'a')
lower(s) = 'axb'
upper(s) = 'AXB'
lower(s) <> 'axb'
lower(s) LIKE 'a%b'
upper(s) = 'ÉSİSS'
lower(s) > 'a'
length(s) = 3
length(l) = 2
s || 'x' = 'axbx'
coalesce(s, 'axb') = 'axb'
coalesce(i, 0) = 0
ls = 'x'
ls IN ('x', 'y')
ls ILIKE 'x'
di = 'x'
di > 'x'
di IN ('x', 'y')
di LIKE 'x%'
lower(di) = 'x'
bin = 'x'
bin = '\\xFF'
bin > 'x'
b
NOT b
b = true
b = 't'
b IS TRUE
b IS NOT TRUE
b IS NOT FALSE
(i > 2) IS NOT FALSE
date = '2020-01-02'
date > DATE '2020-01-02'
date >= TIMESTAMP '2020-01-02 06:00:00'
date BETWEEN '2020-01-02' AND '2020-01-03'
date IN ('2020-01-02', NULL)
date < ts
date = '2020/01/02'
date = '2020-1-2'
time > '12:00:00.000003'
time = '12:00:00.000003'
ts > '2020-01-02'
ts = '2020-01-02 12:00:00.000002'
ts = '2020-01-02 14:00:00.000002+02:00'
ts > DATE '2020-01-02'
ts::DATE = '2020-01-02'
CAST(ts AS DATE) IN (DATE '2020-01-02')
date_trunc('day', ts) = '2020-01-02'
date_trunc('month', date) <> DATE '2020-01-01'
year(ts) = 2020 AND NOT (extract(year FROM date) > 2019)
date_part('year', ts_ms) IN (2019, 2020)
ts_ns::DATE = '2020-01-02'
tz::DATE BETWEEN '2020-01-02' AND '2020-01-03'
date_trunc('hour', tz) >= '2020-01-02 12:00:00+00'
date_trunc('day', paris) = '2020-01-02'
NOT (paris::DATE = DATE '2020-01-02')
date_trunc('week', tz) IN ('2019-12-30', TIMESTAMPTZ '2020-01-06 00:00:00+00')
year(tz) = 2020 OR extract(year FROM paris) < 2019
isnan(d)
ts_ms = '2020-01-02 12:00:00.0004'
ts_ms < TIMESTAMP '2020-01-02 12:00:00.0004'
ts_ns >= '2020-01-02 12:00:00.000002'
ts_ns > '2020-01-02 12:00:00.0000015'
tz > '2020-01-02 12:00:00'
tz > '2020-01-02 12:00:00+02:00'
tz > '2020-01-02 12:00:00 Europe/Paris'
tz > TIMESTAMPTZ '2020-01-02 12:00:00+00:00'
tz > DATE '2020-01-02'
tz = ts
paris > '2020-01-02 12:00:00'
paris = '2020-01-02 12:00:00.000002+00'
ts > TIMESTAMPTZ '2020-01-02 12:00:00+02:00'
st.a = 2
st."B c" = -2
t.st.a > 2
st.a IN (1, 2)
st['a'] = 2
bin = 'x'::BLOB
st.a IS NULL
st IS NULL
t = 3
t.t = 3
list_contains(l, 2)
array_contains(l, 2)
list_has(l, 2)
array_has(l, 2)
contains(l, 2)
2 IN l
2 IN (l)
2 = ANY(l)
2 = SOME(l)
2 = ANY(SELECT i)
2 = ALL(l)
2 <> ANY(l)
i = ANY(l)
list_contains(l, i)
list_contains(l, NULL)
list_contains(l, 2.0)
list_contains(l, '2')
list_contains(l, 'x')
list_contains(l, 99999999999999999999)
list_contains(i, 2)
list_contains(lu, 9223372036854775808)
list_contains(lu, -1)
list_contains(lf, 0.1)
list_contains(lf, 0)
list_contains(lf, 'nan')
list_contains(lf, 'nan'::FLOAT)
list_contains(lf, 0.1::DOUBLE)
list_has_any(lf, [0.1, 7])
0.1 = ANY(lf)
list_contains(ld, 0.1)
list_contains(ld, 'nan'::DOUBLE)
list_contains(ld, 0)
list_has_any(ld, [-0.0, 0.1])
list_contains(ldec, 1.1)
list_contains(ldec, 1.105)
list_contains(ldec, '1.105')
list_has_any(ldec, [1.1, 1.115])
list_has_all(ldec, [1.10])
list_contains(lt, 'a')
'a' = ANY(lt)
list_has_any(lt, ['a', NULL, 'b'])
list_has_all(lt, ['é', 'a'])
list_has_any(lt, ['A', 1])
list_contains(lt, 1)
lt && ['b']
list_contains(ldate, '2020-01-02')
list_contains(ldate, DATE '2020-01-02')
list_contains(ldate, TIMESTAMP '2020-01-02')
list_has_any(ldate, [DATE '2020-01-02', DATE '2020-01-03'])
list_has_any(ldate, ['2020-01-02'])
list_contains(lts, '2020-01-02 12:00:00.000002')
list_contains(lts, DATE '2020-01-02')
list_contains(lts, '2020-01-02 12:00:00.0000021')
list_contains(la, 2)
2 = ANY(la)
list_has_all(la, [1, 2])
list_contains(stl.l, 2)
2 = ANY(stl.l)
list_has_any(l, [1, 3])
list_has_any(l, [NULL])
list_has_any(l, [])
list_has_any(l, NULL)
list_has_any(l, [[1]])
array_has_any(l, [1, 3])
l && [3, NULL]
[1] && l
list_has_all(l, [1, 2, 1])
array_has_all(l, [2])
list_has_all(l, [])
list_has_all(l, [NULL, 2])
l @> [2]
[1, 2] @> l
[2] <@ l
list_has_any(l, [1, 2, 3, 4, 5, 6, 7])
map_contains(m, 'a')
map_contains(m, NULL)
map_contains(m, 1)
map_contains(l, 1)
contains(m, 'é')
'a' IN m
'a' IN s
list_contains(m, 'a')
m['a'] = 1
m['a'] <> 1
1 < m['a']
m['a'] IN (1, 2)
m['a'] NOT IN (1, NULL)
m['a'] = 1.5
m['a'] >= 1.5
m['a'] BETWEEN 1 AND 2
m['a'] IS NULL
m['b'] IS NOT NULL
m['a'] IS NOT DISTINCT FROM 1
NOT (m['a'] = 1)
m['a'] = m['b']
m['é'] = 1
m['nothing'] = 1
m['nothing'] IS NULL
m['a'] + 1 = 2
m[1] = 1
m['a'] = 'x'
m[s] = 1
mt['k'] = 'ab'
mt['k'] IN ('ab', 'é')
mt['k'] LIKE 'a%'
mt['k'] NOT LIKE '%b'
mt['k'] ILIKE 'ax%'
starts_with(mt['k'], 'a')
contains(mt['k'], 'b')
regexp_matches(mt['k'], '^a')
mt['k'] > 'b'
mt['it''s'] = 'é'
lower(mt['k']) = 'ax%b'
mt['k'] = s
length(mt['k']) = 2
floor(d) = 1
ceil(f) = 1
floor(i) = 2
list_contains(l, 2) IS TRUE
list_contains(l, 2) IS NOT TRUE
list_contains(l, 2) IS NOT FALSE
list_contains(l, 2) IS NULL
(2 = ANY(l)) IS NOT TRUE
(2 = ANY(l)) OR i = 3
l = [1, 2]
l[1] = 1
len(list_filter(l, i -> i > 1)) > 0
"Odd Name" = 3
"odd name" = 3
nothing IS NULL
nothing = 1
i = 1 OR i = 2 AND i = 3
(i = 1 OR s LIKE 'a%') AND NOT b
i = 1 OR list_contains(l, 2)
NOT i = 1
i IN (SELECT i FROM t WHERE s LIKE 'a%')
i NOT IN (SELECT i FROM t)
EXISTS (SELECT 1 FROM t AS o WHERE o.i = t.i AND o.s LIKE 'a%')
TRUE
FALSE
""".strip().splitlines()

QUERIES = """
FROM t
SELECT count(*) FROM t
SELECT count(*) FROM T WHERE i > 1
SELECT 1 FROM t WHERE d > 5
SELECT i AS s FROM t WHERE s = 'axb'
SELECT i + 1 AS j FROM t WHERE j > 3
SELECT lower(s) AS i FROM t WHERE i = 2
SELECT t FROM t WHERE i = 2
SELECT t.* EXCLUDE (l) FROM t WHERE i = 2
SELECT COLUMNS('i.*') FROM t WHERE i = 2
SELECT x FROM t AS t(x) WHERE x > 3
SELECT row FROM t AS o WHERE o.s LIKE 'a%'
SELECT a.row, b.row FROM t a, t b WHERE a.i = b.i8 AND a.s LIKE 'a%' AND b.b
SELECT a.row, b.row FROM t a JOIN t b ON a.i = b.i8 AND a.s LIKE 'a%' AND b.b WHERE b.i > 0
SELECT a.row, b.row FROM t a LEFT JOIN t b ON a.i = b.i8 AND a.s LIKE 'a%' AND b.b
SELECT a.row, b.row FROM t a LEFT JOIN t b ON a.i = b.i8 WHERE b.s IS NULL AND a.i > 0
SELECT a.row, b.row FROM t a RIGHT JOIN t b ON a.i = b.i8 AND a.b AND b.b WHERE a.i IS NULL
SELECT a.row, b.row FROM t a FULL JOIN t b ON a.i = b.i8 AND a.b AND b.b WHERE a.i IS NULL
SELECT a.row, b.row FROM t a FULL JOIN t b USING (row) WHERE row = 3 AND a.i = 7
SELECT a.row, c.row FROM t a LEFT JOIN t b USING (row) JOIN t c ON c.i = a.i AND b.s IS NULL
SELECT a.row FROM t a SEMI JOIN t b ON a.i = b.i8 AND b.b AND a.b
SELECT a.row FROM t a ANTI JOIN t b ON a.i = b.i8 AND b.b AND a.b
SELECT a.row, b.row FROM t a POSITIONAL JOIN t b WHERE a.i > 1
SELECT a.row, b.row FROM t a ASOF JOIN t b ON a.row >= b.row WHERE b.i > 1
SELECT row FROM t NATURAL JOIN t AS o WHERE i = 2
SELECT row, x FROM t, unnest([1, 2]) u(x) WHERE t.i = 2
SELECT row, x FROM t, unnest(t.l) u(x) WHERE i > 0
SELECT row, x FROM t, LATERAL (SELECT t.i + 1 AS x) WHERE i = 2
SELECT a.row, x.n FROM t a, LATERAL (SELECT count(*) n FROM t b WHERE b.i = a.i AND b.b) x
SELECT * FROM (SELECT row, i FROM t ORDER BY row LIMIT 3) WHERE i > 1
SELECT * FROM (SELECT row, i FROM t ORDER BY row OFFSET 2) WHERE i > 1
SELECT * FROM (SELECT row, i, row_number() OVER (ORDER BY row) AS n FROM t) WHERE i > 1
SELECT * FROM (SELECT b, count(*) AS n FROM t GROUP BY b) WHERE b
SELECT * FROM (SELECT b, count(*) AS n FROM t GROUP BY ALL) WHERE n > 2
SELECT * FROM (SELECT DISTINCT ON (b) b, row FROM t ORDER BY b, row) WHERE row > 1
SELECT * FROM (SELECT DISTINCT b FROM t) WHERE b
SELECT * FROM (SELECT max(i) AS i FROM t) WHERE i > 1
SELECT * FROM (SELECT row, s AS i, i AS s FROM t) WHERE i LIKE 'a%'
SELECT * FROM (SELECT *, i + 1 AS j FROM t) WHERE j > 3 AND i > 1 AND row < 6
SELECT * FROM (SELECT row, st AS q FROM t) WHERE q.a = 2
SELECT * FROM (SELECT row, t.st.a AS q FROM t) WHERE q = 2
SELECT * FROM (SELECT row, lower(s) AS m FROM t) AS d WHERE d.m LIKE 'a%'
SELECT * FROM (SELECT row, i FROM t) AS d(i, row) WHERE i = 2
SELECT * FROM (SELECT row, unnest(l) AS e FROM t) WHERE row > 2 AND e = 2
SELECT * FROM (SELECT row, i FROM t UNION ALL SELECT row, i8 FROM t) WHERE i = 2
SELECT row FROM t WHERE i = 2 UNION SELECT row FROM t WHERE s LIKE 'a%'
SELECT * FROM (SELECT row, i FROM t UNION ALL SELECT row, i FROM t WHERE b) WHERE i = 2
SELECT * FROM (SELECT row, i FROM t UNION SELECT i8, i FROM t) WHERE row > 2 AND i = 2
SELECT * FROM (SELECT row AS i, i AS row FROM t UNION ALL SELECT i, row FROM t) WHERE i = 2
SELECT * FROM (SELECT i, s FROM t UNION ALL SELECT i, di FROM t) WHERE s LIKE 'a%'
SELECT * FROM (SELECT i, s FROM t UNION ALL SELECT i, i FROM t) WHERE s > '1'
SELECT * FROM (SELECT d FROM t UNION SELECT d FROM t) WHERE d > 0
SELECT * FROM (SELECT i FROM t INTERSECT SELECT i FROM t WHERE b) WHERE i > 0
SELECT * FROM (SELECT i FROM t INTERSECT ALL SELECT row FROM t) WHERE i > 0
SELECT * FROM (SELECT i FROM t EXCEPT SELECT row FROM t) WHERE i > 0
SELECT * FROM (SELECT i FROM t EXCEPT ALL SELECT i FROM t WHERE b) WHERE i > 0
SELECT * FROM (SELECT i, s FROM t UNION ALL BY NAME SELECT s, i FROM t) WHERE i > 0
SELECT * FROM (SELECT i, s FROM t UNION ALL SELECT i, s FROM t ORDER BY i LIMIT 3) WHERE i > 0
SELECT * FROM (SELECT i, s FROM t UNION ALL (SELECT i, s FROM t ORDER BY i LIMIT 3)) WHERE i > 0
SELECT * FROM (SELECT i FROM t UNION ALL SELECT i FROM t UNION SELECT i FROM t WHERE b) WHERE i > 1
SELECT * FROM (SELECT * FROM t UNION ALL SELECT * FROM t) WHERE i = 2 AND s LIKE 'a%'
SELECT * FROM (SELECT i, i AS i FROM t UNION ALL SELECT i, row FROM t) WHERE i = 2
SELECT * FROM (FROM t UNION ALL FROM t) WHERE i = 2
SELECT * FROM (SELECT i, 1 AS k FROM t UNION ALL SELECT i, 2 FROM t) WHERE k = 2 AND i > 1
SELECT * FROM (SELECT i, CAST(s AS INT) AS k FROM t UNION ALL SELECT i, 2 FROM t) WHERE i = 2
SELECT * FROM (SELECT DISTINCT s::INT AS k, i FROM t) WHERE i = 2
SELECT * FROM (SELECT DISTINCT i, s FROM t) WHERE i > 1 AND s LIKE 'a%'
SELECT * FROM (SELECT DISTINCT d FROM t) WHERE d = 0
SELECT * FROM (SELECT DISTINCT i, row FROM t ORDER BY row LIMIT 3) WHERE i > 1
SELECT * FROM (SELECT DISTINCT lower(s) AS m FROM t) WHERE m = 'axb'
SELECT * FROM (SELECT b, i8, count(*) AS n FROM t GROUP BY b, i8) WHERE b AND i8 > 0 AND n = 1
SELECT * FROM (SELECT b, sum(i8) AS n FROM t GROUP BY 1) AS g WHERE g.b
SELECT * FROM (SELECT b AS c, max(i) AS b FROM t GROUP BY ALL) WHERE c AND b > 1
SELECT * FROM (SELECT lower(s) AS m, count(*) AS n FROM t GROUP BY m) WHERE m = 'axb'
SELECT * FROM (SELECT lower(s) AS m, count(*) AS n FROM t GROUP BY lower(s)) WHERE m = 'axb'
SELECT * FROM (SELECT i8 AS i, count(*) AS n FROM t GROUP BY i8) WHERE i = 2
SELECT * FROM (SELECT b, i8, count(*) FROM t GROUP BY ROLLUP (b, i8)) WHERE b IS NULL
SELECT * FROM (SELECT b, i8, count(*) FROM t GROUP BY ROLLUP (b, i8)) WHERE b
SELECT * FROM (SELECT b, i8, count(*) FROM t GROUP BY CUBE (b, i8)) WHERE i8 = 2
SELECT * FROM (SELECT b, i8, count(*) FROM t GROUP BY b, GROUPING SETS ((i8), ())) WHERE b
SELECT * FROM (SELECT b, count(*) AS n FROM t GROUP BY b HAVING count(*) > 1) WHERE b
SELECT * FROM (SELECT count(*) AS n, 1 AS k FROM t) WHERE k = 2
SELECT * FROM (SELECT count(*) AS n FROM t HAVING count(*) > 1) WHERE n = 2
SELECT b, count(*) FROM t GROUP BY b HAVING b
SELECT b, i8, count(*) FROM t GROUP BY ALL HAVING b AND i8 > 0
SELECT i8 AS i, count(*) FROM t GROUP BY i8 HAVING i8 = 2
SELECT i8 AS i, count(*) FROM t GROUP BY i8 HAVING i = 2
SELECT i8 AS i, i AS i8, count(*) FROM t GROUP BY t.i, t.i8 HAVING i = 2
SELECT b, count(*) FROM t GROUP BY ROLLUP (b) HAVING b IS NULL
SELECT b, sum(i) FROM t GROUP BY b HAVING b OR sum(i) > 3
SELECT * FROM (SELECT b, row, sum(i) OVER (PARTITION BY b) AS n FROM t) WHERE b
SELECT * FROM (SELECT b, row, sum(i8) OVER (PARTITION BY b ORDER BY row) AS n FROM t) WHERE b AND row > 2
SELECT * FROM (SELECT b, i8, count(*) OVER (PARTITION BY b) AS n, count(*) OVER (PARTITION BY i8) AS o FROM t) WHERE b
SELECT * FROM (SELECT b, i8, count(*) OVER w AS n FROM t WINDOW w AS (PARTITION BY b)) WHERE b
SELECT * FROM (SELECT b, row FROM t QUALIFY row_number() OVER (PARTITION BY b ORDER BY row) = 1) WHERE b
SELECT * FROM (SELECT b, row FROM t QUALIFY row_number() OVER (ORDER BY row) = 1) WHERE b
WITH r AS (SELECT row, i, s FROM t) SELECT * FROM r a JOIN r b ON a.i = b.row WHERE a.i > 1 AND b.s LIKE 'a%'
WITH r AS (SELECT row, i FROM t) SELECT * FROM r WHERE i = 2 UNION ALL SELECT * FROM r WHERE i = 3
WITH r AS (SELECT row, i FROM t) SELECT * FROM r WHERE i = 2 UNION ALL SELECT * FROM r
WITH r AS (SELECT row, i FROM t), q AS (SELECT * FROM r WHERE i > 0) SELECT * FROM q WHERE i = 2 UNION ALL SELECT * FROM q WHERE row = 3 UNION ALL SELECT * FROM r WHERE i < 0
WITH r AS (SELECT b, count(*) AS n FROM t GROUP BY b) SELECT * FROM r WHERE b UNION ALL SELECT * FROM r WHERE NOT b
WITH r AS (SELECT row, i FROM t LIMIT 4) SELECT * FROM r WHERE i = 2 UNION ALL SELECT * FROM r WHERE i = 3
WITH r AS (SELECT row, i FROM t) SELECT (SELECT max(row) FROM r WHERE i > 1), (SELECT min(row) FROM r WHERE i < 3)
SELECT x.row, y.row FROM t x JOIN t y ON x.i = y.i WHERE x.i = 2
SELECT x.row, y.row FROM t x JOIN t y ON x.i = y.i AND y.i > 1
SELECT x.row, y.row FROM t x, t y WHERE x.s = y.s AND x.s LIKE 'a%'
SELECT x.row, y.row FROM t x, t y WHERE x.i = y.i8 AND x.i = 2
SELECT x.row, y.row FROM t x, t y WHERE x.d = y.d AND x.d = 0
SELECT x.row, y.row FROM t x JOIN t y USING (i) WHERE i = 2
SELECT x.row, y.row FROM t x LEFT JOIN t y USING (i) WHERE i = 2
SELECT x.row, y.row, z.row FROM t x JOIN t y USING (i) JOIN t z USING (i) WHERE i = 2
SELECT x.row, y.row, z.row FROM t x JOIN t y ON x.i = y.i JOIN t z ON y.i = z.row WHERE z.row > 1
SELECT x.row, y.row, z.row FROM t x JOIN t y ON x.i = y.i LEFT JOIN t z ON y.i = z.row WHERE x.i > 1 AND z.row IS NULL
SELECT x.row, y.row, z.row FROM t x JOIN t y ON x.i = y.i RIGHT JOIN t z ON y.i = z.row AND x.i > 1
SELECT x.row, y.row FROM t x LEFT JOIN t y ON x.i = y.i WHERE x.i = 2
SELECT x.row, y.row FROM t x LEFT JOIN t y ON x.i = y.i WHERE x.i = y.i AND y.i IS NULL
SELECT x.row FROM t x SEMI JOIN t y ON x.i = y.i WHERE x.i = 2
SELECT x.row FROM t x JOIN (SELECT DISTINCT i FROM t UNION SELECT row FROM t) y ON x.i = y.i WHERE x.i = 2
FROM t x JOIN t y ON x.i = y.i8 AND y.b SELECT x.row, y.row WHERE x.i > 1
FROM t x LEFT JOIN t y ON x.i = y.i8 AND y.b SELECT x.row, y.row WHERE x.i > 1
FROM t x, t y SELECT x.row, y.row WHERE x.i = y.i AND y.s LIKE 'a%'
FROM t JOIN (SELECT i8 AS k FROM t WHERE b) AS o ON i = o.k SELECT t.row
FROM t x, (t y JOIN t z ON y.i = z.i8) SELECT x.row, z.row WHERE x.i = 2 AND z.b
SELECT row FROM t WHERE i > 1 EXCEPT SELECT row FROM t WHERE b
SELECT row FROM t WHERE i > 1 INTERSECT SELECT row FROM t WHERE s = 'axb'
SELECT b, count(*) FROM t WHERE i > 0 GROUP BY b HAVING count(*) > 1
SELECT row, sum(i) OVER (PARTITION BY b) FROM t WHERE i < 10
SELECT row FROM t WHERE i < 10 QUALIFY row_number() OVER (PARTITION BY b ORDER BY row) = 1
WITH r AS (SELECT row, i FROM t WHERE b) SELECT * FROM r WHERE i > 0
WITH r AS (SELECT row, i FROM t) SELECT * FROM r WHERE i > 0 AND row IN (SELECT row FROM r)
WITH t AS (SELECT 1 AS i) SELECT * FROM t WHERE i = 2
WITH r AS MATERIALIZED (SELECT * FROM t) SELECT r.row FROM r WHERE r.s LIKE 'a%'
WITH r(x) AS (SELECT row FROM t) SELECT * FROM r WHERE x = 2
WITH RECURSIVE r AS (SELECT 1::BIGINT AS n UNION ALL SELECT n + i8 FROM r, t WHERE i8 > 0 AND n < 9) FROM r
SELECT row, (SELECT max(o.i) FROM t o WHERE o.b AND o.row < t.row) FROM t WHERE i > 0
SELECT row FROM t WHERE i = (SELECT min(i) FROM t AS o WHERE o.i > 1)
SELECT row FROM t WHERE EXISTS (SELECT 1 FROM t AS o WHERE t.b AND o.i = 2 AND s = 'axb')
SELECT row FROM (t JOIN (SELECT i8 AS k FROM t WHERE b) AS o ON t.i = o.k) WHERE t.s LIKE 'a%'
SELECT * FROM (VALUES (1), (2)) AS v(x) JOIN t ON t.i = v.x WHERE x = 2
SELECT row FROM range(3) AS g(n) JOIN t ON t.i = g.n WHERE t.s LIKE 'a%'
SELECT * FROM (PIVOT (SELECT b, i8 FROM t) ON b USING sum(i8))
PIVOT t ON b USING count(*) GROUP BY i8
SELECT * FROM t PIVOT (sum(i8) FOR b IN (true, false) GROUP BY row)
UNPIVOT (SELECT row, i8, i FROM t) ON i8::BIGINT, i
SELECT count(*) FROM t TABLESAMPLE 100% WHERE i > 1
WITH c AS (SELECT row, i8, b FROM t) SELECT * FROM c PIVOT (sum(row) FOR b IN (true AS y, false AS i8)) WHERE i8 > 0
WITH c AS (SELECT row, i8, b FROM t) SELECT * FROM c PIVOT (sum(i8) FOR b IN (true AS y, false AS row)) WHERE row > 0
WITH c AS (SELECT row, i, i + 1 AS j FROM t) SELECT * FROM c UNPIVOT (i FOR n IN (i, j)) WHERE i = 2
WITH c AS (SELECT * FROM t) SELECT count(*) FROM c TABLESAMPLE 10 ROWS WHERE i = 2
WITH c AS (SELECT * FROM t) SELECT a.row FROM c AS a, c TABLESAMPLE 100% WHERE a.i = 2 AND c.row = 1
SUMMARIZE SELECT i FROM t
DESCRIBE t
SELECT "t"."i" FROM "t" /* t */ WHERE "t"."i" = 2 -- FROM t
SELECT 'FROM t' AS é, i FROM t WHERE s = 'Éſİß'
SELECT row FROM tt: t WHERE tt.i = 2
SELECT row FROM memory.t WHERE i = 2
SELECT row FROM t WHERE main.t.i = 2 AND t.b
SELECT t.row FROM t JOIN t AS o ON main.t.i = o.row
TABLE t
FROM (table  t) AS o WHERE o.i = 2
SELECT row FROM t WHERE random() < 2 AND i = 2
SELECT 1
SELECT sum(i8) FILTER (WHERE i > 1) FROM t WHERE b
""".strip().splitlines()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, awkward: pa.Table) -> ia.Dataset:
    path = tmp_path_factory.mktemp("sql") / "t.parquet"
    ia.write_table(awkward, path, max_rows_per_page=2, write_batch_size=2, row_group_size=4)
    return ia.dataset(path)


@pytest.fixture(scope="module")
def memory(awkward):
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", awkward)
        yield connection


def canonical(table: pa.Table, query: str) -> list[str]:
    """The rows of an answer, sorted. NaN equals NaN, and −0.0 equals 0.0 if rows are made distinct.

    An engine may return either zero of equal rows.
    """
    rows = map(str, table.to_pylist())
    if re.search("DISTINCT|GROUP BY|UNION|EXCEPT|INTERSECT", query):
        rows = (re.sub(r"(?<![\w.])-0\.0\b", "0.0", row) for row in rows)
    return sorted(rows)


def agrees(data: ia.Dataset, memory: duckdb.DuckDBPyConnection, query: str) -> bool:
    """Compares answers, or kinds of errors. True if there is an answer."""
    try:
        expected = memory.sql(query).to_arrow_table()
    except duckdb.Error as error:
        with pytest.raises(type(error)):
            ia.sql(query, t=data)
        return False
    actual = ia.sql(query, t=data)
    assert actual.schema.names == expected.schema.names
    assert canonical(actual, query) == canonical(expected, query)
    return True


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_gives_duckdbs_answer(data, memory, condition):
    agrees(data, memory, f"SELECT row FROM t WHERE {condition}")
    agrees(data, memory, f"SELECT row FROM t WHERE NOT ({condition})")
    agrees(data, memory, f"SELECT count(*) FROM t WHERE {condition}")
    agrees(data, memory, f"SELECT count(*) AS n FROM t WHERE NOT ({condition})")
    agrees(data, memory, f"SELECT row FROM t WHERE {condition} LIMIT 2")


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_duckdbs_answer(data, memory, query):
    agrees(data, memory, query)


def filters_of(query: str, data: ia.Dataset) -> list[str | None]:
    scans = scans_of(query, {"t": data.schema}).scans
    return [None if scan.filter is None else str(scan.filter) for scan in scans]


PUSHED = {
    "s LIKE 'a%'": "match_like",
    "s ILIKE 'a%'": "utf8_lower",
    "s ^@ 'a'": "starts_with",
    "contains(s, 'a')": "match_substring",
    "regexp_matches(s, 'a')": "match_substring_regex",
    "lower(s) = 'a'": "utf8_lower",
    "length(s) = 3": "utf8_length",
    "len(l) = 2": "list_value_length",
    "ts > TIMESTAMP '2020-01-02 12:00:00'": "ts > 2020-01-02 12:00:00",
    "d > 5": "invert((d <= 5",
    "i IS NOT DISTINCT FROM 2": "coalesce",
    "i IN (1, NULL)": "is_in",
    "i IS DISTINCT FROM 2": "invert(coalesce",
    "isnan(d)": "is_nan(d)",
    "ts::DATE = '2020-01-02'": "(ts < 2020-01-03",
    "ts::DATE IN ('2020-01-02', '2020-01-04')": "or (",
    "date_trunc('month', date) <= '2020-01-17'": "(date < 2020-02-01)",
    "year(ts_ns) = 2020": "(ts_ns < 2021-01-01 00:00:00.000001",
    "2019 < year(ts)": "(ts >= 2020-01-01",
    "st.a = 2": "FieldRef.Nested",
    "dec = 1.1": "1.1",
    "tz > '2020-01-02 12:00:00'": "tz >",
    "di LIKE 'x%'": "match_like",
    "regexp_matches(s, 'A', 'i')": "match_substring_regex",
    "s SIMILAR TO 'a.b'": "match_substring_regex",
    "NOT regexp_full_match(s, 'a.b')": "match_substring_regex",
    "i8::BIGINT > 300": "cast(i8",
    "i8::DOUBLE > 1.5": "cast(i8",
    "CAST(f AS DOUBLE) > 1.5": "invert((cast(f",
    "list_contains(l, 2)": "ia.list_contains(l, 2)",
    "array_has(l, 2)": "ia.list_contains(l, 2)",
    "2 IN l": "ia.list_contains(l, 2)",
    "2 = ANY(l)": "ia.list_contains(l, 2)",
    "2 = ANY(l) AND i = 1": "ia.list_contains(l, 2)",
    "NOT list_contains(l, 2)": "invert(ia.list_contains(l, 2))",
    "list_contains(l, 2) OR i = 1": "ia.list_contains(l, 2) or",
    "list_contains(stl.l, 2)": "ia.list_contains",
    "list_contains(lf, 0.1)": "ia.list_contains(lf, 0.1)",
    "list_has_any(lt, ['a', 'b'])": "ia.list_contains_any(lt",
    "[3, NULL] && l": "ia.list_contains_any(l",
    "l @> [2]": "ia.list_contains_all(l",
    "list_has_all(ldec, [1.10, 2])": "ia.list_contains_all(ldec",
    "map_contains(m, 'a')": 'ia.map_contains(m, "a")',
    "'a' IN m": 'ia.map_contains(m, "a")',
    "m['a'] = 1": "(map_lookup(m",
    "mt['k'] LIKE 'a%'": "match_like(map_lookup(mt",
    "mt['it''s'] = 'é'": "map_lookup(mt",
    "i = 2 * 3 + 1": "(i == 7)",
    "s LIKE 'a' || '%'": "match_like",
    "lower(s) = lower('AXB')": '(utf8_lower(s) == "axb")',
    "date > DATE '2020-01-01' + INTERVAL 1 DAY": "(date > 2020-01-02 00:00:00.000000)",
    "ts > TIMESTAMPTZ '2020-01-02 12:00:00+00'": "(ts > 2020-01-02 12:00:00.000000)",
    "list_contains(l, 2.0)": "ia.list_contains(l, 2)",
    "i = 2.5": "((i < 3) and (i >= 3))",
    "i < 2.5": "(i < 3)",
    "u < -1.5": "(u < 0)",
    "u > -1": "(u >= 0)",
    "u <> -5.0::DOUBLE": "((u < 0) or (u >= 0))",
    "i IN (9007199254740991, 1.0::DOUBLE, NULL)": "is_in(i",
    "2.5 <= u": "(u >= 3)",
    "i8 IN (1, 2.0, 3.7)": "is_in(i8",
    "i = 2.0::DOUBLE": "(i == 2)",
    "i > CAST('2' AS BIGINT) AND s = 'x'::VARCHAR": '((i > 2) and (s == "x"))',
    "d > CAST('0.30000000000000004' AS DOUBLE)": "invert((d <= 0.30000000000000004))",
    "dec = CAST('1.5' AS DECIMAL(10, 2))": "(dec == 1.50)",
    "date(ts) = '2020-01-02'": "((ts >= 2020-01-02",
    "tz::DATE = '2020-01-02'": "((tz >= 2020-01-02 00:00:00.000000Z) and (tz < 2020-01-03",
    "date_trunc('day', paris) >= '2020-01-02'": "(paris >= 2020-01-02 00:00:00",
    "year(tz) > 2019": "((tz >= 2020-01-01 00:00:00.000000Z) or (tz < 0001-01-01",
    "tz > date_trunc('month', '2020-01-02'::DATE)": "(tz > 2020-01-01 00:00:00.000000Z)",
}
KEPT = """
i + 1 > 3
i = 2147483647 + 1
d > 1e300 * 1e300
ts > now()
ts > random() * DATE '2020-01-01'
s COLLATE NOCASE = 'a'
d = 'nan'
i > 123456789012345.75
i > 9007199254740993.0::DOUBLE
i > CAST('9007199254740992' AS DOUBLE)
i > TRY_CAST('1.5' AS DOUBLE)
f = CAST('0.1' AS DOUBLE)
i IN (9007199254740995, 1::DOUBLE)
i IN (-9007199254740995, 1::DOUBLE)
i BETWEEN 0.5::DOUBLE AND '9007199254740995'
d > CAST(0.30000000000000004 AS DOUBLE)
dec = '1.105'
dec > 1e0
f > 1e0
lower(s) > 'a'
upper(s) = 'É'
s ILIKE 'é'
regexp_matches(s, 'A', 'g')
regexp_matches(s, 'É', 'i')
regexp_matches(s, '\\pL')
regexp_full_match(s, 'a', 'i')
s SIMILAR TO 'a)(b'
m['a'] + 1 = 2
m[1] = 1
m[s] = 1
lower(mt['k']) = 'ax%b'
floor(d) = 1
i::DOUBLE = 2
u::BIGINT = 2
i8::VARCHAR = '2'
TRY_CAST(i8 AS BIGINT) = 2
NOT (2 = ANY(l))
(2 = ANY(l)) IS NOT TRUE
2 = ANY(SELECT i)
2 = ALL(l)
i = ANY(l)
list_contains(l, i)
list_contains(l, 2.5)
list_contains(ld, 'nan')
list_contains(lt, 2)
list_contains(i, 2)
list_contains(m, 'a')
list_contains(l, NULL)
list_has_any(l, NULL)
list_has_any(l, [i])
'a' IN s
coalesce(i, 0) = 0
year(tz) <> 2020
year(tz) IS NULL
ts_ns::DATE <> '2020-01-02'
year(ts_ns) IS DISTINCT FROM 2020
NOT (year(ts) = 2020)
year(ts) IS NULL
year(ts) = 300000
ts::DATE = date
hour(ts) = 12
bin = '\\xFF'
i = u
""".strip().splitlines()


@pytest.mark.parametrize(("condition", "what"), PUSHED.items(), ids=PUSHED)
def test_a_condition_reaches_the_scan(data, condition, what):
    (actual,) = filters_of(f"SELECT row FROM t WHERE {condition}", data)
    assert actual is not None
    assert what in actual


def test_functions_with_a_schema_are_not_taken_for_columns(tmp_path):
    table = pa.table({"s": ["A", "a", "b"], "upper": ["x", "A", "x"], "i": [1, 2, 3]})
    ia.write_table(table, tmp_path / "a.parquet")
    for condition in ("main.upper(s) = 'A'", "s.upper() = 'A'", "main.upper(s) IN ('A')"):
        assert ia.sql(f"SELECT i FROM t WHERE {condition}", t=tmp_path)["i"].to_pylist() == [1, 2]
        with pytest.raises(ia.PredicateError, match="not a value this understands"):
            ia.dataset(tmp_path).to_table(filter=condition)


def test_a_range_of_whole_numbers_with_a_fractional_bound(tmp_path):
    path = tmp_path / "u.parquet"
    values = pa.array([1, 2, 2**63], pa.uint64())
    pq.write_table(pa.table({"row": range(3), "u": values}), path)
    for condition in ("u BETWEEN 1 AND 2e0", "u BETWEEN 5e-1 AND 2", "NOT (u BETWEEN 3 AND 4e0)"):
        actual = ia.sql(f"SELECT row FROM t WHERE {condition}", t=ia.dataset(path))
        assert actual.column("row").to_pylist() == [0, 1] + [2] * condition.startswith("NOT")


@pytest.mark.parametrize("condition", KEPT)
def test_a_condition_with_another_meaning_is_not_pushed_down(data, condition):
    assert filters_of(f"SELECT row FROM t WHERE {condition}", data) == [None]


def test_engine_and_scans_use_the_same_current_time(tmp_path):
    """The rows have times around that of the query, down to the microsecond."""
    start = datetime.datetime.now(datetime.UTC).replace(microsecond=0, tzinfo=None)
    ticks = np.datetime64(start) + np.arange(0, 10_000_000, 100).astype("m8[us]")
    ia.write_table(pa.table({"ts": ticks}), tmp_path / "t.parquet", max_rows_per_page=1000)
    data = ia.dataset(tmp_path)
    for _ in range(20):
        before = ia.sql(
            "SELECT count(*) AS n, epoch_us(now()) AS now FROM t WHERE ts < now()", t=data
        )
        ((n, now),) = zip(before["n"].to_pylist(), before["now"].to_pylist(), strict=True)
        assert n == (ticks.astype(np.int64) < now).sum()


def test_the_current_time_reaches_the_scan(data, monkeypatch):
    queries = []

    def registered(connection, query, *others, **options):
        queries.append(query)
        return register(connection, query, *others, **options)

    register = duckdb_sql._register
    monkeypatch.setattr(duckdb_sql, "_register", registered)
    ia.sql("SELECT row FROM t WHERE ts > now() - INTERVAL 1 HOUR AND date < today()", t=data)
    (scan,) = queries[0].scans
    actual = re.fullmatch(r"\(\(ts > (.*)\) and \(date < (.*)\)\)", str(scan.filter))
    now = datetime.datetime.now(datetime.UTC)
    since = now - datetime.datetime.fromisoformat(f"{actual[1]}Z")
    assert datetime.timedelta(0, 3600) <= since < datetime.timedelta(0, 3700)
    assert abs(datetime.date.fromisoformat(actual[2]) - now.date()).days <= 1


def test_each_occurrence_has_its_own_filter(data):
    query = """
        WITH r AS (SELECT row, lower(s) AS m FROM t)
        SELECT * FROM t x JOIN t y ON x.i = y.i8 AND y.b LEFT JOIN r ON r.row = x.row AND x.i = 3
        WHERE x.i > 1 AND r.m = 'x' AND EXISTS (SELECT 1 FROM t WHERE i = 4 AND x.b)
    """
    assert filters_of(query, data) == [None, "(i > 1)", "b", "(i == 4)"]


def test_conditions_go_through_subqueries_and_common_table_expressions(data):
    query = """
        WITH r AS (SELECT row, lower(s) AS m, st FROM t WHERE b)
        SELECT * FROM (SELECT *, m AS n FROM r) WHERE n = 'x' AND st.a = 1 AND row > 2
    """
    (actual,) = filters_of(query, data)
    for part in ("and b", "utf8_lower(s)", "FieldRef.Name(a)", "row > 2"):
        assert part in actual


THROUGH = {
    "SELECT * FROM (SELECT i FROM t UNION ALL SELECT row FROM t) WHERE i = 2": [
        "(i == 2)",
        "(row == 2)",
    ],
    "SELECT * FROM (SELECT i FROM t UNION SELECT i8 FROM t) WHERE i = 2": [None, None],
    "SELECT * FROM (SELECT i, i::TINYINT AS k FROM t UNION SELECT i, row FROM t) WHERE i = 2": [
        None,
        "(i == 2)",
    ],
    "SELECT * FROM (FROM t INTERSECT (FROM t EXCEPT ALL FROM t)) WHERE i = 2": ["(i == 2)"] * 3,
    "SELECT * FROM (SELECT i FROM t UNION ALL BY NAME SELECT i FROM t) WHERE i = 2": [None] * 2,
    "SELECT * FROM (SELECT DISTINCT i, s FROM t) WHERE i = 2": ["(i == 2)"],
    "SELECT * FROM (SELECT DISTINCT i, s::INT FROM t) WHERE i = 2": [None],
    "SELECT * FROM (SELECT DISTINCT ON (s) i, s FROM t) WHERE i = 2": [None],
    "SELECT * FROM (SELECT DISTINCT i FROM t LIMIT 3) WHERE i = 2": [None],
    "SELECT * FROM (SELECT i, count(*) AS n FROM t GROUP BY i) WHERE i = 2 AND n = 1": ["(i == 2)"],
    "SELECT * FROM (SELECT i, max(i8 + 1) FROM t GROUP BY i) WHERE i = 2": [None],
    "SELECT * FROM (SELECT lower(s) AS m, count(*) FROM t GROUP BY ALL) WHERE m = 'x'": [None],
    "SELECT * FROM (SELECT lower(s) AS m, count(*) FROM t GROUP BY 1) WHERE m = 'x'": [
        '(utf8_lower(s) == "x")'
    ],
    "SELECT * FROM (SELECT i, count(*) FROM t GROUP BY ROLLUP (i)) WHERE i = 2": [None],
    "SELECT i, count(*) FROM t GROUP BY i HAVING i = 2 AND count(*) > 1": ["(i == 2)"],
    "SELECT i8 AS i, count(*) FROM t GROUP BY i8 HAVING i = 2": [None],
    "SELECT * FROM (SELECT i, row_number() OVER (PARTITION BY i) FROM t) WHERE i = 2": ["(i == 2)"],
    "SELECT * FROM (SELECT i, row_number() OVER (PARTITION BY s) FROM t) WHERE i = 2": [None],
    "WITH r AS (SELECT row, i FROM t) FROM r WHERE i = 2 UNION ALL FROM r WHERE row = 3 AND i = 4": [
        "((i == 2) or ((row == 3) and (i == 4)))"
    ],
    "WITH r AS (FROM t) FROM r WHERE i = 2 UNION ALL FROM r WHERE i = 3 AND i8 + 1 = 2": [
        "((i == 2) or (i == 3))"
    ],
    "WITH r AS (FROM t) FROM r WHERE i = 2 UNION ALL FROM r": [None],
    "WITH r AS (FROM t), q AS (FROM r WHERE i > 0) FROM q WHERE i = 2 UNION ALL FROM q WHERE i = 3": [
        "((i > 0) and ((i == 2) or (i == 3)))"
    ],
    "SELECT x.row FROM t x JOIN t y ON x.i = y.i WHERE x.i = 2": ["(i == 2)"] * 2,
    "SELECT x.row FROM t x, t y, t z WHERE x.i = y.i AND y.i = z.row AND z.row = 2": [
        "(i == 2)",
        "(i == 2)",
        "(row == 2)",
    ],
    "SELECT x.row FROM t x JOIN t y ON x.i = y.i8 WHERE x.i = 2": ["(i == 2)", None],
    "FROM t x JOIN t y ON x.i = y.i SELECT x.row WHERE x.i = 2": ["(i == 2)"] * 2,
    "SELECT x.row FROM t x JOIN t y ON x.d = y.d WHERE x.d = 2": ["(d == 2)", None],
    "SELECT x.row FROM t x LEFT JOIN t y ON x.i = y.i WHERE x.i = 2": ["(i == 2)", None],
    "SELECT x.row FROM t x JOIN t y USING (i) WHERE i = 2": ["(i == 2)"] * 2,
    "FROM t WHERE i = 1 AND i8 + 1 = 2 OR i = 2": ["((i == 1) or (i == 2))"],
    **{
        f"SELECT x.row FROM t x {join} t y ON x.row = y.i8 WHERE "
        "(x.i = 1 AND y.b AND x.i8 + y.i8 = 3) OR (x.i = 2 AND y.s = 'x')": expected
        for join, expected in {
            "JOIN": ["((i == 1) or (i == 2))", '(b or (s == "x"))'],
            "LEFT JOIN": ["((i == 1) or (i == 2))", None],
            "RIGHT JOIN": [None, '(b or (s == "x"))'],
            "FULL JOIN": [None, None],
        }.items()
    },
    **{
        f"SELECT x.row FROM t x {join} t y ON x.row = y.i8 AND "
        "((x.i = 1 AND y.i = 2) OR (x.i = 2 AND (y.i = 3 OR x.b AND y.i = 4)))": expected
        for join, expected in {
            "JOIN": ["((i == 1) or (i == 2))", "(((i == 2) or (i == 3)) or (i == 4))"],
            "LEFT JOIN": [None, "(((i == 2) or (i == 3)) or (i == 4))"],
            "RIGHT JOIN": [None, None],
        }.items()
    },
    "SELECT x.row FROM t x, t y WHERE (x.i = 1 AND y.i = 2) OR x.i = 3 OR (y.i = 4 AND x.i = 5)": [
        "(((i == 1) or (i == 3)) or (i == 5))",
        None,
    ],
    "SELECT x.row FROM t x, t y WHERE NOT ((x.i = 1 AND y.i = 2) OR (x.i = 3 AND y.i = 4))": [
        None,
        None,
    ],
    "SELECT x.row FROM t x JOIN t y USING (i) WHERE (i = 1 AND x.b) OR (i = 2 AND x.s = 'x')": [
        '(b or (s == "x"))',
        None,
    ],
    "SELECT x.row FROM t x JOIN t y ON x.i = y.i WHERE (x.i = 1 AND y.b) OR (x.i = 2 AND y.row = 3)": [
        "((i == 1) or (i == 2))",
        "(((i == 1) or (i == 2)) and (b or (row == 3)))",
    ],
    "SELECT * FROM (SELECT x.i, y.row AS k FROM t x, t y) WHERE (i = 1 AND k = 2) OR (i = 3 AND k = 4)": [
        "((i == 1) or (i == 3))",
        "((row == 2) or (row == 4))",
    ],
    "SELECT * FROM (SELECT i, count(*) AS n FROM t GROUP BY i) WHERE (i = 2 AND n = 1) OR (i = 3 AND n = 2)": [
        "((i == 2) or (i == 3))"
    ],
    "SELECT i FROM t GROUP BY i HAVING (i = 2 AND count(*) > 1) OR (i = 3 AND count(*) > 2)": [
        "((i == 2) or (i == 3))"
    ],
    "SELECT i FROM t GROUP BY i HAVING (i = 2 AND count(*) > 1) OR count(*) > 2": [None],
}


@pytest.mark.parametrize(("query", "expected"), THROUGH.items(), ids=THROUGH)
def test_conditions_go_through_these_clauses(data, query, expected):
    assert filters_of(query, data) == expected


def test_the_query_is_otherwise_as_it_was_written(data):
    query = 'SELECT \'FROM t\' AS é, "T".i -- t\nFROM "T", t AS u'
    actual = scans_of(query, {"t": data.schema})
    one, two = (scan.name for scan in actual.scans)
    assert actual.sql == query.replace('FROM "T"', f'FROM {one} AS "T"').replace(
        "t AS u", f"{two} AS u"
    )


def test_columns_that_may_be_used(data):
    query = "SELECT x.row, count(*) FROM t x JOIN t y USING (i) WHERE y.st.a = 1 GROUP BY ALL"
    one, two = scans_of(query, {"t": data.schema}).scans
    assert one.columns == ("row", "i")
    assert two.columns == ("i", "st")
    (all_,) = scans_of("SELECT t FROM t AS o(t)", {"t": data.schema}).scans
    assert all_.columns == tuple(data.schema.names)


def test_sql_that_is_not_a_single_query_runs_unchanged(data):
    assert scans_of("SELECT 1; SELECT 2", {"t": data.schema}).scans == ()
    assert ia.sql("CREATE TABLE x AS SELECT * FROM t; SELECT count(*) AS n FROM x", t=data)[
        "n"
    ].to_pylist() == [8]
    assert ia.sql("").num_columns == 0


def test_conditions_above_sampling_or_pivoting_are_not_pushed_down():
    schemas = {"t": pa.schema({"id": pa.int64(), "x": pa.int64()})}
    common = "WITH c AS (SELECT id, x FROM t) SELECT * FROM c"
    (plain,) = scans_of(f"{common} WHERE x = 3", schemas).scans
    assert plain.filter is not None
    for on_top in (
        "TABLESAMPLE 10 ROWS",
        "UNPIVOT (x FOR n IN (x, id))",
        "PIVOT (sum(id) FOR id IN (1 AS x))",
    ):
        (scan,) = scans_of(f"{common} {on_top} WHERE x = 3", schemas).scans
        assert scan.filter is None


@pytest.mark.parametrize(
    "query",
    [
        "FROM t |> LIMIT 5 |> WHERE id = 150",
        "SELECT id FROM t UNION ALL (FROM t |> LIMIT 3 |> WHERE id = 3 |> SELECT id)",
        "SELECT id FROM t WHERE id = 3 |> LIMIT 1",
        "FROM t |> AS q |> WHERE q.id = 3",
    ],
)
def test_pipes_are_left_to_the_engine(query):
    schemas = {"t": pa.schema({"id": pa.int64()})}
    assert scans_of(query, schemas, "spark") == Query(query, (), ("t",), is_one=False)
    quoted = "SELECT id FROM t WHERE id = 3 AND '|>' = '|>'"
    assert scans_of(quoted, schemas, "spark").scans[0].filter is not None


@pytest.mark.parametrize("explain", ["EXPLAIN ", "explain analyze\n", "EXPLAIN (FORMAT json) "])
def test_a_query_is_explained_as_it_runs(data, explain, capfd):
    plain = "SELECT row FROM t WHERE i = 2 AND s LIKE '%a%'"
    as_it_runs, explained = (scans_of(q, {"t": data.schema}) for q in (plain, explain + plain))
    assert str(explained.scans) == str(as_it_runs.scans)
    assert explained.sql == explain + as_it_runs.sql
    assert "intarsia_scan_0" in explained.sql
    for reader, operator in ("pages", "ARROW_SCAN"), ("engine", "READ_PARQUET"):
        read = data.with_options(reader=reader)
        (plan,) = ia.sql(explain + plain, t=read)["explain_value"].to_pylist()
        assert operator in plan
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("second", ["05.0004", "05.0005", "05.0010001"])
@pytest.mark.parametrize("unit", ["ms", "us"])
def test_rounded_timestamps_find_duckdbs_rows(second, unit, tmp_path):
    scale = {"ms": 1, "us": 1000}[unit]
    table = pa.table({"t": pa.array([scale * n for n in (4999, 5000, 5001)], pa.timestamp(unit))})
    pq.write_table(table, tmp_path / "t.parquet")
    for constant in (f"'1970-01-01 00:00:{second}'", f"TIMESTAMP '1970-01-01 00:00:{second}'"):
        for condition in (f"t <= {constant}", f"t >= {constant}", f"t IN ({constant})"):
            query = f"SELECT * FROM t WHERE {condition}"
            actual = ia.sql(query, t=tmp_path / "t.parquet")["t"].to_pylist()
            with duckdb.connect() as connection:
                connection.register("t", table)
                expected = connection.execute(query).fetchall()
            assert [(one,) for one in actual] == expected


def test_tables_are_paths_or_data_sets_and_answers_outlive_the_connection(data):
    actual = ia.sql("SELECT a.row FROM a, b WHERE a.i = 2 AND b.i = 1", a=data.files[0], b=data)
    assert actual.to_pydict() == {"row": [1]}


def test_tables_in_memory_are_joined_as_they_are(data):
    users = {"k": [2, 2, 3], "name": ["a", "b", "c"]}
    query = "SELECT d.row, u.name FROM d JOIN u ON d.i = u.k WHERE u.name <> 'b' ORDER BY ALL"
    for table in (pa.table(users), pa.table(users).to_reader(), polars.DataFrame(users)):
        answer = ia.sql(query, d=data, u=table)
        assert answer.to_pydict() == {"row": [1, 2], "name": ["a", "c"]}
    with pytest.raises(ia.PredicateError, match="case"):
        ia.sql("SELECT 1", d=data, D=pa.table(users))


def test_without_duckdb_the_extra_is_named(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ia.MissingDependencyError, match=r"intarsia\[sql\]"):
        ia.sql("SELECT 1")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t WHERE k = 1000",
        "SELECT count(*) FROM t WHERE k + 0 > 100",
        "SELECT b.k FROM t AS a JOIN t AS b USING (k) WHERE a.k > 100",
    ],
)
def test_errors_of_scans_are_raised_unchanged(query, tmp_path):
    pq.write_table(pa.table({"k": pa.array([1], pa.int8())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": [1000]}), tmp_path / "b.parquet")
    data = ia.dataset(tmp_path)
    with pytest.raises(
        ia.FormatError, match=r"b\.parquet, column k: int64 cannot be read"
    ) as caught:
        ia.sql(query, t=data)
    assert "Traceback" not in str(caught.value)
    with pytest.raises(duckdb.Error, match="nothing_there"):
        ia.sql(f"{query} AND nothing_there = 1", t=data)


def test_names_that_differ_by_case_only_are_refused(data):
    with pytest.raises(ia.PredicateError, match="case"):
        ia.sql("SELECT 1", a=data, A=data)


def test_columns_that_differ_by_case_only_take_no_filter(tmp_path):
    ia.write_table(pa.table({"a": [1, 2], "A": [3, 4]}), tmp_path / "x.parquet")
    data = ia.dataset(tmp_path)
    assert filters_of("SELECT * FROM t WHERE a = 2", data) == [None]
    assert ia.sql("SELECT * FROM t WHERE a = 2", t=data).num_rows == 1


def test_case_mappings_of_non_ascii_letters_are_not_ascii():
    """Case mappings on which DuckDB and pyarrow differ do not produce ASCII letters.

    ASCII constants are therefore safe.
    """
    codes = [code for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    with duckdb.connect() as connection:
        characters = pa.table({"c": [chr(code) for code in codes], "code": codes})
        connection.register("characters", characters)
        query = "SELECT c, lower(c) AS lower, upper(c) AS upper FROM characters ORDER BY code"
        actual = connection.sql(query).to_arrow_table()
    for name, function in {"lower": pc.utf8_lower, "upper": pc.utf8_upper}.items():
        ours = function(actual["c"])
        differing = pc.not_equal(ours, actual[name])
        assert pc.sum(differing).as_py() < 200
        for side in (ours, actual[name]):
            texts = side.filter(differing)
            assert not pc.any(pc.string_is_ascii(texts)).as_py()
            assert pc.all(pc.equal(pc.utf8_length(texts), 1)).as_py()


ATOMS = st.sampled_from([c for c in CONDITIONS if "SELECT" not in c and "t.t" not in c])
WHERES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        inner.map("NOT ({})".format),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda parts: "({}) {} ({})".format(*parts)
        ),
        inner.map("({}) IS NOT TRUE".format),
    ),
    max_leaves=4,
)
JOINS = st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"])
SHAPES = st.sampled_from(
    [
        "SELECT row FROM t WHERE {where}",
        "SELECT row FROM (SELECT * FROM t WHERE {on}) AS t WHERE {where}",
        "WITH r AS (SELECT * FROM t WHERE {on}) SELECT row FROM r AS t WHERE {where}",
        "SELECT row FROM (SELECT * FROM t ORDER BY row LIMIT 4) AS t WHERE {where}",
        "SELECT t.row FROM t {join} (SELECT row AS k FROM t WHERE {on}) AS o ON t.i8 = o.k WHERE {where}",
        "SELECT t.row FROM t {join} (SELECT row AS k, i8 AS k8 FROM t) AS o ON t.i8 = k AND ({on}) WHERE {where}",
        "SELECT b, count(*) FROM t WHERE {where} GROUP BY b",
        "SELECT * FROM (SELECT DISTINCT i, s, d, b, l, i8, row FROM t WHERE {on}) AS t WHERE {where}",
        "SELECT row FROM (FROM t WHERE {on} UNION ALL FROM t) AS t WHERE {where}",
        "SELECT row FROM (FROM t EXCEPT ALL FROM t WHERE {on}) AS t WHERE {where}",
        "WITH r AS (FROM t) SELECT row FROM r AS t WHERE {where} UNION ALL SELECT i FROM r AS t WHERE {on}",
        "SELECT t.row, o.k FROM t {join} (SELECT i AS k FROM t) AS o ON t.i = o.k WHERE {where}",
    ]
)


FAILING = {
    "i8 + 100": "TRY(i8 + 100)",
    "u::BIGINT": "TRY_CAST(u AS BIGINT)",
    "list_contains(l, 'x')": "NULL::BOOLEAN",
}
"""Expressions that fail for some rows, and the same expressions with NULL instead."""


def agrees_on_rows(data: ia.Dataset, memory: duckdb.DuckDBPyConnection, query: str) -> None:
    """Like ``agrees``, but a row that other conditions exclude need not raise DuckDB's error."""
    try:
        actual = ia.sql(query, t=data)
    except duckdb.Error:
        agrees(data, memory, query)
        return
    for failing, null in FAILING.items():
        query = query.replace(failing, null)
    expected = memory.sql(query).to_arrow_table()
    assert actual.schema.names == expected.schema.names
    assert canonical(actual, query) == canonical(expected, query)


@settings(max_examples=100, deadline=None)
@given(SHAPES, JOINS, WHERES, WHERES)
@example(
    "SELECT t.row FROM t {join} (SELECT row AS k FROM t) AS o ON t.i8 = k AND {on} WHERE {where}",
    "JOIN",
    "i = 2",
    "i8 + 100 < 200",
)
def test_any_query_gives_duckdbs_answer(data, memory, shape, join, where, on):
    agrees_on_rows(data, memory, shape.format(join=join, where=where, on=on))


SIMPLE = ["i = 2", "i > 0", "d > 5", "s LIKE 'a%'", "s IS NULL", "b", "i8 + 1 > 1", "b IS NOT TRUE"]
OF_TWO = st.recursive(
    st.sampled_from([part.format(c) for c in SIMPLE for part in ("t.{}", "o.{}")] + ["t.i = o.i8"]),
    lambda inner: st.one_of(
        inner.map("NOT ({})".format),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda parts: "({}) {} ({})".format(*parts)
        ),
    ),
    max_leaves=6,
)
SHAPES_OF_TWO = st.sampled_from(
    [
        "SELECT t.row, o.row FROM t, t o WHERE {where}",
        "SELECT t.row, o.row FROM t {join} t o ON t.i8 = o.row WHERE {where}",
        "SELECT t.row FROM t {join} t o ON {where}",
        "SELECT t.row FROM t {join} t o ON t.i = o.i AND ({where})",
        "SELECT t.i, o.b FROM t {join} t o ON t.i8 = o.row GROUP BY t.i, o.b, t.s, o.i8, o.i HAVING "
        "(t.i > 0 AND o.b AND count(*) > 1) OR (t.s LIKE 'a%' AND o.i8 > 2) OR (t.i = 2 AND o.i = 1)",
    ]
)


@settings(max_examples=100, deadline=None)
@given(SHAPES_OF_TWO, st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]), OF_TWO)
def test_any_condition_on_two_tables_gives_duckdbs_answer(data, memory, shape, join, where):
    agrees(data, memory, shape.format(join=join, where=where))


# --- LIKE ---------------------------------------------------------------------------------------

SIGNS = "aB\\%_!\n"
EVERY_TEXT = ["".join(signs) for n in range(4) for signs in itertools.product(SIGNS, repeat=n)]


@pytest.fixture(scope="module")
def every_text(tmp_path_factory):
    table = pa.table({"s": EVERY_TEXT})
    path = tmp_path_factory.mktemp("like") / "a.parquet"
    ia.write_table(table, path, max_rows_per_page=50, write_batch_size=50)
    ia.add_indexes(path, [ia.NGram("s"), ia.Distinct("s")])
    with duckdb.connect() as connection:
        connection.register("t", table)
        yield ia.dataset(path), connection


@settings(max_examples=100, deadline=None)
@given(
    st.text(SIGNS, max_size=5),
    st.sampled_from(["LIKE", "NOT LIKE", "ILIKE"]),
    st.sampled_from(
        [
            "",
            " ESCAPE '!'",
            " ESCAPE '\\'",
            " ESCAPE 'a'",
            " ESCAPE 'B'",
            " ESCAPE ''",
            " ESCAPE '!!'",
        ]
    ),
)
@example("%\\%", "LIKE", "")
@example("%a!!%", "LIKE", " ESCAPE '!'")
@example("!a%", "LIKE", " ESCAPE '!'")
@example("aBB", "ILIKE", " ESCAPE 'B'")
@example("a", "LIKE", " ESCAPE '!!'")
def test_any_pattern_matches_as_in_duckdb(every_text, pattern, like, escape):
    data, memory = every_text
    agrees(data, memory, f"SELECT s FROM t WHERE s {like} '{pattern}'{escape}")


# --- words ----------------------------------------------------------------------------------------

LINES = ["Disk full", "a disk", None, "FULL of disks", "disk is FULL"]
WANTED = ["disk", "a", "a", None, "of full"]


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    path = tmp_path_factory.mktemp("words") / "a.parquet"
    table = pa.table({"m": LINES * 4000, "w": WANTED * 4000, "n": range(5 * 4000)})
    pq.write_table(table, path, row_group_size=5_000)
    return path, table


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("contains_words(m, 'full disk')", [0, 4]),
        ("NOT contains_words(m, 'full disk')", [1, 3]),
        ("contains_words(m, 'FULL') OR m IS NULL", [0, 2, 3, 4]),
        ("contains_words(lower(m), 'disks')", [3]),
        ("contains_words(m, w)", [0, 1]),
        ("contains_words(m, NULL) IS NULL", [0, 1, 2, 3, 4]),
    ],
)
def test_words_are_those_of_contains_words(lines, condition, expected):
    path, _ = lines
    actual = ia.sql(f"SELECT n FROM lines WHERE {condition} ORDER BY n", lines=path)
    assert actual["n"].to_pylist() == [n for n in range(5 * 4000) if n % 5 in expected]


def test_conditions_on_words_reach_the_scan(lines):
    _, table = lines
    query = "SELECT n FROM lines WHERE contains_words(m, 'full disk') AND n < 9"
    (scan,) = scans_of(query, {"lines": table.schema}).scans
    assert scan.filter.equals(ia.contains_words("m", "full disk") & (pc.field("n") < 9))


def test_contains_words_takes_only_a_string_column_and_a_string(lines):
    with pytest.raises(duckdb.Error, match="contains_words"):
        ia.sql("SELECT contains_words(m) FROM lines", lines=lines[0])


def test_changes_of_a_statement_do_not_persist(data):
    made = "CREATE TABLE x AS SELECT row FROM t; SET threads = 1; SELECT count(*) AS n FROM x"
    assert ia.sql(made, t=data).to_pydict() == {"n": [8]}
    with pytest.raises(duckdb.CatalogException):
        ia.sql("SELECT * FROM x")
    with pytest.raises(duckdb.CatalogException):
        ia.sql("SELECT * FROM t")
    query = "SELECT current_setting('threads') AS n, current_setting('TimeZone') AS zone"
    (actual,) = ia.sql(query).to_pylist()
    assert actual["n"] != 1 or os.cpu_count() == 1
    assert actual["zone"] == "UTC"


def test_global_settings_of_a_query_do_not_persist(data):
    for query in ("FROM enable_logging()", "SELECT row FROM t, LATERAL enable_logging() LIMIT 1"):
        ia.sql(query, t=data)
    setting = "SELECT value FROM duckdb_settings() WHERE name = 'enable_logging'"
    assert ia.sql(setting)["value"].to_pylist() == ["0"]


def test_a_separate_database_uses_the_same_current_time(tmp_path):
    start = datetime.datetime.now(datetime.UTC)
    moments = [start + datetime.timedelta(microseconds=50 * n) for n in range(200_000)]
    pq.write_table(pa.table({"ts": pa.array(moments, pa.timestamp("us", "UTC"))}), tmp_path / "a")
    query = (
        "SELECT (SELECT max(ts) FROM t WHERE ts <= now()) AS m, now() AS n FROM pragma_version()"
    )
    (actual,) = ia.sql(query, t=tmp_path / "a").to_pylist()
    assert datetime.timedelta(0) <= actual["n"] - actual["m"] < datetime.timedelta(microseconds=50)


@pytest.mark.parametrize("name", ["table", "tables", "pa", "nothing"])
def test_only_given_tables_are_visible(name, data):
    with pytest.raises(duckdb.CatalogException, match="does not exist"):
        ia.sql(f'SELECT * FROM "{name}"', t=data)


def test_equal_join_columns_are_computed_once_for_all_conditions(data, monkeypatch):
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return equal_columns(*arguments)

    monkeypatch.setattr(predicate_pushdown, "equal_columns", counted)
    condition = " AND ".join(f"row <> {number}" for number in range(50))
    scans_of(f"SELECT * FROM t WHERE {condition}", {"t": data.schema})
    assert len(calls) == 1


def test_one_of_thousands_of_floats(tmp_path):
    pq.write_table(
        pa.table({"x": [-0.0, 0.5, 7.0], "y": pa.array([0, 0.5, 7], pa.float32())}),
        tmp_path / "a.parquet",
    )
    members = ", ".join(f"{number}.0" for number in range(10_000))
    for column in "xy":
        query = f"SELECT {column} FROM t WHERE {column} IN ({members}) ORDER BY x"
        assert ia.sql(query, t=tmp_path)[column].to_pylist() == [0, 7]
        assert ia.dataset(tmp_path).count_rows(filter=f"{column} IN ({members})") == 2


def test_queries_run_at_the_same_time(data):
    def ask(number: int) -> list[int]:
        return ia.sql("SELECT row FROM t WHERE row = ?", [number], t=data)["row"].to_pylist()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, [0, 1, 2, 3] * 10)) == [[0], [1], [2], [3]] * 10


def test_tables_are_released_after_the_query():
    table = pa.table({"a": [1]})
    left = weakref.ref(table)
    assert ia.sql("SELECT a FROM t", t=table).num_rows == 1
    del table
    gc.collect()
    assert left() is None


@pytest.mark.parametrize(
    ("query", "is_rewritten"),
    [
        ("SELECT current_date FROM t", False),
        ("SELECT CURRENT_DATE() FROM t", True),
        ("SELECT identifier('day') FROM t", False),
        ("SELECT list[1] FROM t", False),
        ("SELECT date_trunc(day, date) FROM t", False),
        ("SELECT date FROM t WHERE date_trunc(day, date) > DATE '2020-01-01' AND day = 1", False),
        ("SELECT day FROM t WHERE date_trunc('day', date) > DATE '2020-01-01'", True),
        ("SELECT list, date FROM t WHERE date < CAST('2020-01-01' AS date)", True),
        ("SELECT max(max), current_timestamp FROM t WHERE date < DATE '2020-01-01'", True),
        ("SELECT 1 FROM t WHERE date < current_timestamp - INTERVAL 1 DAY", True),
    ],
)
def test_an_ambiguous_column_name_leaves_the_query_unchanged(query, is_rewritten):
    names = {"current_date": pa.date32(), "date": pa.date32(), "max": pa.int64(), "day": pa.int64()}
    schema = pa.schema({**names, "list": pa.list_(pa.int64())})
    actual = scans_of(query, {"t": schema})
    assert bool(actual.scans) == is_rewritten
    assert actual.others == (() if is_rewritten else ("t",))


def test_a_table_that_sqlglot_drops_is_available(data):
    query = "SELECT count(*) AS n FROM (TABLE t)"
    assert ia.sql(query, t=data).to_pylist() == [{"n": 8}]


HALVES = [
    "SELECT i FROM t WHERE i = 1",
    "SELECT count(*) AS n FROM t",
    "SELECT * FROM t WHERE h = 1.5 ORDER BY i",
    "SELECT sum(h) AS s, max(h) AS m FROM t WHERE h > 23",
    "SELECT i, d FROM t WHERE d = 12.5",
    "SELECT i, e FROM t WHERE e BETWEEN 12.5 AND 13 ORDER BY i",
    "SELECT i FROM t WHERE list_contains(l, 3) ORDER BY i LIMIT 3",
    "SELECT i FROM t ORDER BY h DESC, i LIMIT 3",
]


@pytest.mark.parametrize("query", HALVES)
def test_types_unknown_to_duckdb_are_read_as_from_its_files(query, tmp_path):
    path, rows = tmp_path / "t.parquet", range(1000)
    quarters = [decimal.Decimal(n) / 4 for n in rows]
    halves = pa.array([n % 97 / 4 for n in rows]).cast(pa.float16())
    lists = pa.array([[float(n % 5)] for n in rows], pa.list_(pa.float32()))
    table = pa.table(
        {
            "i": rows,
            "h": halves,
            "d": pa.array(quarters, pa.decimal256(50, 2)),
            "e": pa.array(quarters, pa.decimal256(20, 2)),
            "l": lists.cast(pa.list_(pa.float16())),
        }
    )
    pq.write_table(table, path, row_group_size=300, max_rows_per_page=50, write_page_index=True)
    ia.add_indexes(path, ["h:minmax", "i:lookup"])
    expected = duckdb.sql(query.replace("FROM t", f"FROM '{path}'")).to_arrow_table()
    assert ia.sql(query, t=path) == expected
    assert ia.sql(query, t=table) == expected
    assert ia.sql(query, t=ia.dataset(path).filter("i < 2000")) == expected


def test_a_filter_keeps_its_meaning_for_types_unknown_to_duckdb(tmp_path):
    """As doubles, the two values are equal."""
    digits = [decimal.Decimal(10**50 + n) for n in (0, 1)]
    pq.write_table(
        pa.table({"i": [0, 1], "d": pa.array(digits, pa.decimal256(60, 0))}), tmp_path / "t"
    )
    data = ia.dataset(tmp_path / "t").filter(
        pc.field("d") == pa.scalar(digits[1], pa.decimal256(60, 0))
    )
    assert data.to_table(["i"])["i"].to_pylist() == [1]
    with pytest.raises(duckdb.NotImplementedException, match="d:60,0,256"):
        ia.sql("SELECT i FROM t", t=data)


def test_an_internal_error_of_duckdb_ends_no_other_query(tmp_path):
    """DuckDB's internal errors leave a database in which no query runs any more."""
    bad = pa.array([b"\xff\xfe"] * 10, pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 10, bad.buffers())
    pq.write_table(pa.table({"s": texts}), tmp_path / "bad.parquet")
    assert ia.sql("SELECT 1 AS one").to_pydict() == {"one": [1]}
    before = connection_module._shared.get()
    data = ia.dataset(tmp_path / "bad.parquet", reader="pages")
    with pytest.raises(duckdb.InternalException):
        ia.sql("SELECT upper(s) AS u FROM t", t=data)
    assert connection_module._shared._database is None
    connection_module._shared._database = before  # as in a query that began before
    assert ia.sql("SELECT 1 AS one").to_pydict() == {"one": [1]}
    after = connection_module._shared.get()
    assert after is not before
    assert ia.sql("SELECT 2 AS two").to_pydict() == {"two": [2]}
    assert connection_module._shared.get() is after
