"""Faults of clusters lose no rows, leave nothing half published, and give a clear message.

Rows come from a task that stops halfway, with its file begun, until the fault has happened.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

import intarsia as ia
import intarsia.spark as ias
from intarsia.indexing.policy import Policy

pytestmark = [pytest.mark.spark, pytest.mark.cluster]
ROWS, TASKS = 800_000, 4
"""Each task has four batches, because Spark fills one before it passes on the batch before."""


def halting(gate, seconds=300):
    """Yields rows: two batches, then the others once the file ``gate`` exists."""

    def run(batches):
        for number, batch in enumerate(batches):
            deadline = time.monotonic() + seconds
            while number == 2 and not os.path.exists(gate) and time.monotonic() < deadline:
                time.sleep(0.05)
            yield batch

    return run


def in_background(call):
    """Starts ``call``; returns a function that waits for it and raises its error."""
    raised = []

    def run():
        try:
            call()
        except BaseException as error:  # noqa: BLE001 # handed to the caller
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait():
        thread.join()
        for error in raised:
            raise error

    return wait


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*"))


def contents(folder):
    return {str(p): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


def ids(folder):
    return sorted(ia.dataset(folder).to_table(["id"])["id"].to_pylist())


def begun(folder):
    """Unfinished files of tasks."""
    return list(Path(folder).glob("_temporary-*/**/.*.intarsia-tmp"))


def check_whole(folder, expected):
    """Asserts that the rows are there once, that files are complete, and that nothing else is
    there.
    """
    assert ids(folder) == expected
    assert not ia.verify(folder)
    files = [name for name in names(folder) if name.endswith(".parquet")]
    assert names(folder) == sorted([*files, "_SUCCESS"])


@pytest.fixture
def data(spark):
    return spark.range(0, ROWS, 1, TASKS)


# --- processes that die -------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["write", "format"])
@pytest.mark.parametrize("victim", ["executor", "worker"])
def test_a_write_survives_killed_processes(victim, form, cluster, data, tmp_path, eventually):
    folder, gate = tmp_path / "lake", tmp_path / "gate"
    slow = data.mapInArrow(halting(str(gate)), "id long")

    def harm():
        eventually(lambda: len(begun(folder)) == 2, "two tasks at work")
        if victim == "executor":
            cluster.kill_executor()
        else:
            cluster.kill_worker("localhost")
        gate.touch()

    harmed = in_background(harm)
    if form == "write":
        written = ias.write(slow, folder, indexes="id:lookup")
    else:
        writer = slow.write.format("intarsia").mode("append").option("indexes", "id:lookup")
        writer.save(str(folder))
    harmed()
    check_whole(folder, list(range(ROWS)))
    if form == "write":
        assert {file.path for file in written} | {"_SUCCESS"} == set(names(folder))
        assert sum(file.rows for file in written) == ROWS
    if victim == "worker":
        cluster.start_worker("localhost")
    eventually(lambda: len(cluster.executors()) == 2, "a new executor")


def maintain(spark, folder):
    """Adds an index by a policy."""
    (folder / "_intarsia").mkdir()
    (folder / "_intarsia" / "policy.json").write_bytes(Policy(("id:lookup",)).encode())
    assert ias.maintain(spark, folder).failed == ()


def add_indexes(spark, folder):
    ias.add_indexes(spark, folder, ["id:lookup"])


@pytest.mark.parametrize("index", [add_indexes, maintain])
def test_indexing_survives_the_death_of_an_executor(index, cluster, spark, tmp_path, eventually):
    folder = tmp_path / "lake"
    ias.write(spark.range(0, 3_000_000, 1, 12), folder)

    def harm():
        eventually(lambda: any(f.indexes for f in ia.list_indexes(folder)), "the first index")
        cluster.kill_executor()

    harmed = in_background(harm)
    index(spark, folder)
    harmed()
    assert all([i.name for i in file.indexes] == ["id:lookup"] for file in ia.list_indexes(folder))
    assert ids(folder) == list(range(3_000_000))
    assert not ia.verify(folder)
    eventually(lambda: len(cluster.executors()) == 2, "a new executor")


# --- tasks that run twice -----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["write", "format"])
def test_a_task_that_runs_twice_leaves_its_rows_once(form, data, tmp_path):
    folder, tries = tmp_path / "lake", tmp_path / "tries"
    tries.mkdir()

    def stuck_at_first(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        partition, attempt = context.partitionId(), context.attemptNumber()
        (tries / f"{partition}-{attempt}").touch()
        while attempt and not (tries / f"{partition}-0").exists():
            time.sleep(0.1)  # Python starts slower for the first attempt than Spark waits
        for batch in batches:
            yield batch.slice(0, 20_000)
            if partition == 0 and attempt == 0:
                time.sleep(300)
            yield batch.slice(20_000)

    slow = data.mapInArrow(stuck_at_first, "id long")
    if form == "write":
        ias.write(slow, folder, indexes="id:lookup")
    else:
        slow.write.format("intarsia").mode("append").save(str(folder))
    assert {"0-0", "0-1"} <= {path.name for path in tries.iterdir()}
    check_whole(folder, list(range(ROWS)))
    time.sleep(1)  # the first attempt may still be running
    check_whole(folder, list(range(ROWS)))


# --- disks --------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path, eventually):
    """A disk of 4 MB, which tasks of a failed job may use a little longer."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a small disk here")
    yield disk
    command = ["umount", str(disk)]
    eventually(lambda: subprocess.run(command, check=False).returncode == 0, "the disk's last use")


@pytest.mark.parametrize("form", ["write", "format", "checkpoints"])
def test_a_full_disk_leaves_the_old_files(form, spark, small_disk):
    def rows(start, stop):
        """Rows of 32 incompressible bytes each."""
        return spark.range(start, stop, 1, 2).selectExpr("id", "sha2(string(id), 256) AS hash")

    folder = small_disk / "lake"
    ias.write(rows(0, 1000), folder, indexes="id:lookup")
    before = contents(folder)
    much = rows(0, 400_000)  # 8 MB and more
    if form == "format":
        with pytest.raises(PySparkException) as raised:
            much.write.format("intarsia").mode("append").save(str(folder))
    else:
        every = 1 if form == "checkpoints" else None
        with pytest.raises(ia.PathError) as raised:
            ias.write(much, folder, mode="append", checkpoint_row_groups=every)
        assert len(str(raised.value)) < 500
    assert "No space left on device" in str(raised.value)
    assert f"{folder}/_temporary-" in str(raised.value)
    assert "part-0000" in str(raised.value)
    assert contents(folder) == before
    assert not begun(folder)
    assert not list(folder.glob("_temp*"))
    ias.write(rows(1000, 1100), folder, mode="append")
    assert ids(folder) == list(range(1100))


@pytest.fixture
def denied(tmp_path):
    """A folder in which even root cannot create a file."""
    folder = tmp_path / "denied"
    folder.mkdir()
    is_root = os.geteuid() == 0
    deny, allow = (
        (["chattr", "+i"], ["chattr", "-i"]) if is_root else (["chmod", "555"], ["chmod", "755"])
    )
    try:
        subprocess.run([*deny, str(folder)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("may not forbid root to write to a folder here")
    yield folder
    subprocess.run([*allow, str(folder)], check=True)


def test_a_folder_without_write_permission_is_an_error(data, denied):
    for folder in (denied, denied / "new" / "lake"):
        with pytest.raises(ia.PathError, match=rf"{folder}: cannot be written to.*(permi|Permi)"):
            ias.write(data, folder)
        with pytest.raises(PySparkException, match=rf"{folder}: cannot be written to"):
            data.write.format("intarsia").mode("append").save(str(folder))
    assert names(denied) == []


def test_a_folder_that_a_task_cannot_create_is_an_error(data, tmp_path):
    folder = tmp_path / "lake"

    def in_the_way(batches):
        for job in folder.glob("_temporary-*"):
            (job / "p=1").touch()
        yield from batches

    rows = data.selectExpr("id", "id % 2 AS p").mapInArrow(in_the_way, "id long, p long")
    with pytest.raises(ia.PathError, match=rf"{folder}/_temporary-.*/p=1: .*File exists"):
        ias.write(rows, folder, partition_by="p")
    with pytest.raises(PySparkException, match=r"PathError: .*/p=1: .*File exists"):
        rows.write.format("intarsia").mode("append").option("partition_by", "p").save(str(folder))
    assert names(tmp_path) == []


# --- rows recovered from unfinished files -------------------------------------------------------


GROUP = 1024 * 1024
"""Rows per row group."""
TRIES = 4
"""Maximum attempts of a task, by Spark's default."""


def test_rows_of_a_killed_task_are_recovered(cluster, spark, tmp_path, eventually):
    folder, gate = tmp_path / "lake", tmp_path / "gate"
    ias.write(spark.range(-10, 0, 1, 1), folder)

    def halting(batches):
        seen = 0
        for batch in batches:
            yield batch
            seen += batch.num_rows
            while seen > 2 * GROUP + 100_000 and not os.path.exists(gate):
                time.sleep(0.05)

    slow = spark.range(0, 4 * GROUP, 1, 1).mapInArrow(halting, "id long")
    options = {"mode": "append", "checkpoint_row_groups": 1, "keep_unfinished": True}

    def at_work():
        return [(pid, task) for pid in cluster.executors() for task in writers(pid, folder)]

    def harm():
        try:
            for count in range(1, 1 + TRIES):
                eventually(lambda count=count: len(safe(folder)) == count, "two checkpoints")
                ((executor, task),) = eventually(at_work, "the task")
                # Otherwise it may take the end of its input for the last row.
                os.kill(task, signal.SIGSTOP)
                os.kill(executor, signal.SIGKILL)
                os.kill(task, signal.SIGKILL)
        finally:
            gate.touch()

    def write():
        harmed = in_background(harm)
        try:
            ias.write(slow, folder, indexes="id:lookup", **options)
        finally:
            harmed()

    with pytest.raises(Exception, match="ExecutorLostFailure") as raised:
        write()
    (job,) = folder.glob("_temporary-*")
    assert str(job) in "".join(raised.value.__notes__)
    assert ids(folder) == list(range(-10, 0))
    with pytest.warns(ia.IntarsiaWarning, match=str(job)):
        assert ias.recover(folder) == []
    assert len(begun(folder)) == TRIES
    for path in begun(folder)[:2]:
        report = ia.recover(path, tmp_path / "back.parquet")
        assert report.checkpoint_rows == 2 * GROUP
        assert ids(tmp_path / "back.parquet") == list(range(report.rows))
    assert ias.recover(folder, keep_unfinished=False) == [job.name]
    check_whole(folder, list(range(-10, 0)))
    eventually(lambda: len(cluster.executors()) == 2, "a new executor")


def safe(folder):
    """Unfinished files with two row groups before a checkpoint.

    The first magic is followed by one after the schema and one after each row group.
    """
    return [path for path in begun(folder) if path.read_bytes().count(b"PAR1") == 4]


def writers(executor, folder):
    """The executor's Python processes that have a file in the folder open."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(stat[1])
            except OSError:
                continue
    actual = []
    for pid in parents:
        above = pid
        while above in parents and above != executor:
            above = parents[above]
        if above == executor and opens(pid, str(folder)):
            actual.append(pid)
    return actual


def opens(pid, folder):
    try:
        open_files = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    return any(points_into(folder, link) for link in open_files)


def points_into(folder, link):
    try:
        return os.readlink(link).startswith(folder)
    except OSError:
        return False
