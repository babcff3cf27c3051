"""Publishing, interrupted at every step: readers see old rows or new ones.

The commit is then finished or undone. These tests need no Spark.

::

    old.parquet, day=1/old.parquet      existing files
    a.parquet, day=1/b.parquet          published in their place
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import intarsia as ia
from intarsia.commit import storage as storage_module
from intarsia.commit.commit import (
    commit_entries,
    end,
    end_job,
    has_data,
    keep_job,
    publish,
    publish_batch,
    settle,
)
from intarsia.commit.recover import recover_dataset as recover
from intarsia.commit.storage import LocalPlace, Place
from intarsia.dataset import commit_log
from intarsia.dataset.commit_log import PUBLISHED, CommitEntry, StreamBatch, visible
from intarsia.indexing import rewrite as rewrite_module
from intarsia.io import atomic_replace, storage
from intarsia.io.file_handle import version_of
from intarsia.rewrite.folder_commit import check_current
from intarsia.rewrite.rewrite_plan import OldFile, OvertakenError
from intarsia.spark.data_source.source import Writer
from intarsia.spark.task_error import original_error

OLD = {"old.parquet": 1, "day=1/old.parquet": 2}
NEW = {"a.parquet": 3, "day=1/b.parquet": 4, "day=2/c.parquet": 5}
STEPS = ("make", "move", "remove", "remove_empty", "write_text")


class Died(BaseException):
    """The driver was killed."""


class DyingPlace(LocalPlace):
    """Executes ``steps`` steps, then raises ``Died`` at every further step."""

    def __init__(self, place: Place, steps: int) -> None:
        super().__init__(place.filesystem, place.root)
        steps_left = itertools.count(steps, -1)

        def mortal(step):
            def take(*arguments):
                if next(steps_left) <= 0:
                    raise Died
                return getattr(LocalPlace, step)(self, *arguments)

            return take

        for step in STEPS:
            object.__setattr__(self, step, mortal(step))


def put(folder, files):
    for name, value in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"v": [value]}), folder / name)


def by_dataset(folder, path=""):
    return sorted(ia.dataset(folder / path).to_table(["v"])["v"].to_pylist())


def values(folder, path=""):
    _, files = visible(folder / path)
    return sorted(pq.read_table(file, partitioning=None)["v"][0].as_py() for file in files)


def published_until(folder, steps, *, old, **arguments):
    """Publishes with a driver that dies after ``steps``; returns True if it finishes."""
    put(folder, old)
    put(folder / "_temporary-job", NEW)
    try:
        publish(DyingPlace(Place.of(folder), steps), "job", list(NEW), **arguments)
    except Died:
        return False
    return True


def every_death(tmp_path, **arguments):
    """Yields the folders of drivers that died after 0, 1, 2, … steps, and of the first that did
    not.
    """
    for steps in itertools.count():
        folder = tmp_path / str(steps)
        is_done = published_until(folder, steps, **arguments)
        yield folder
        if is_done:
            return


@pytest.mark.parametrize("old", [OLD, {"x.parquet": 9}], ids=["in_its_folders", "elsewhere"])
def test_a_driver_that_dies_while_it_overwrites_leaves_old_rows_or_new_ones(old, tmp_path):
    seen = []
    for folder in every_death(tmp_path, old=old, remove=list(old)):
        actual = values(folder)
        assert actual in (sorted(old.values()), [3, 4, 5])
        assert by_dataset(folder) == actual
        seen.append(actual)
        recover(folder)
        assert values(folder) == actual
        assert values(folder) == sorted(ia.dataset(folder).to_table(["v"])["v"].to_pylist())
        names = {path.name for path in folder.iterdir()}
        assert not [n for n in names if n.startswith(("_temporary", "_commit", "."))]
    assert len(seen) > 8
    assert seen == sorted(seen, key=lambda actual: actual == [3, 4, 5])
    assert seen[0] == sorted(old.values())
    assert seen[-1] == [3, 4, 5]


class ToldTooLatePlace(LocalPlace):
    """Executes a step but raises an error nevertheless, and dies some steps later."""

    def __init__(self, place: Place, step: int, then: int, error: BaseException) -> None:
        super().__init__(place.filesystem, place.root)
        done = itertools.count()

        def failing(name):
            def take(*arguments):
                number = next(done)
                if number > step + then:
                    raise error
                actual = getattr(LocalPlace, name)(self, *arguments)
                if number == step:
                    raise error
                return actual

            return take

        for name in STEPS:
            object.__setattr__(self, name, failing(name))


@pytest.mark.parametrize("error", [OSError("no answer"), KeyboardInterrupt()], ids=["io", "key"])
@pytest.mark.parametrize("then", [0, 1, 99])
def test_a_step_that_raises_after_success_leaves_old_rows_or_new_ones(error, then, tmp_path):
    seen = []
    for step in itertools.count():
        folder = tmp_path / str(step)
        put(folder, OLD)
        put(folder / "_temporary-job", NEW)
        place = ToldTooLatePlace(Place.of(folder), step, then, error)
        failure = None
        try:
            publish(place, "job", list(NEW), list(OLD))
        except (ia.PathError, KeyboardInterrupt) as raised:
            failure = raised
        actual = values(folder)
        assert actual in ([1, 2], [3, 4, 5])
        recover(folder)
        assert values(folder) == actual
        if failure is None:
            break
        seen.append(actual)
    assert len(seen) > 8
    assert [1, 2] in seen
    assert seen[-1] == [3, 4, 5]


def test_a_driver_that_dies_while_it_appends_leaves_all_files_or_none(tmp_path):
    seen = []
    for folder in every_death(tmp_path, old=OLD):
        actual = values(folder)
        assert actual in ([1, 2], [1, 2, 3, 4, 5])
        assert by_dataset(folder) == actual
        seen.append(actual)
        recover(folder)
        assert values(folder) == actual
        assert values(folder) == sorted(ia.dataset(folder).to_table(["v"])["v"].to_pylist())
    assert seen[0] != seen[-1]


def test_a_batch_repeated_after_any_death_is_written_once(tmp_path):
    batch = StreamBatch("query", 7)
    for folder in every_death(tmp_path, old=OLD, stream=batch):
        again = {f"again-{i}.parquet": value for i, value in enumerate(NEW.values())}
        for _ in range(2):
            put(folder / "_temporary-query-7", again)
            publish_batch(Place.of(folder), "query-7", list(again), [], batch)
            assert values(folder) == [1, 2, 3, 4, 5]
        assert values(folder) == sorted(ia.dataset(folder).to_table(["v"])["v"].to_pylist())
        assert commit_entries(Place.of(folder)) == []
        assert not list(folder.glob("_temporary-query-*"))


def test_the_next_batch_and_other_queries_are_published(tmp_path):
    place = Place.of(tmp_path)
    for query, batch in (("one", 0), ("two", 0), ("one", 1), ("one", 0), ("two", 1)):
        name = f"{query}-{batch}"
        put(tmp_path / f"_temporary-{name}", {f"{name}.parquet": batch})
        publish_batch(place, name, [f"{name}.parquet"], [], StreamBatch(query, batch))
    assert values(tmp_path) == [0, 0, 1, 1]


def test_a_late_check_of_an_old_batch_does_not_repeat_the_next_batch(tmp_path):
    place, query = Place.of(tmp_path), "query"
    put(tmp_path / "_temporary-query-0", {"0.parquet": 0})
    batch = StreamBatch(query, 0)
    late = CommitEntry("query-0", PUBLISHED, ("0.parquet",), (), batch)
    publish_batch(place, "query-0", ["0.parquet"], [], batch)
    for number in (1, 1):  # like Spark that died before it recorded the end of the first
        put(tmp_path / f"_temporary-query-{number}", {f"{number}.parquet": number})
        publish_batch(place, f"query-{number}", ["1.parquet"], [], StreamBatch(query, number))
        (tmp_path / late.name).write_text(late.encode())  # another writer has read it before
        settle(place)
    assert values(tmp_path) == [0, 1]
    assert json.loads((tmp_path / "_stream-query.json").read_text())["batch"] == 1


def test_the_next_batch_removes_a_half_written_commit_log(tmp_path):
    left = tmp_path / "._commit-query-0.json.0123abcd"
    others = tmp_path / "._commit-other-0.json.0123abcd"
    for path in (left, others):
        path.write_text("{")
    put(tmp_path / "_temporary-query-0", {"0.parquet": 0})
    publish_batch(Place.of(tmp_path), "query-0", ["0.parquet"], [], StreamBatch("query", 0))
    assert not left.exists()
    assert others.exists()


class StuckPlace(LocalPlace):
    """Contains a file that cannot be removed."""

    __slots__ = ()

    def remove(self, name):
        if name == "day=1/old.parquet":
            raise PermissionError(1, "Operation not permitted")
        super().remove(name)


def test_an_old_file_that_cannot_be_removed_blocks_nobody(tmp_path):
    stuck = StuckPlace(Place.of(tmp_path).filesystem, str(tmp_path))
    put(tmp_path, OLD | {"day=3/old.parquet": 9})
    old = [*OLD, "day=3/old.parquet"]
    put(tmp_path / "_temporary-job", NEW)
    with pytest.raises(ia.PathError, match=r"are published, .*old\.parquet: cannot be removed"):
        publish(stuck, "job", list(NEW), old)
    assert values(tmp_path) == by_dataset(tmp_path) == [3, 4, 5]
    assert sorted(tmp_path.rglob("old.parquet")) == [tmp_path / "day=1/old.parquet"]
    assert not (tmp_path / "day=3").exists()
    with pytest.warns(ia.IntarsiaWarning, match=r"do not count \(_commit-job.*cannot be removed"):
        settle(stuck)
    put(tmp_path / "_temporary-next", {"n1.parquet": 6, "n2.parquet": 7})
    publish(stuck, "next", ["n1.parquet", "n2.parquet"])
    assert values(tmp_path) == by_dataset(tmp_path) == [3, 4, 5, 6, 7]
    assert recover(tmp_path)[0] == "day=1/old.parquet"
    assert values(tmp_path) == by_dataset(tmp_path) == [3, 4, 5, 6, 7]
    assert commit_entries(Place.of(tmp_path)) == []


def test_a_living_driver_finishes_its_commit(tmp_path):
    seen = []
    for folder in every_death(tmp_path, old=OLD, remove=list(OLD)):
        before = values(folder)
        end_job(Place.of(folder), "another")
        assert values(folder) == before
        job = SimpleNamespace(place=Place.of(folder), name="job", keep_unfinished=False)
        Writer(job, overwrites=True, only_new_folders=False, made=()).abort([])
        assert commit_entries(Place.of(folder)) == []
        files = [file for file in folder.rglob("*.parquet") if "_temporary" not in str(file)]
        actual = sorted(pq.read_table(file, partitioning=None)["v"][0].as_py() for file in files)
        assert actual == before
        seen.append(actual)
    assert seen[0] == [1, 2]
    assert seen[-1] == [3, 4, 5]


def test_finishing_a_commit_late_does_not_touch_the_next_one_of_its_job(tmp_path):
    put(tmp_path, OLD)
    put(tmp_path / "_temporary-job", NEW)
    place, seen = Place.of(tmp_path), []
    first = CommitEntry("job", PUBLISHED, ("gone.parquet",), ())

    def check():
        end(place, first)
        seen.extend(commit_entries(place))

    publish(place, "job", list(NEW), list(OLD), number=1, check=check)
    assert [entry.number for entry in seen] == [1]
    assert values(tmp_path) == by_dataset(tmp_path) == [3, 4, 5]
    assert commit_entries(place) == []


def test_an_undone_commit_leaves_no_empty_folders(tmp_path):
    for folder in every_death(tmp_path, old={}):
        recover(folder)
        visible_names = {path.name for path in folder.iterdir() if not path.name.startswith("_")}
        assert visible_names in (set(), {"a.parquet", "day=1", "day=2"})


def test_a_file_that_cannot_be_moved_leaves_the_old_rows(tmp_path):
    put(tmp_path, OLD)
    (tmp_path / "day=2").write_text("a file where a folder has to be")
    put(tmp_path / "_temporary-job", NEW)
    with pytest.raises(ia.PathError, match="cannot be written to"):
        publish(Place.of(tmp_path), "job", list(NEW), list(OLD))
    assert values(tmp_path / "day=1") == [2]
    assert not list(tmp_path.glob("_commit*"))


def test_an_append_fails_completely_if_an_overwrite_removed_its_files(tmp_path):
    put(tmp_path, {"old.parquet": 1})
    put(tmp_path / "_temporary-a", {"a1.parquet": 3, "a2.parquet": 4})
    put(tmp_path / "_temporary-b", {"b1.parquet": 5, "b2.parquet": 6})

    def overwrite():  # all files of the append are in place, but do not count yet
        place = Place.of(tmp_path)
        publish(place, "b", ["b1.parquet", "b2.parquet"], ["old.parquet", "a1.parquet"])

    with pytest.raises(ia.PathError, match=r"another write removed a1\.parquet .*nothing was"):
        publish(Place.of(tmp_path), "a", ["a1.parquet", "a2.parquet"], check=overwrite)
    assert values(tmp_path) == [5, 6]
    assert commit_entries(Place.of(tmp_path)) == []


# --- an append beside an overwrite ---------------------------------------------------------------


class TurnTakingPlace(LocalPlace):
    """Waits for its turn before each step, and again after listing files."""

    def __init__(self, place, wait):
        super().__init__(place.filesystem, place.root)

        def patient(step):
            def take(*arguments):
                wait()
                actual = getattr(LocalPlace, step)(self, *arguments)
                if step == "data_files":
                    wait()
                return actual

            return take

        for step in (*STEPS, "data_files"):
            object.__setattr__(self, step, patient(step))


def taking_turns(runs, writers, look):
    """Runs two writers in turns of ``runs`` steps, then each to its end; returns their errors.

    ``look`` is called between the runs.
    """
    ready = [threading.Semaphore(0), threading.Semaphore(0)]
    turns = [threading.Semaphore(0), threading.Semaphore(0)]
    ended, raised = [False, False], [None, None]

    def run(one):
        def wait():
            ready[one].release()
            turns[one].acquire()

        try:
            writers[one](wait)
        except ia.PathError as error:
            raised[one] = error
        finally:
            ended[one] = True
            ready[one].release()

    threads = [threading.Thread(target=run, args=[one]) for one in (0, 1)]
    for one, thread in enumerate(threads):
        thread.start()
        ready[one].acquire()
    for one, steps in zip(itertools.cycle([0, 1]), [*runs, *[100] * 3], strict=False):
        for _ in range(steps):
            if not ended[one]:
                turns[one].release()
                ready[one].acquire()
        look()
    for thread in threads:
        thread.join()
    return raised


def check_append_beside_overwrite(lake, folders, runs):
    """Asserts that all appended files exist in the end, or none if the overwrite removed them."""
    appended = {"day=2/x.parquet": 3, "day=1/a.parquet": 4, "day=1/b.parquet": 5, "y.parquet": 6}
    replacing = {"day=1/n.parquet": 7, "day=1/o.parquet": 8}
    put(lake, OLD)
    put(lake / "_temporary-append", appended)
    put(lake / "_temporary-overwrite", replacing)
    is_dynamic = folders == ["day=1"]
    remaining = {"old.parquet"} if is_dynamic else set()
    outside = {"day=2/x.parquet", "y.parquet"} if is_dynamic else set()
    overwritten = [remaining | {*replacing}, remaining | outside | {*replacing}]
    after = remaining | {*appended} | {*replacing}

    def append(wait):
        publish(TurnTakingPlace(Place.of(lake), wait), "append", list(appended))

    def overwrite(wait):
        place = TurnTakingPlace(Place.of(lake), wait)
        publish(place, "overwrite", list(replacing), overwrites=folders)

    def look():
        actual = {str(Path(file).relative_to(lake)) for file in visible(lake)[1]}
        assert actual in [{*OLD}, {*OLD, *appended}, *overwritten, after]

    failed, overwrite_failed = taking_turns(runs, [append, overwrite], look)
    assert overwrite_failed is None
    files = {str(path.relative_to(lake)) for path in lake.rglob("*.parquet")}
    actual = {name for name in files if not name.startswith("_temporary")}
    assert actual in ([overwritten[0]] if failed else [overwritten[1], after])
    assert commit_entries(Place.of(lake)) == []


def test_an_overwrite_removes_all_files_of_an_append_or_none(tmp_path):
    cut_short = itertools.product(range(14), range(16))
    whole_in_between = itertools.product(range(14), [100], range(8))
    for runs in itertools.chain(cut_short, whole_in_between):
        check_append_beside_overwrite(tmp_path / "-".join(map(str, runs)), [""], runs)


@given(runs=st.lists(st.integers(0, 16), max_size=8))
def test_an_overwrite_of_folders_removes_all_files_in_them_or_none(runs, tmp_path_factory):
    check_append_beside_overwrite(tmp_path_factory.mktemp("lake"), ["day=1"], runs)


def check_rewrite_beside_overwrite(lake, runs):
    """Asserts that no rewritten file is left in the end, nor any of the files before it."""
    put(lake, OLD)
    put(lake / "_temporary-rewrite", {"m.parquet": 3})
    put(lake / "_temporary-overwrite", NEW)
    files = [OldFile(f, 0, 1, version_of(str(lake / f), pafs.LocalFileSystem()), ()) for f in OLD]

    def rewrite(wait):
        place = TurnTakingPlace(Place.of(lake), wait)

        def check():
            wait()
            check_current(place, "rewrite", files)
            wait()

        with contextlib.suppress(OvertakenError):
            publish(place, "rewrite", ["m.parquet"], list(OLD), check=check)

    def overwrite(wait):
        publish(TurnTakingPlace(Place.of(lake), wait), "overwrite", list(NEW), overwrites=[""])

    def look():
        actual = {str(Path(file).relative_to(lake)) for file in visible(lake)[1]}
        assert actual in [{*OLD}, {"m.parquet"}, {*NEW}]

    _, overwrite_failed = taking_turns(runs, [rewrite, overwrite], look)
    assert overwrite_failed is None
    left = {str(path.relative_to(lake)) for path in lake.rglob("*.parquet")}
    assert {name for name in left if not name.startswith("_temporary")} == {*NEW}
    assert commit_entries(Place.of(lake)) == []


def test_an_overwrite_removes_the_rewritten_versions_of_its_files(tmp_path):
    cut_short = itertools.product(range(12), range(16))
    begun_last = itertools.product([0], range(6), range(12), range(4))
    for runs in itertools.chain(cut_short, begun_last):
        check_rewrite_beside_overwrite(tmp_path / "-".join(map(str, runs)), runs)


def test_an_overwrite_removes_the_files_of_a_dead_append(tmp_path):
    left = half_published(tmp_path)
    for file in (left / "_temporary-job").rglob("*.parquet"):
        file.unlink()  # all were moved
    place = Place.of(left)
    put(left / "_temporary-b", {"n.parquet": 9})
    publish(place, "b", ["n.parquet"], overwrites=[""])
    assert values(left) == [9]
    assert [path.name for path in left.rglob("*.parquet")] == ["n.parquet"]
    assert commit_entries(place) == []


# --- readers --------------------------------------------------------------------------------------


def test_a_folder_without_committed_files_is_no_data_set(tmp_path):
    put(tmp_path, {"k=1/a.parquet": 1, "k=2/b.parquet": 2})
    commit = CommitEntry("job", PUBLISHED, (), ("k=1/a.parquet",))
    (tmp_path / commit.name).write_text(commit.encode())
    assert by_dataset(tmp_path) == [2]
    for path in (tmp_path / "k=1", f"{tmp_path}/k=1/*.parquet"):
        with pytest.raises(ia.PathError, match="does not count while a commit is under way"):
            ia.dataset(path)


def test_one_file_is_published_by_its_rename_alone(tmp_path):
    put(tmp_path / "_temporary-job", {"a.parquet": 3})
    publish(DyingPlace(Place.of(tmp_path), 4), "job", ["a.parquet"])
    assert (tmp_path / "_SUCCESS").exists()
    assert not list(tmp_path.glob("_commit*"))


def half_published(folder):
    """A commit that died with some of its files moved."""
    steps = next(
        steps
        for steps in range(1, 20)
        if not published_until(folder / str(steps), steps, old=OLD, remove=list(OLD))
        and (folder / str(steps) / "day=1" / "b.parquet").exists()
    )
    return folder / str(steps)


def test_readers_of_part_of_a_data_set_use_its_commit_log_too(tmp_path):
    folder = half_published(tmp_path)
    assert values(folder, "day=1") == [2]
    assert values(folder, "day=1/*.parquet") == [2]
    assert values(folder, "day=1/old.parquet") == [2]
    _, files = visible([folder / "day=1", folder / "old.parquet"])
    assert len(files) == 2
    assert by_dataset(folder, "day=1") == by_dataset(folder, "day=1/*.parquet") == [2]
    assert by_dataset(folder, "day=1/b.parquet") == [4]  # the path is the file itself


@pytest.mark.parametrize("name", ["lake", "out.parquet", "day=1", "h.parquet/day=1"])
@pytest.mark.parametrize("look", ["itself", "above", "glob", "files", "list"])
def test_readers_of_any_folder_use_its_own_commit_log(name, look, tmp_path):
    """Applies to any folder name, and to paths that are the folder, its parent or a glob."""
    where = {
        "itself": lambda folder: folder,
        "above": lambda folder: folder.parents[name.count("/")],
        "glob": lambda folder: f"{folder.parents[name.count('/')]}/*{'/*' * name.count('/')}",
        "files": lambda folder: f"{folder.parents[name.count('/')]}/**/*.parquet",
        "list": lambda folder: [folder, folder / "day=1"],
    }[look]
    files = [{"1.parquet": value, "day=1/2.parquet": value + 1} for value in (1, 3)]
    for steps in itertools.count():
        folder = tmp_path / str(steps) / name
        put(folder, files[0])
        new = {f"new-{at}.parquet": value for at, value in enumerate(files[1].values())}
        put(folder / "_temporary-job", new)
        try:
            publish(DyingPlace(Place.of(folder), steps), "job", list(new), list(files[0]))
            break
        except Died:
            paths = where(folder)
            if look == "list":
                paths = [path for path in paths if list(path.glob("*.parquet"))]
            actual = sorted(set(ia.dataset(paths).to_table(["v"])["v"].to_pylist()))
            assert actual in ([1, 2], [3, 4])
            _, prune_files = visible(paths)
            assert len(set(prune_files)) == 2
            recover(folder.parents[name.count("/")])
            assert by_dataset(folder) == actual
            assert not list(folder.glob("_commit-*"))
    assert steps > 5


def test_only_the_part_of_a_parents_commit_below_the_folder_is_finished(tmp_path):
    """For example if a Hive folder is optimized by itself."""
    put(tmp_path, {"day=1/a.parquet": 1, "day=2/a.parquet": 2})
    for day in (1, 2):
        put(tmp_path / f"_temporary-{day}", {f"day={day}/b.parquet": day})
        with contextlib.suppress(Died):
            place = DyingPlace(Place.of(tmp_path), 4)  # the last of them is the commit
            publish(place, str(day), [f"day={day}/b.parquet"], [f"day={day}/a.parquet"])
    assert by_dataset(tmp_path) == [1, 2]
    assert len(list(tmp_path.rglob("*.parquet"))) == 4
    assert recover(tmp_path / "day=1")[0] == "a.parquet"
    assert [path.name for path in tmp_path.glob("_commit-*")] == ["_commit-2.json"]
    assert {path.parent.name for path in tmp_path.rglob("a.parquet")} == {"day=2"}
    assert by_dataset(tmp_path) == [1, 2]


def test_a_half_written_commit_is_removed(tmp_path):
    put(tmp_path, {"a.parquet": 1, "day=1/b.parquet": 2})
    left = ["._commit-j.json.0123abcd", "._SUCCESS.0123abcd", "day=1/._commit-k.json.0123abcd"]
    left += ["day=2/._SUCCESS.0123abcd", "day=3/._stream-q.json.0123abcd"]
    others = ["._stream-q.json", "._notes.0123abcd", "._commit-j.json.crc"]
    for name in (*left, *others):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{")
    assert sorted(recover(tmp_path)) == sorted(left)
    assert all((tmp_path / name).exists() for name in others)
    assert by_dataset(tmp_path) == [1, 2]


def test_a_file_or_nothing_is_not_recovered(tmp_path):
    put(tmp_path, {"a.parquet": 1})
    with pytest.raises(ia.PathError, match=r"a\.parquet: there is a file, not a folder"):
        recover(tmp_path / "a.parquet")
    with pytest.raises(ia.PathError, match="nowhere: there is no such folder"):
        recover(tmp_path / "nowhere")


def test_a_file_removed_by_a_commit_is_not_restored_by_replacing_it(tmp_path, monkeypatch):
    put(tmp_path, {"a.parquet": 1})
    removers, real = [], rewrite_module.replacing

    def removed_meanwhile(path, filesystem, **options):
        def remove():
            Place.of(tmp_path).remove("a.parquet")

        removers.append(threading.Thread(target=remove))
        monkeypatch.setattr(atomic_replace.os, "replace", replacing_late)
        return real(path, filesystem, **options)

    def replacing_late(source, target):
        removers[0].start()
        removers[0].join(0.2)  # it waits for the lock
        assert removers[0].is_alive()
        os.rename(source, target)

    monkeypatch.setattr(rewrite_module, "replacing", removed_meanwhile)
    with contextlib.suppress(ia.PathError):  # it no longer exists
        ia.add_indexes(tmp_path / "a.parquet", ["v:lookup"])
    removers[0].join()
    assert not (tmp_path / "a.parquet").exists()


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "{}", '"x"', '{"job": 1, "phase": "published", "stream": null}'),
        '{"job": "x", "phase": "", "publish": [], "remove": [], "stream": null, "number": 1e999}',
    ],
)
def test_an_invalid_commit_log_is_an_error_and_removes_nothing(text, tmp_path):
    put(tmp_path, OLD)
    (tmp_path / "_commit-x.json").write_text(text)
    for ask in (by_dataset, values, recover):
        with pytest.raises(ia.FormatError, match=r"_commit-x.json.*not an entry"):
            ask(tmp_path)
    assert (tmp_path / "old.parquet").exists()


@pytest.mark.parametrize("path", ["../out.parquet", "/out.parquet", "a/../../out.parquet", ""])
def test_a_commit_log_removes_nothing_outside_its_folder(path, tmp_path):
    put(tmp_path / "lake", OLD)
    outside = tmp_path / "out.parquet"
    outside.write_bytes(b"")
    known = {"job": "x", "phase": "published", "publish": [], "remove": [path], "stream": None}
    (tmp_path / "lake" / "_commit-x.json").write_text(json.dumps(known))
    with pytest.raises(ia.FormatError, match="not below the data set's folder"):
        recover(tmp_path / "lake")
    assert outside.exists()


def test_a_commit_log_describes_its_commit(tmp_path):
    (name,) = half_published(tmp_path).glob("_commit-*.json")
    assert json.loads(name.read_text()) == {
        "job": "job",
        "phase": "publishing",
        "publish": list(NEW),
        "remove": list(OLD),
        "stream": None,
        "number": 0,
    }


def test_a_listing_is_repeated_if_a_commit_overtakes_it(tmp_path, monkeypatch):
    put(tmp_path, OLD)
    put(tmp_path / "_temporary-job", NEW)

    done = []

    def listed(*arguments, list_files=commit_log.list_files, **options):
        actual = list_files(*arguments, **options)
        if not done:  # the listed file is deleted before it is opened
            done.append(True)
            publish(Place.of(tmp_path), "job", list(NEW), list(OLD))
        return actual

    monkeypatch.setattr(commit_log, "list_files", listed)
    assert values(tmp_path) == [3, 4, 5]


def test_folders_deleted_while_listing_hide_no_files(tmp_path, monkeypatch):
    """Otherwise an overwrite would keep files that it could not list, and readers would fail."""
    put(tmp_path, OLD)
    put(tmp_path / "_temporary-job", {"new.parquet": 3})
    gone = tmp_path / "_temporary-other" / "day=1"

    def selector(path, recursive=False, real=pafs.FileSelector):
        if recursive and gone.parent.is_dir():
            raise FileNotFoundError(f"[Errno 2] Cannot list directory '{gone}'")
        if str(path) == str(gone):
            gone.rmdir()
            gone.parent.rmdir()
        return real(str(path), recursive=recursive)

    monkeypatch.setattr(storage, "pafs", SimpleNamespace(**vars(pafs) | {"FileSelector": selector}))
    gone.mkdir(parents=True)
    assert values(tmp_path) == [1, 2]
    assert not gone.exists()
    gone.mkdir(parents=True)
    publish(Place.of(tmp_path), "job", ["new.parquet"], overwrites=[""])
    assert not gone.exists()
    assert values(tmp_path) == [3]


def test_a_failed_listing_is_not_taken_for_an_empty_folder(tmp_path, monkeypatch):
    put(tmp_path, OLD)
    put(tmp_path / "_temporary-job", {"new.parquet": 3})

    def list_files(*arguments, **options):
        raise ia.PathError("cannot be looked at")

    monkeypatch.setattr(storage_module, "list_files", list_files)
    with pytest.raises(ia.PathError, match="cannot be looked at"):
        publish(Place.of(tmp_path), "job", ["new.parquet"], overwrites=[""])
    with pytest.raises(ia.PathError, match="cannot be looked at"):
        has_data(Place.of(tmp_path))
    assert values(tmp_path) == [1, 2]


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_listing_notices_the_first_commit_below_a_folder(tmp_path, monkeypatch, is_ended):
    """The parent folder was listed before the commit began, the folders below were not."""
    lake, new = tmp_path / "logs", {f"p={n}/new.parquet": n for n in range(3)}
    old = {f"p={n}/old.parquet": n for n in range(3)}
    put(lake, old)
    put(lake / "_temporary-job", new)
    looks = []

    def listed(path, *arguments, list_files=commit_log.list_files, seen, **options):
        on, before = list_files(path, *arguments, seen=seen)
        if str(path) == str(tmp_path) and not looks:
            looks.append(path)
            place = Place.of(lake)
            if is_ended:
                publish(place, "job", list(new), list(old))
            else:
                with contextlib.suppress(Died):
                    publish(DyingPlace(place, 7), "job", list(new), list(old))
            later = {}
            _, after = list_files(path, *arguments, seen=later)
            seen.update((name, info) for name, info in later.items() if "p=0" not in name)
            for name in [name for name in seen if "/_" in name]:
                del seen[name]
            seen[str(lake)] = pafs.FileInfo(str(lake), pafs.FileType.Directory, mtime_ns=1)
            return on, [f for f in before if "p=0" in f] + [f for f in after if "p=0" not in f]
        return on, before

    monkeypatch.setattr(commit_log, "list_files", listed)
    _, files = visible(tmp_path)
    assert sorted(pq.read_table(file, partitioning=None)["v"][0].as_py() for file in files) == [
        0,
        1,
        2,
    ]
    assert len({Path(file).name for file in files}) == 1


def test_a_commit_that_ends_while_its_log_entry_is_opened_is_noticed(tmp_path, monkeypatch):
    put(tmp_path, {"old.parquet": 0})
    (tmp_path / "_SUCCESS").touch()
    put(tmp_path / "_temporary-job", {"a.parquet": 1, "b.parquet": 2})
    half, go_on, done = threading.Event(), threading.Event(), threading.Event()

    class Slow(LocalPlace):
        def move(self, name, to):
            super().move(name, to)
            if to == "a.parquet":
                half.set()
                go_on.wait()

    def append():
        publish(Slow(pafs.LocalFileSystem(), str(tmp_path)), "job", ["a.parquet", "b.parquet"])
        done.set()

    def list_files(*arguments, real=commit_log.list_files, **options):
        if (
            not half.is_set()
        ):  # it begins after the first listing, and is halfway when files are listed
            threading.Thread(target=append).start()
            half.wait()
        return real(*arguments, **options)

    reader = threading.current_thread()

    def opened(*arguments, real=commit_log._read_entry):
        if threading.current_thread() is reader and not done.is_set():
            go_on.set()
            done.wait()
        return real(*arguments)

    monkeypatch.setattr(commit_log, "list_files", list_files)
    monkeypatch.setattr(commit_log, "_read_entry", opened)
    assert values(tmp_path) in ([0], [0, 1, 2])


def test_a_listing_notices_that_a_commit_is_undone(tmp_path):
    put(tmp_path, OLD)
    put(tmp_path / "_temporary-job", NEW)
    (tmp_path / "_SUCCESS").touch()
    before = commit_log._state(pafs.LocalFileSystem(), str(tmp_path))

    class Failing(LocalPlace):
        def move(self, name, to):
            if to == "day=2/c.parquet":
                raise OSError("no room")
            super().move(name, to)

    with pytest.raises(ia.PathError, match="no room"):
        publish(Failing(pafs.LocalFileSystem(), str(tmp_path)), "job", list(NEW))
    assert commit_log._state(pafs.LocalFileSystem(), str(tmp_path)) != before


def test_remote_storage_without_commits_takes_one_request(tmp_path, monkeypatch):
    put(tmp_path, OLD)
    requests = []
    far = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    real = commit_log._names

    def names(*arguments):
        requests.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(commit_log, "_names", names)
    assert sorted(ia.dataset("/", filesystem=far).to_table(["v"])["v"].to_pylist()) == [1, 2]
    assert len(requests) == 1
    half = half_published(tmp_path / "half").relative_to(tmp_path)
    requests.clear()
    assert ia.dataset(f"/{half}", filesystem=far).to_table(["v"])["v"].to_pylist() == [2, 1]
    assert len(requests) == 3


# --- jobs whose rows can be recovered -------------------------------------------------------------


def test_a_job_that_keeps_rows_never_loses_them_when_its_driver_dies(tmp_path):
    for steps in itertools.count():
        folder = tmp_path / str(steps)
        put(folder, OLD)
        put(folder / "_temporary-job", NEW)
        keep_job(Place.of(folder), "job")
        with contextlib.suppress(Died):
            publish(DyingPlace(Place.of(folder), steps), "job", list(NEW), list(OLD))
            break
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            removed = recover(folder)
        remaining = sorted(
            pq.read_table(file, partitioning=None)["v"][0].as_py()
            for file in (folder / "_temporary-job").rglob("*.parquet")
        )
        assert (values(folder), remaining) in (([1, 2], [3, 4, 5]), ([3, 4, 5], []))
        assert set(removed) <= {*OLD, "_temporary-job"}
        assert [str(folder / "_temporary-job") in str(one.message) for one in warned] == (
            [True] if remaining else []
        )
        recover(folder, keep_unfinished=False)
        assert not list(folder.glob("_temporary-*"))
    assert steps > 8
    assert values(folder) == [3, 4, 5]


def test_an_empty_folder_is_not_kept(tmp_path):
    (tmp_path / "_temporary-job").mkdir()
    keep_job(Place.of(tmp_path), "job")
    assert recover(tmp_path) == ["_temporary-job"]


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        ("intarsia.errors.PathError: /a: no room\n\tat x", ia.PathError, "/a: no room"),
        ("intarsia.errors.FormatError: /a: torn\nintarsia.errors.IndexSpecError: b", None, "b"),
        ("intarsia.errors.Where: x", RuntimeError, "intarsia.errors.Where: x"),
        ("java.io.IOException: x", RuntimeError, "java.io.IOException: x"),
    ],
)
def test_errors_of_tasks_are_reported_unchanged(said, kind, text):
    actual = original_error(RuntimeError(said))
    assert type(actual) is (kind or ia.IndexSpecError)
    assert str(actual) == text


def test_overwriting_files_removes_their_sidecars(tmp_path):
    put(tmp_path, OLD | {"day=1/other.parquet": 9})
    ia.add_indexes(tmp_path, ["v:lookup"], sidecar=True)
    put(tmp_path / "_temporary-job", {"a.parquet": 3})
    publish(Place.of(tmp_path), "job", ["a.parquet"], list(OLD))
    assert by_dataset(tmp_path) == [3, 9]
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.intarsia")}
    assert [name.split(".")[0] for name in left] == ["day=1/_intarsia/other"]
    publish(Place.of(tmp_path), "next", [], overwrites=["day=1"])
    assert sorted(os.listdir(tmp_path)) == ["_SUCCESS", "_temporary-job", "a.parquet"]
