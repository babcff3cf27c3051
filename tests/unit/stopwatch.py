"""Time limits that hold on a machine whose cores are busy with other processes."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path


def main_thread_wait(process: int) -> float:
    """Returns the seconds for which the main thread of a process was ready and had no core."""
    return _wait(Path(f"/proc/{process}"))


def total_wait(process: int) -> float:
    """Returns the seconds for which threads of a process were ready and had no core, summed."""
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
    except OSError:
        return 0.0
    return sum(map(_wait, threads))


def _wait(thread: Path) -> float:
    """Returns 0 if the kernel does not count, or if the thread has ended."""
    try:
        return int((thread / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


class Stopwatch:
    """Measures wall time less the time for which threads of this process waited for a core."""

    def __init__(self) -> None:
        self._began, self._waited = time.monotonic(), total_wait(os.getpid())

    def seconds(self) -> float:
        """Returns the seconds since the start."""
        took = time.monotonic() - self._began
        return took - max(0.0, total_wait(os.getpid()) - self._waited)


def let_run(process: subprocess.Popen[str], seconds: float) -> None:
    """Waits until the main thread of ``process`` has run or slept for ``seconds``."""
    began = time.monotonic()
    while time.monotonic() - began - main_thread_wait(process.pid) < seconds:
        assert process.poll() is None, f"the process ended before {seconds} s"
        time.sleep(0.01)


def seconds_to_end(process: subprocess.Popen[str]) -> float:
    """Waits until ``process`` ends.

    Returns the wall time less the time for which its threads or this process waited for a core.
    """
    watch = Stopwatch()
    before = waited = total_wait(process.pid)
    while process.poll() is None:
        waited = max(waited, total_wait(process.pid))
        time.sleep(0.01)
    return watch.seconds() - (waited - before)
