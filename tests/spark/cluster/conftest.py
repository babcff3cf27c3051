"""A standalone cluster on this machine: a master and two workers of one core each.

::

    this process (driver) ── master ─┬─ worker on 127.0.0.1 ── executor ── Python
                                     └─ worker on localhost ── executor ── Python

The workers use two names of one machine, because Spark does not retry a task on the same host.
They start without ``PYTHONPATH``: executors can only import what a test provides.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import intarsia.spark as ias
from intarsia.spark.session import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCES = Path(ias.__file__).parents[2]
HOSTS = ("127.0.0.1", "localhost")
PATIENCE = 300
"""Time limit in seconds for anything here."""
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.locality.wait": "0",
    "spark.python.authenticate.socketTimeout": "120s",
}


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Waits for a true value of ``condition``, and returns it."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        actual = condition()
        if actual:
            return actual
        time.sleep(0.02)
    raise AssertionError(f"waited {PATIENCE} s for {what}")


class Cluster:
    """The processes of the cluster, which end with the tests of this folder."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        self._folder = folder
        self._class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def start(self) -> None:
        """Starts the master, then the workers."""
        _, self.url = self._started(
            ["master.Master", "--host", HOSTS[0], "--port", "0", "--webui-port", "0"],
            r"Starting Spark master at (spark://\S+)",
        )
        for host in HOSTS:
            self.start_worker(host)

    def start_worker(self, host: str) -> None:
        """Starts a worker of one core under one of the machine's names."""
        command = ["worker.Worker", "--host", host, "--cores", "1", "--memory", "600m"]
        command += ["--work-dir", str(self._folder / "work"), "--webui-port", "0", self.url]
        self._workers[host], _ = self._started(command, r"Successfully registered with (master)")

    def kill_worker(self, host: str) -> None:
        """Kills a worker; its executor ends when it notices."""
        self._workers[host].kill()
        self._workers[host].wait()

    def executors(self) -> list[int]:
        """Returns the process ids of all executors."""
        workers = {worker.pid for worker in self._workers.values()}
        actual = []
        for entry in os.listdir("/proc"):
            try:
                command = Path("/proc", entry, "cmdline").read_text()
                parent = int(Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            if parent in workers and "CoarseGrainedExecutorBackend" in command:
                actual.append(int(entry))
        return actual

    def kill_executor(self) -> int:
        """Kills one executor; the worker starts another one."""
        victim = self.executors()[0]
        os.kill(victim, signal.SIGKILL)
        return victim

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _started(self, command: list[str], says: str) -> tuple[subprocess.Popen[bytes], str]:
        """Starts one of Spark's daemons; returns its message when it is ready."""
        keep = ("PATH", "HOME", "LANG", "TMPDIR", "JAVA_HOME", "JDK_JAVA_OPTIONS")
        environment = {name: os.environ[name] for name in keep if name in os.environ} | {
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_LOCAL_DIRS": str(self._folder / "scratch"),
        }
        log = self._folder / f"daemon-{len(self._processes)}.log"
        with open(log, "wb") as said:
            process = subprocess.Popen(
                [self._class, f"org.apache.spark.deploy.{command[0]}", *command[1:]],
                env=environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        self._processes.append(process)

        def answer() -> re.Match[str] | None:
            assert process.poll() is None, log.read_text()
            return re.search(says, log.read_text())

        return process, str(wait_for(answer, says).group(1))


@pytest.fixture(scope="session")
def eventually() -> Callable[..., Any]:
    """``wait_for``."""
    return wait_for


@pytest.fixture(scope="package")
def cluster(mapped_classes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not Path("/proc/self/stat").exists() or shutil.which("bash") is None:
        pytest.skip("executors are looked for in /proc, and Spark's scripts need bash")
    home = find_java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    actual = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        actual.start()
        yield actual
    finally:
        actual.stop()


@pytest.fixture(scope="package")
def session_on(cluster: Cluster) -> Iterator[Callable[..., SparkSession]]:
    """Returns a function that starts a session on the cluster, in place of the current one.

    ``python`` is that of the executors; ``packages`` is its ``PYTHONPATH``.
    """

    def end() -> None:
        from pyspark import SparkContext

        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        os.environ.pop("PYSPARK_PYTHON", None)

    def start(python: str = sys.executable, packages: str = "", **settings: str) -> SparkSession:
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        if active is not None:
            active.stop()
        end()
        os.environ["PYSPARK_PYTHON"] = python
        own = {"spark.executorEnv.PYTHONPATH": packages}
        actual = ias.session(cluster.url, app_name="cluster", **SETTINGS, **own, **settings)
        actual.sparkContext.setLogLevel("OFF")
        wait_for(lambda: len(cluster.executors()) == len(HOSTS), "executors")
        return actual

    yield start
    end()


@pytest.fixture(scope="package")
def spark(session_on: Callable[..., SparkSession], preloaded_python: str) -> SparkSession:
    """A session on the cluster with speculation: slow tasks are run a second time in parallel."""
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "1500ms",
        "spark.speculation.multiplier": "1.5",
        "spark.speculation.quantile": "0.5",
    }
    return session_on(preloaded_python, str(SOURCES), **speculation)
