"""Writes the Iceberg tables of ``iceberg.tar.xz`` by Spark, with the rows that Spark reads.

Needs Java 17 and an environment of its own with ``pyspark==3.5.*`` and
``snowpark-connect-deps-iceberg``, which brings Iceberg's runtime::

    python tests/interop/spark_tables/write_tables.py

The runtime lacks its copy of Jackson, which is made from Spark's own jars. Each folder of the
archive is a table. ``rows/NAME-SNAPSHOT`` has the rows of a snapshot as a Parquet file.
"""

from __future__ import annotations

import shutil
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import snowpark_connect_deps_iceberg as deps
from pyspark.sql import SparkSession

PLACE = Path("/tmp/intarsia-spark-tables")
"""The folder that the tables' metadata name."""
ARCHIVE = Path(__file__).with_name("iceberg.tar.xz")
OLD, NEW = "com/fasterxml/jackson", "org/apache/iceberg/shaded/com/fasterxml/jackson"
CONSTANT_BYTES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2}
CONSTANT_BYTES |= {17: 4, 18: 4, 19: 2, 20: 2}
"""Sizes of the constants of a class file after their tags. Strings, tag 1, have their own."""

MERGE_ON_READ = ", ".join(
    f"'write.{action}.mode' = 'merge-on-read'" for action in ("delete", "update", "merge")
)
ROWS = """SELECT CAST(id AS INT) AS id,
    concat('k', lpad(CAST(id * 7 % 100 AS STRING), 2, '0')) AS k,
    IF(id % 11 = 0, NULL, concat('d', id % 3)) AS day,
    timestamp_micros(1704067200000000 + id * 5400000000) AS at,
    CAST(timestamp_micros(1704067200000000 + id * 5400000000) AS TIMESTAMP_NTZ) AS local_at,
    date_add(DATE '2024-01-01', CAST(id % 5 AS INT)) AS date,
    CAST(IF(id % 5 = 0, NULL, id / 8) AS FLOAT) AS x, CAST(id / 4 AS DECIMAL(9, 2)) AS price,
    CAST(concat('b', id) AS BINARY) AS raw, array(id, NULL) AS tags,
    named_struct('a', CAST(id AS INT), 'b', named_struct('c', concat('c', id % 6), 'd', id)) AS s,
    map('p', named_struct('u', id), 'q', NULL) AS m,
    array(named_struct('u', CAST(id AS INT), 'v', concat('v', id))) AS ls
    FROM range({start}, {stop}, 1, 1)"""


def table(name: str, by: str = "", properties: str = "", version: int = 2) -> list[str]:
    """Returns the statements that make a table of 30 rows."""
    partitions = f"PARTITIONED BY ({by})" if by else ""
    settings = ", ".join(filter(None, [f"'format-version' = '{version}'", properties]))
    made = f"CREATE TABLE t.{name} USING iceberg {partitions} TBLPROPERTIES ({settings}) AS "
    return [made + ROWS.format(start=0, stop=30)]


def insert(name: str, start: int) -> str:
    """Returns the statement that appends ten rows."""
    return f"INSERT INTO t.{name} " + ROWS.format(start=start, stop=start + 10)


def changes(name: str) -> list[str]:
    """Returns statements that delete, update and merge rows, one commit each."""
    merge = f"""MERGE INTO t.{name} AS old USING (SELECT 7 AS id UNION SELECT 8) AS new
        ON old.id = new.id WHEN MATCHED AND old.id = 7 THEN DELETE
        WHEN MATCHED THEN UPDATE SET k = 'merged'"""
    return [
        f"DELETE FROM t.{name} WHERE id % 9 = 4",
        f"UPDATE t.{name} SET k = 'updated', at = NULL WHERE id % 10 = 2",
        merge,
        insert(name, 40),
    ]


def with_changes(name: str, by: str = "", properties: str = "", version: int = 2) -> list[str]:
    """Returns the statements of a table in which rows are deleted at reading."""
    settings = ", ".join(filter(None, [MERGE_ON_READ, properties]))
    return table(name, by, settings, version) + changes(name)


SHAPES = {
    "position_deletes": with_changes("position_deletes", "bucket(3, id)"),
    "deletes_of_partitions": with_changes(
        "deletes_of_partitions", "day", "'write.delete.granularity' = 'partition'"
    ),
    "deletion_vectors": with_changes("deletion_vectors", "truncate(2, k)", version=3),
    "upgraded": [
        *with_changes("upgraded"),
        "ALTER TABLE t.upgraded SET TBLPROPERTIES ('format-version' = '3')",
        "DELETE FROM t.upgraded WHERE id % 7 = 3",
    ],
    "copied": [
        *table("copied", "days(at)", "'write.metadata.compression-codec' = 'gzip'"),
        *changes("copied"),
    ],
    "by_times": [*table("by_times", "hours(local_at), date", version=1), insert("by_times", 30)],
    "evolved_spec": [
        *table("evolved_spec", "day"),
        "ALTER TABLE t.evolved_spec ADD PARTITION FIELD truncate(10, id) AS tens",
        insert("evolved_spec", 30),
        "ALTER TABLE t.evolved_spec DROP PARTITION FIELD day",
        "ALTER TABLE t.evolved_spec ADD PARTITION FIELD bucket(2, k)",
        insert("evolved_spec", 40),
        "DELETE FROM t.evolved_spec WHERE id < 3",
    ],
    "evolved_spec_of_version_1": [
        *table("evolved_spec_of_version_1", "day, truncate(10, id)", version=1),
        "ALTER TABLE t.evolved_spec_of_version_1 DROP PARTITION FIELD day",
        insert("evolved_spec_of_version_1", 30),
    ],
    "changed_columns": [
        *table("changed_columns", "day", MERGE_ON_READ),
        *(
            f"ALTER TABLE t.changed_columns {change}"
            for change in (
                "RENAME COLUMN k TO key",
                "RENAME COLUMN day TO part",
                "DROP COLUMN x",
                "ADD COLUMN x STRING AFTER id",
                "ALTER COLUMN price FIRST",
                "ALTER COLUMN id TYPE BIGINT",
                "ALTER COLUMN price TYPE DECIMAL(20, 2)",
                "RENAME COLUMN s.b.c TO e",
                "ALTER COLUMN s.a TYPE BIGINT",
                "ADD COLUMN s.b.f DOUBLE FIRST",
                "DROP COLUMN s.b.d",
                "ADD COLUMN s.b.d STRING",
                "RENAME COLUMN m.value.u TO w",
                "RENAME COLUMN ls.element.v TO u2",
                "ALTER COLUMN ls.element.u TYPE BIGINT",
                "ADD COLUMN ls.element.new DATE",
            )
        ),
        """INSERT INTO t.changed_columns
            SELECT 123456789012345678.25, id + 9000000000, 'new', IF(id = 1, NULL, key), part, at,
                local_at, date, raw, tags,
                named_struct('a', id + 9000000000, 'b',
                    named_struct('f', 0.5D, 'e', 'x', 'd', '')),
                m, array(named_struct('u', id + 9000000000, 'u2', 'v', 'new', DATE '2024-05-05'))
            FROM t.changed_columns WHERE id < 3""",
        "DELETE FROM t.changed_columns WHERE id IN (4, 9000000000)",
    ],
    "odd_partitions": [
        """CREATE TABLE t.odd_partitions (id INT, `a b/ü` STRING, d DECIMAL(9, 2), raw BINARY)
            USING iceberg PARTITIONED BY (`a b/ü`, d, raw)""",
        """INSERT INTO t.odd_partitions VALUES (1, 'x=1/y%2F', 1.5, X'00FF'), (2, NULL, NULL, NULL),
            (3, '', -1.25, X''), (4, 'ü ', 0, X'41')""",
    ],
    "compacted": [
        *with_changes("compacted", version=3),
        "CALL system.rewrite_data_files(table => 't.compacted', options => map('rewrite-all', "
        "'true'))",
        "DELETE FROM t.compacted WHERE id = 9",
        "CALL system.rewrite_manifests('t.compacted')",
    ],
    "branches": [
        *table("branches", properties=MERGE_ON_READ),
        "ALTER TABLE t.branches CREATE TAG start",
        "ALTER TABLE t.branches CREATE BRANCH audit",
        "DELETE FROM t.branches.branch_audit WHERE id % 2 = 0",
        insert("branches", 30),
    ],
}
"""The statements that make each table."""


def relocated(class_file: bytes) -> bytes:
    """Returns a class file in which Jackson's packages have the names of the runtime's copy."""
    (count,) = struct.unpack(">H", class_file[8:10])
    parts, at, number = [class_file[:10]], 10, 1
    while number < count:
        tag = class_file[at]
        if tag == 1:
            (size,) = struct.unpack(">H", class_file[at + 1 : at + 3])
            text = moved(class_file[at + 3 : at + 3 + size])
            parts.append(b"\x01" + struct.pack(">H", len(text)) + text)
            at += 3 + size
        else:
            parts.append(class_file[at : at + 1 + CONSTANT_BYTES[tag]])
            at += 1 + CONSTANT_BYTES[tag]
        number += 2 if tag in (5, 6) else 1
    return b"".join(parts) + class_file[at:]


def moved(text: bytes) -> bytes:
    """Returns text in which Jackson's packages have the names of the runtime's copy."""
    for old, new in ((OLD, NEW), (OLD.replace("/", "."), NEW.replace("/", "."))):
        text = text.replace(old.encode(), new.encode())
    return text


def write_jackson(jar: Path) -> None:
    """Writes a jar of Spark's Jackson under the names that the runtime uses."""
    written = set()
    with zipfile.ZipFile(jar, "w") as copy:
        for name in ("annotations", "core", "databind"):
            (source,) = Path(pyspark.__file__).parent.glob(f"jars/jackson-{name}-2*.jar")
            with zipfile.ZipFile(source) as classes:
                for path in classes.namelist():
                    if path.endswith(".class") and path.startswith(OLD) and path not in written:
                        written.add(path)
                        copy.writestr(path.replace(OLD, NEW), relocated(classes.read(path)))


def session(jackson: Path) -> SparkSession:
    """Returns a session whose tables lie in ``PLACE/t``."""
    (runtime,) = Path(deps.__file__).parent.glob("jars/iceberg-spark-runtime-3.5_2.12-*.jar")
    settings = {
        "spark.jars": f"{runtime},{jackson}",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.defaultCatalog": "c",
        "spark.sql.catalog.c": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.c.type": "hadoop",
        "spark.sql.catalog.c.warehouse": f"file://{PLACE}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def snapshots(spark: SparkSession, name: str) -> Iterator[int]:
    """Yields the ids of a table's snapshots."""
    for row in spark.sql(f"SELECT snapshot_id FROM t.{name}.snapshots").collect():
        yield row.snapshot_id


def main() -> None:
    """Writes the archive."""
    shutil.rmtree(PLACE, ignore_errors=True)
    jackson = PLACE.with_suffix(".jar")
    write_jackson(jackson)
    spark = session(jackson)
    for name, statements in SHAPES.items():
        for statement in statements:
            spark.sql(statement)
        for snapshot in snapshots(spark, name):
            rows = spark.sql(f"SELECT * FROM t.{name} VERSION AS OF {snapshot}").coalesce(1)
            rows.write.parquet(f"file://{PLACE}/rows/{name}-{snapshot}")
        rows = spark.table(f"t.{name}").coalesce(1)
        rows.write.parquet(f"file://{PLACE}/rows/{name}-now")
    spark.stop()
    for path in [*PLACE.rglob(".*.crc"), *PLACE.rglob("_SUCCESS")]:
        path.unlink()
    with tarfile.open(ARCHIVE, "w:xz") as archive:
        archive.add(PLACE, ".")


if __name__ == "__main__":
    main()
