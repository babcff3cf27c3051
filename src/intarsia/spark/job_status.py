"""The jobs of a call as users see them: in Spark's UI, in the log, and by a progress callback."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str, int, int], None]
"""Called with what the job does, the files that are done, and the files of the job."""
TAG = "intarsia"
"""The tag of all jobs. ``SparkContext.cancelJobsWithTag`` cancels the jobs that have it.

It is a tag of the context, as ``SparkSession.interruptTag`` sees only tags of its own thread. Spark
Connect has no context, and ``interruptTag`` cancels there.
"""
_DESCRIPTION = "spark.job.description"
_POLL_SECONDS = 0.2
_BAR_WIDTH = 20
"""Characters of the bar of ``show_progress``."""
_LOG = logging.getLogger("intarsia.spark")


def show_progress(job: str, done: int, files: int) -> None:
    """Shows the progress of a job as a bar on stderr, in a terminal or a notebook.

    Pass this function as the argument ``progress`` of a job.

    Parameters
    ----------
    job : str
        The text that says what the job does.
    done, files : int
        The files that are done, and the files of the job.

    Examples
    --------
    ::

        ias.add_indexes(spark, "lake/logs", ["lookup(trace_id)"], progress=ias.show_progress)
    """
    bar = "#" * (_BAR_WIDTH * done // files)
    end = "\n" if done == files else ""
    sys.stderr.write(f"\r{job}: [{bar:.<{_BAR_WIDTH}}] {done:,} of {files:,}{end}")
    sys.stderr.flush()


@contextlib.contextmanager
def described(spark: SparkSession, description: str) -> Iterator[None]:
    """Describes and tags the jobs that the block starts, and logs its start and its end."""
    context = getattr(spark, "sparkContext", None)  # Spark Connect has none, and no descriptions
    before = None if context is None else context.getLocalProperty(_DESCRIPTION)
    if context is None:
        tags, add_tag, remove_tag = spark.getTags(), spark.addTag, spark.removeTag
    else:
        tags = context.getJobTags()
        add_tag, remove_tag = context.addJobTag, context.removeJobTag
    start = time.perf_counter()
    _LOG.info("%s: started", description)
    try:
        if context is not None:
            context.setLocalProperty(_DESCRIPTION, f"intarsia: {description}")
        add_tag(TAG)
        yield
    except BaseException as error:
        _LOG.info("%s: failed after %.2f s: %s", description, time.perf_counter() - start, error)
        raise
    finally:
        if TAG not in tags:
            remove_tag(TAG)
        if context is not None:
            context.setLocalProperty(_DESCRIPTION, before)
    _LOG.info("%s: done in %.2f s", description, time.perf_counter() - start)


@contextlib.contextmanager
def counted(
    spark: SparkSession, description: str, total: int, progress: Progress | None
) -> Iterator[Callable[[int], object] | None]:
    """Yields a function with which tasks add to the count that ``progress`` gets.

    ``progress`` is called in a thread of its own while the block runs, and at its end. A task that
    runs twice may count twice. Yields None if nobody counts: without ``progress``, and in Spark
    Connect, which has no accumulators. ``progress`` is then called at the end only.
    """
    context = getattr(spark, "sparkContext", None)
    if progress is None:
        yield None
        return
    if context is None:
        yield None
    else:
        count = context.accumulator(0)
        stopped = threading.Event()
        thread = threading.Thread(
            target=_poll, args=(count, stopped, description, total, progress), daemon=True
        )
        thread.start()
        try:
            yield count.add
        finally:
            stopped.set()
            thread.join()
    progress(description, total, total)


def _poll(
    count: Any, stopped: threading.Event, description: str, total: int, progress: Progress
) -> None:
    """Calls ``progress`` whenever the count has changed, until ``stopped`` is set."""
    last = -1
    while True:
        done = min(count.value, total)
        if done not in (last, total):  # the end is reported once, when the job has ended
            progress(description, done, total)
            last = done
        if stopped.wait(_POLL_SECONDS):
            return
