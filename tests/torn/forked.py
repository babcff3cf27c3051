"""Forks processes from one that has imported the package, which takes a second."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import intarsia as ia

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    sorted({getattr(getattr(ia, name), "__module__", "intarsia") for name in ia.__all__})
)


class Fork:
    """A process that runs ``code``, in a group of its own, which has ``ia`` and ``path``."""

    def __init__(self, process: BaseProcess, messages: Connection) -> None:
        self._process, self._messages = process, messages

    def is_running(self) -> bool:
        return self._process.is_alive()

    def wait(self) -> None:
        """Waits until all code has run."""
        assert self._messages.recv() == "done"
        self._process.join()
        assert self._process.exitcode == 0

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.join()


@contextmanager
def running(code: str, path: Path) -> Iterator[Fork]:
    """Gives a process once it begins to run ``code``."""
    receiver, sender = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_run, args=(sender, code, path))
    process.start()
    sender.close()
    assert receiver.recv() == "ready"
    yield Fork(process, receiver)
    process.join()


def _run(sender: Connection, code: str, path: Path) -> None:
    os.setsid()
    sender.send("ready")
    exec(code, {"ia": ia, "path": path})
    sender.send("done")
