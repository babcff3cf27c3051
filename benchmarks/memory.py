"""The memory of processes, on Linux."""

from __future__ import annotations

from pathlib import Path


def peak_bytes(process: int | str = "self") -> int:
    """Returns the largest resident size of a process so far, by default of this one.

    ``getrusage`` would include what the parent process had taken.
    """
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
