"""Which files a glob means, on every kind of file system."""

import fsspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.data.journal import visible
from intarsia.storage import list_files

FILES = ["a=1/x.parquet", "a=1/y.parquet", "a=2/x.parquet", "b/c/z.parquet"]
HIDDEN = ["_old/x.parquet", ".h/x.parquet", "a=1/_x.parquet", "b/_c/x.parquet"]

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


def test_a_glob_passes_over_folders_without_data(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b" / "_hidden").mkdir(parents=True)
    pq.write_table(pa.table({"v": [1]}), tmp_path / "b" / "_hidden" / "x.parquet")
    with pytest.raises(ia.PathError, match="no data file in the folders that match"):
        list_files(f"{tmp_path}/*")
    pq.write_table(pa.table({"v": [1]}), tmp_path / "a" / "x.parquet")
    assert list_files(f"{tmp_path}/*")[1] == [f"{tmp_path}/a/x.parquet"]
    with pytest.raises(ia.PathError, match="no data file in this folder"):
        list_files([tmp_path / "a", tmp_path / "b"])


def test_no_path_is_none_at_all():
    with pytest.raises(ia.PathError, match="no path was given"):
        visible([])


@pytest.mark.parametrize(("pattern", "expected"), GLOBS.items(), ids=GLOBS)
def test_a_glob_means_each_file_once(pattern, expected, place):
    filesystem, folder = place
    if expected is None:
        with pytest.raises(ia.PathError, match="nothing matches"):
            list_files(f"{folder}/{pattern}", filesystem)
        return
    _, files = list_files(f"{folder}/{pattern}", filesystem)
    assert [file.removeprefix(f"{folder}/") for file in files] == expected
    found = ia.dataset(f"{folder}/{pattern}", filesystem=filesystem).to_table(["v"])["v"]
    numbers = [[*FILES, *HIDDEN].index(name) for name in expected]
    assert found.to_pylist() == numbers
