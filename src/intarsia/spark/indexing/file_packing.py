"""Spreading files over tasks, so that all take about as long."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import pyarrow.fs as pafs

from intarsia.io.storage import infos_under

TASK_BYTES = 64 * 1024 * 1024
"""About how many bytes of files a task is given; a task costs some 15 ms whatever it does."""
FILE_BYTES = 1024 * 1024
"""Opening a file and putting another in its place costs about as much as so many bytes of it."""


def spread(sizes: Sequence[int], parallelism: int) -> list[list[int]]:
    """The numbers of files of ``sizes`` bytes, grouped into tasks of about equal work.

    ``parallelism`` tasks where there are as many files, or a multiple of it, so that no core waits
    for another: as many as it takes for tasks of ``TASK_BYTES`` at most.
    The largest file goes first to the task that has least so far; so is each task begun with its
    largest file, and the tasks with the heaviest one.
    """
    work = [size + FILE_BYTES for size in sizes]
    rounds = max(1, -(-sum(work) // (TASK_BYTES * parallelism)))
    count = min(len(work), rounds * parallelism)
    tasks: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, task) for task in range(count)]
    for at in sorted(range(len(work)), key=lambda at: -work[at]):
        load, task = loads[0]
        tasks[task].append(at)
        heapq.heapreplace(loads, (load + work[at], task))
    heaviest = sorted(loads, key=lambda load: (-load[0], load[1]))
    return [tasks[task] for _, task in heaviest]


def file_sizes(filesystem: pafs.FileSystem, folder: str | None, files: Sequence[str]) -> list[int]:
    """The lengths of files in bytes; by one listing where they are all below ``folder``."""
    if folder is None:
        infos = filesystem.get_file_info(list(files))
    else:
        infos = infos_under(filesystem, folder)
    known = {info.path: info.size or 0 for info in infos}
    return [known.get(file, 0) for file in files]
