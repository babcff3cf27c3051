"""The files that a glob matches, on every kind of file system."""

import glob
import os
from functools import partial

import fsspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.dataset.commit_log import visible
from intarsia.io.glob import matching
from intarsia.io.storage import list_files

FILES = ["a=1/x.parquet", "a=1/y.parquet", "a=2/x.parquet", "b/c/z.parquet"]
HIDDEN = ["_old/x.parquet", ".h/x.parquet", "a=1/_x.parquet", "b/_c/x.parquet"]

NUMBERS = pa.table({"n": [1]})

GLOBS = {
    "a=*/x.parquet": ["a=1/x.parquet", "a=2/x.parquet"],
    "a=[2-9]/*": ["a=2/x.parquet"],
    "?=1": ["a=1/x.parquet", "a=1/y.parquet"],
    "*": FILES,
    "*/*": FILES,
    "**": FILES,
    "**/*": FILES,
    "**/x.parquet": ["a=1/x.parquet", "a=2/x.parquet"],
    "b/**/z.parquet": ["b/c/z.parquet"],
    "**/c/*.parquet": ["b/c/z.parquet"],
    "_*/*.parquet": ["_old/x.parquet"],
    "*/_*.parquet": ["a=1/_x.parquet"],
    "*.parquet": None,
    "none/*": None,
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake")
    for number, name in enumerate([*FILES, *HIDDEN]):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"v": [number]}), folder / name)
    return folder


@pytest.fixture(params=["local", "pyarrow", "fsspec"])
def place(request, lake):
    """A file system, and the folder on it."""
    if request.param == "local":
        yield None, str(lake)
    elif request.param == "pyarrow":
        yield pafs.SubTreeFileSystem(str(lake.parent), pafs.LocalFileSystem()), lake.name
    else:
        memory = fsspec.filesystem("memory")
        memory.put(str(lake), "/lake", recursive=True)
        yield memory, "/lake"
        memory.rm("/lake", recursive=True)


def test_a_glob_skips_folders_without_data(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b" / "_hidden").mkdir(parents=True)
    pq.write_table(pa.table({"v": [1]}), tmp_path / "b" / "_hidden" / "x.parquet")
    with pytest.raises(ia.PathError, match="no data file in the folders that match"):
        list_files(f"{tmp_path}/*")
    pq.write_table(pa.table({"v": [1]}), tmp_path / "a" / "x.parquet")
    assert list_files(f"{tmp_path}/*")[1] == [f"{tmp_path}/a/x.parquet"]
    with pytest.raises(ia.PathError, match="no data file in this folder"):
        list_files([tmp_path / "a", tmp_path / "b"])


def test_an_empty_list_of_paths_is_an_error():
    with pytest.raises(ia.PathError, match="no path was given"):
        visible([])


@pytest.mark.parametrize("name", ["a\0b.parquet", "\ud800.parquet"])
def test_impossible_file_names_are_an_error(name, tmp_path):
    path = f"{tmp_path}/{name}"
    for call in (ia.dataset, ia.ParquetFile, ia.verify, partial(ia.write_table, NUMBERS)):
        with pytest.raises(ia.PathError, match="not a valid path"):
            call(path)
    assert os.listdir(tmp_path) == []


REFUSED = ["*/*.parquet", "**/x.parquet", "**", "*/b/x.parquet"]


@pytest.mark.parametrize("pattern", [*REFUSED, "*/x.parquet"])
def test_a_folder_that_cannot_be_listed_is_an_error(pattern, lake, monkeypatch):
    def failing(real, below):
        def refused(path, **options):
            if str(path).endswith(below):
                raise PermissionError(13, "Permission denied", path)
            return real(path, **options)

        return refused

    monkeypatch.setattr(os, "listdir", failing(os.listdir, "a=2"))
    monkeypatch.setattr(os, "stat", failing(os.stat, "a=2/b"))
    if pattern == "*/x.parquet":  # for which it need not be listed
        assert len(list_files(f"{lake}/{pattern}")[1]) == 2
        return
    with pytest.raises(ia.PathError, match=r"cannot be accessed: .*Permission denied"):
        list_files(f"{lake}/{pattern}")


def test_a_link_to_itself_is_ignored(tmp_path):
    pq.write_table(pa.table({"v": [1]}), tmp_path / "x.parquet")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for pattern in ("*.parquet", "**/*.parquet", "**/**/x.parquet"):
        assert list_files(f"{tmp_path}/{pattern}")[1] == [f"{tmp_path}/x.parquet"]
    with pytest.raises(ia.PathError, match="nothing matches"):
        list_files(f"{tmp_path}/nowhere/**/*.parquet")


@pytest.mark.parametrize("pattern", ["**/x.parquet", "*/**/x.parquet", "*/*/x.parquet"])
def test_links_that_lead_back_up_are_not_followed(pattern, tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    pq.write_table(pa.table({"v": [1]}), tmp_path / "a" / "b" / "x.parquet")
    (tmp_path / "a" / "b" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "b" / "here").symlink_to(tmp_path / "a" / "b")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    _, files = list_files(f"{tmp_path}/{pattern}")
    assert files == [f"{tmp_path}/a/b/x.parquet"]


@pytest.mark.parametrize(
    "pattern",
    [*GLOBS, "*/", "**/", "a=?/[xy].parquet", ".h/*", ".*/x*", "**/**/x*", "**/a=1/../**/x*"],
)
def test_globs_match_as_in_python(pattern, lake):
    actual = {path.rstrip("/") for path in glob.glob(f"{lake}/{pattern}", recursive=True)}
    ours = {path.rstrip("/") for path in matching(pafs.LocalFileSystem(), f"{lake}/{pattern}")}
    hidden = {path for path in actual if "/_" in path.removeprefix(str(lake))}
    assert actual - hidden <= ours <= actual
    assert hidden <= ours or "_" not in pattern


@pytest.mark.parametrize(("pattern", "expected"), GLOBS.items(), ids=GLOBS)
def test_a_glob_lists_each_file_once(pattern, expected, place):
    filesystem, folder = place
    if expected is None:
        with pytest.raises(ia.PathError, match="nothing matches"):
            list_files(f"{folder}/{pattern}", filesystem)
        return
    _, files = list_files(f"{folder}/{pattern}", filesystem)
    assert [file.removeprefix(f"{folder}/") for file in files] == expected
    actual = ia.dataset(f"{folder}/{pattern}", filesystem=filesystem).to_table(["v"])["v"]
    numbers = [[*FILES, *HIDDEN].index(name) for name in expected]
    assert actual.to_pylist() == numbers


@pytest.mark.parametrize("given", [5, b"lake", None])
def test_other_types_than_paths_are_a_type_error(given):
    with pytest.raises(TypeError, match=f"expected a path or .* not {type(given).__name__}"):
        ia.dataset(given)


def test_an_open_file_is_no_path(tmp_path):
    with (tmp_path / "a").open("wb") as file, pytest.raises(TypeError, match="BufferedWriter"):
        ia.ParquetFile(file)
