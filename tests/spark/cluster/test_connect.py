"""Spark Connect, in its own process, which cannot have another session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from intarsia.spark.session import find_java_home

pytestmark = [pytest.mark.spark, pytest.mark.cluster]
CASES = Path(__file__).with_name("connect_cases.py")


def test_all_cases_hold_on_spark_connect(preloaded_python, tmp_path):
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio")
    pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status")
    home = find_java_home()
    environment = os.environ | ({"JAVA_HOME": home} if home else {})
    # Spark sets these in a process that has had a session; they lead to that session's Java.
    drop = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE")
    environment["PYSPARK_PYTHON"] = preloaded_python
    environment["SPARK_TESTING"] = "1"  # Spark then uses a free port, instead of 15002
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)]
    # The other conftest.py is for sessions on the cluster, so no fixture of it is used.
    ran = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'cases'}", "-W", "default"],
        env={name: value for name, value in environment.items() if name not in drop},
        capture_output=True,
        text=True,
        timeout=850,  # three suites may run at once
        check=False,
    )
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-10_000:]
    assert " passed" in ran.stdout
    assert "skipped" not in ran.stdout
