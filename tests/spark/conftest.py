"""One Spark session for all tests here, and data of all common types as Spark writes it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from class_archive import archive_in

import intarsia.spark as ias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 4000
# Options of every Java that tests start, in child processes too. C1 alone compiles faster, and one
# thread collects garbage: on two cores this saves a third of the processor time of a small job.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
ALL_TYPES = [
    "id",
    "IF(id % 7 = 0, NULL, CAST(id % 100 AS TINYINT)) AS i8",
    "IF(id % 7 = 0, NULL, CAST(id AS SMALLINT)) AS i16",
    "IF(id % 7 = 0, NULL, CAST(id * 1000 AS INT)) AS i32",
    "IF(id % 7 = 0, NULL, (id * 7919) % 4000) AS key",
    "IF(id % 7 = 0, NULL, CAST(id / 8 AS FLOAT)) AS f32",
    "IF(id % 7 = 0, NULL, CAST(id AS DOUBLE) / 3) AS f64",
    "IF(id % 7 = 0, NULL, id % 2 = 0) AS flag",
    "IF(id % 7 = 0, NULL, CAST(id AS DECIMAL(18, 2)) / 4) AS money",
    "IF(id % 7 = 0, NULL, CAST(id AS DECIMAL(30, 5))) AS fortune",
    "IF(id % 7 = 0, NULL, concat('né ', id % 50, '%_')) AS text",
    "IF(id % 7 = 0, NULL, md5(CAST(id AS STRING))) AS hash",
    "IF(id % 7 = 0, NULL, CAST(concat('b', id) AS BINARY)) AS raw",
    "IF(id % 7 = 0, NULL, date_add(DATE '2013-01-01', CAST(id AS INT))) AS day",
    "IF(id % 7 = 0, NULL, timestamp_micros(1400000000000001 + id * 61000000)) AS ts",
    "IF(id % 7 = 0, NULL, CAST(timestamp_micros(id * 61000001) AS TIMESTAMP_NTZ)) AS ts_ntz",
    "IF(id % 5 = 0, NULL, array(id, NULL, id + 1)) AS list",
    "IF(id % 5 = 0, NULL, map(concat('k', id), id)) AS map",
    "IF(id % 5 = 0, NULL, named_struct('a', id, 'b', named_struct('c', id % 3))) AS struct",
    "IF(id % 5 = 0, NULL, array(named_struct('x', id))) AS list_struct",
    "CAST(NULL AS INT) AS nothing",
    "CASE id % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'b & c' ELSE NULL END AS part",
]
DAEMON = Path(__file__).with_name("preloaded_daemon.py")
PYTHON = """#!/bin/sh
[ "$1 $2" != "-m pyspark.daemon" ] || {{ shift; set -- "{daemon}" "$@"; }}
exec "{python}" "$@"
"""
"""The Python of workers, which preloads their modules."""


@pytest.fixture(scope="session")
def mapped_classes(pytestconfig: pytest.Config) -> None:
    """Lets every Java that tests start map Spark's classes from an archive, which pytest caches."""
    archive = archive_in(pytestconfig.cache.mkdir("spark-classes"))
    if archive is not None:
        os.environ["JDK_JAVA_OPTIONS"] += f' "-XX:SharedArchiveFile={archive}"'


@pytest.fixture(scope="session")
def preloaded_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python for ``PYSPARK_PYTHON`` whose daemon preloads the modules of workers."""
    python = tmp_path_factory.mktemp("python") / "python"
    python.write_text(PYTHON.format(python=sys.executable, daemon=DAEMON))
    python.chmod(0o755)
    return str(python)


@pytest.fixture(scope="package")
def spark(
    mapped_classes: None, preloaded_python: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", preloaded_python)
        session = ias.session("local[2]", app_name="tests", **settings)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    end_java()


def end_java() -> None:
    """Ends the driver's Java, which keeps its memory when a session stops."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    gateway.proc.stdin.close()  # it ends when its input does
    gateway.proc.wait(60)


@pytest.fixture
def jobs(spark: SparkSession) -> Callable[[], list[str]]:
    """Returns the descriptions of the jobs that started since the test did, in their order."""

    def all_jobs() -> list[tuple[int, str]]:
        context = spark.sparkContext._jsc.sc()
        context.listenerBus().waitUntilEmpty()
        found = context.statusStore().jobsList(None)
        listed = [found.apply(number) for number in range(found.size())]
        described = [(job.jobId(), job.description()) for job in listed]
        return sorted((n, text.get() if text.isDefined() else "") for n, text in described)

    last = max((number for number, _ in all_jobs()), default=-1)
    return lambda: [text for number, text in all_jobs() if number > last]


@pytest.fixture
def setting(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Changes a setting of the session for one test."""
    before: dict[str, str] = {}

    def change(key: str, value: str) -> None:
        before.setdefault(key, spark.conf.get(key))
        spark.conf.set(key, value)

    yield change
    for key, value in before.items():
        spark.conf.set(key, value)


@pytest.fixture(scope="session")
def all_types_sql() -> list[str]:
    """Columns of all types, of a range of ``id``."""
    return ALL_TYPES


@pytest.fixture(scope="package")
def all_types(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 1).selectExpr(*ALL_TYPES)


@pytest.fixture(scope="package")
def by_spark(all_types: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files in folders of ``part``, without indexes, written by Spark itself."""
    folder = tmp_path_factory.mktemp("by-spark") / "lake"
    all_types.write.option("parquet.page.row.count.limit", "200").partitionBy("part").parquet(
        str(folder)
    )
    return folder
