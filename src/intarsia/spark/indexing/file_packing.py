"""Dividing files among tasks that take about the same time."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import pyarrow.fs as pafs

from intarsia.io.storage import infos_under

TASK_BYTES = 64 * 1024 * 1024
"""Target of file bytes per task. A task costs some 15 ms, however little it does."""
FILE_BYTES = 1024 * 1024
"""Opening and replacing a file takes about as long as working on this many of its bytes."""


def spread(sizes: Sequence[int], parallelism: int) -> list[list[int]]:
    """Returns tasks of about equal work, as lists of file numbers, for files of ``sizes`` bytes.

    There are ``parallelism`` tasks, or fewer if there are fewer files. If tasks would exceed
    ``TASK_BYTES``, there is a multiple of ``parallelism``, so that no core waits for another.

    Files are assigned from the largest to the smallest, each to the task with the least work so
    far. The task with the most work comes first.
    """
    work = [size + FILE_BYTES for size in sizes]
    rounds = max(1, -(-sum(work) // (TASK_BYTES * parallelism)))
    count = min(len(work), rounds * parallelism)
    tasks: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, task) for task in range(count)]
    for file in sorted(range(len(work)), key=lambda file: -work[file]):
        load, task = loads[0]
        tasks[task].append(file)
        heapq.heapreplace(loads, (load + work[file], task))
    heaviest = sorted(loads, key=lambda load: (-load[0], load[1]))
    return [tasks[task] for _, task in heaviest]


def file_sizes(filesystem: pafs.FileSystem, folder: str | None, files: Sequence[str]) -> list[int]:
    """Returns the lengths of files in bytes, by one listing if they are all below ``folder``."""
    if folder is None:
        infos = filesystem.get_file_info(list(files))
    else:
        infos = infos_under(filesystem, folder)
    known = {info.path: info.size or 0 for info in infos}
    return [known.get(file, 0) for file in files]
