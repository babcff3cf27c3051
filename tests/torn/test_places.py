"""Files that must not be changed, and places that cannot be written, stay as they were."""

import base64
import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import intarsia as ia

TABLE = pa.table({"k": [f"k{n}" for n in range(5000)], "n": range(5000)})
INDEXED = ["k:lookup"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data" / "t.parquet"
    path.parent.mkdir()
    pq.write_table(TABLE, path)
    return path


def state_of(folder):
    """Every file under a folder: its bytes, permissions and times."""
    return {
        path.relative_to(folder): (
            path.read_bytes() if path.is_file() else None,
            stat.S_IMODE(path.lstat().st_mode),
            path.lstat().st_mtime_ns,
            path.lstat().st_ino,
        )
        for path in sorted(folder.rglob("*"))
    }


# --- encrypted and signed -------------------------------------------------------------------------


class Keys(pe.KmsClient):
    """Wraps keys by prefixing the master key's name, since a test needs no secrets."""

    def __init__(self, config):
        super().__init__()

    def wrap_key(self, key, master):
        return base64.b64encode(master.encode() + key)

    def unwrap_key(self, wrapped, master):
        return base64.b64decode(wrapped)[len(master) :]


@pytest.fixture(params=["encrypted footer", "signed footer", "signed footer, all columns plain"])
def locked(tmp_path, request):
    """A folder with an encrypted or signed file, and whether its columns can be read."""
    path = tmp_path / "data" / "locked.parquet"
    path.parent.mkdir()
    columns = {} if "plain" in request.param else {"secret": ["n"]}
    config = pe.EncryptionConfiguration(
        footer_key="footer",
        column_keys=columns,
        plaintext_footer="signed" in request.param,
        uniform_encryption=not columns and "signed" not in request.param,
    )
    factory = pe.CryptoFactory(Keys)
    try:
        properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    except OSError:  # this version requires columns, so one is encrypted
        config.column_keys = {"secret": ["n"]}
        properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    with pq.ParquetWriter(path, TABLE.schema, encryption_properties=properties) as writer:
        writer.write_table(TABLE)
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda path: ia.add_indexes(path, INDEXED),
        lambda path: ia.add_indexes(path, [ia.PageIndex()]),
        lambda path: ia.add_indexes(path, ["n:lookup"], sidecar=True),
        lambda path: ia.drop_indexes(path, INDEXED),
        lambda path: ia.drop_indexes(path, INDEXED, sidecar=True),
        lambda path: ia.recover(path, path.with_name("out.parquet")),
    ],
    ids=["add", "add page index", "add sidecar", "drop", "drop sidecar", "recover"],
)
def test_encrypted_and_signed_files_are_refused_unchanged(locked, change):
    before = state_of(locked.parent)
    with pytest.raises((ia.FormatError, ia.IndexSpecError)):
        change(locked)
    assert state_of(locked.parent) == before


# --- permissions, owners, times, names ------------------------------------------------------------


def test_the_modification_time_is_that_of_the_change(file):
    """Its contents are new: tools that compare times, such as backups, must notice."""
    os.utime(file, (1e9, 1e9))
    began = time.time()
    ia.add_indexes(file, INDEXED)
    assert file.stat().st_mtime > began - 5
    os.utime(file, (1e9, 1e9))
    ia.drop_indexes(file, INDEXED)
    assert file.stat().st_mtime > began - 5


def test_a_sidecar_does_not_touch_its_file(file):
    before = state_of(file.parent)
    ia.add_indexes(file, INDEXED, sidecar=True)
    ia.drop_indexes(file, INDEXED, sidecar=True)
    after = state_of(file.parent)
    del after[Path("_intarsia")]
    assert after == before


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666])
def test_permissions_stay_when_indexes_come_and_go(file, mode):
    file.chmod(mode)
    ia.add_indexes(file, INDEXED)
    assert stat.S_IMODE(file.stat().st_mode) == mode
    ia.drop_indexes(file, INDEXED)
    assert stat.S_IMODE(file.stat().st_mode) == mode


def test_hard_links_cause_a_warning(file):
    other = file.with_name("other.parquet")
    os.link(file, other)
    old = other.read_bytes()
    with pytest.warns(
        ia.IntarsiaWarning, match=r"t\.parquet: the file has 2 names .*keep the old file"
    ):
        ia.add_indexes(file, INDEXED)
    assert other.read_bytes() == old
    assert other.stat().st_nlink == file.stat().st_nlink == 1


def test_a_link_goes_on_to_point_at_the_file_that_was_replaced(file, tmp_path):
    link = tmp_path / "link.parquet"
    link.symlink_to(file)
    for change in (ia.add_indexes, ia.drop_indexes):
        change(link, INDEXED)
        assert link.is_symlink()
        assert link.resolve() == file
        assert os.listdir(file.parent) == [file.name]
    assert pq.read_table(file).equals(TABLE)


def test_a_broken_link_is_no_file(tmp_path):
    link = tmp_path / "link.parquet"
    link.symlink_to(tmp_path / "absent.parquet")
    with pytest.raises(ia.PathError):
        ia.add_indexes(link, INDEXED)
    assert link.is_symlink()


# --- no space, no permission ----------------------------------------------------------------------

CHANGES = {
    "add": "ia.add_indexes(path, ['k:lookup'])",
    "drop": "ia.drop_indexes(path, ['n:lookup'])",
    "sidecar": "ia.add_indexes(path, ['k:lookup'], sidecar=True)",
    "recover": "ia.recover(path, path + '.out')",
    "write": "ia.write_table(pq.read_table(path), path, compression='none')",
    "rewrite": "ia.rewrite(path, compression='none')",
    "rewrite, sorted": "ia.rewrite(path, sort_by='k', target_file_size=500, compression='none')",
    "write, checkpoints": (
        "ia.write_table(pq.read_table(path), path, compression='none', checkpoint_row_groups=1)"
    ),
}
SCRIPT = """
import os, resource, sys
import pyarrow.parquet as pq
import intarsia as ia
from intarsia import *  # another user may not be able to import
path, room, user = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if room:
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
if user:
    os.setgid(user)
    os.setuid(user)
try:
    {change}
except ia.PathError as error:
    print(error)
    sys.exit(3)
"""


def changed(name, path, room=0, user=0):
    command = [sys.executable, "-c", SCRIPT.format(change=CHANGES[name])]
    command += [str(path), str(room), str(user)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def indexed(file):
    ia.add_indexes(file, ["n:lookup"])
    return file


@pytest.mark.parametrize("name", CHANGES)
def test_the_old_file_stays_if_the_size_limit_is_reached(indexed, name):
    before = state_of(indexed.parent)
    done = changed(name, indexed, room=2000)
    assert done.returncode == 3, done.stderr
    assert "cannot be written" in done.stdout
    after = state_of(indexed.parent)
    after.pop(Path("_intarsia"), None)
    assert after == before


@pytest.fixture
def small_disk(tmp_path):
    """A disk of half a megabyte, if this machine allows one to be made."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here: this takes root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("name", CHANGES)
def test_a_full_disk_leaves_the_old_file_and_nothing_else(indexed, small_disk, name):
    path = small_disk / "t.parquet"
    shutil.copy(indexed, path)
    room = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize
    (small_disk / "ballast").write_bytes(bytes(room - 8192))
    before = state_of(small_disk)
    done = changed(name, path)
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "cannot be written" in done.stdout
    assert "No space left on device" in done.stdout
    after = state_of(small_disk)
    after.pop(Path("_intarsia"), None)
    assert after == before


@pytest.fixture
def public():
    """A folder that others may read, unlike the folders of the tests."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.skipif(os.geteuid() != 0, reason="another user is taken for it, which takes root")
def test_a_read_only_folder_is_an_error_and_does_not_change(indexed, name, public):
    folder = shutil.copytree(indexed.parent, public / "data")
    before = state_of(folder)
    done = changed(name, folder / "t.parquet", user=65534)
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "Permission denied" in done.stdout
    assert state_of(folder) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is taken for it, which takes root")
def test_a_folder_without_read_permission_is_an_error(indexed, public):
    folder = shutil.copytree(indexed.parent, public / "data")
    folder.chmod(0o700)
    done = changed("add", folder / "t.parquet", user=65534)
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "Permission denied" in done.stdout


def with_other_footer(path, old, new):
    """Changes bytes of the footer without changing its length, as another tool might."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    assert old in footer
    path.write_bytes(data[: -8 - length] + footer.replace(old, new) + data[-8:])


@pytest.mark.parametrize(
    "change",
    [
        lambda path: ia.drop_indexes(path, INDEXED),
        lambda path: ia.drop_indexes(path.parent, INDEXED),
        lambda path: ia.add_indexes(path, INDEXED),
        lambda path: ia.add_indexes(path, ["k:minmax"]),
        lambda path: ia.add_indexes(path, ["page_index"]),
        lambda path: ia.add_indexes(path.parent, ["bloom(k)"]),
    ],
)
def test_a_footer_changed_by_another_tool_is_neither_undone_nor_trusted(file, change):
    pq.write_table(TABLE.rename_columns(["k", "amount"]), file, store_schema=False)
    ia.add_indexes(file, INDEXED)
    with_other_footer(file, b"amount", b"volume")
    before = state_of(file.parent)
    with pytest.raises(ia.FormatError, match=r"t\.parquet.*does not match its checksum"):
        change(file)
    assert state_of(file.parent) == before
    assert pq.read_schema(file).names == ["k", "volume"]
    assert any("checksum" in str(finding) for finding in ia.verify(file))


def test_the_sidecar_of_a_file_named_by_a_link_goes_on_to_serve(file):
    link = file.with_name("link.parquet")
    link.symlink_to(file.name)
    ia.add_indexes(file, ["n:minmax"], sidecar=True)
    for change in (
        lambda: ia.add_indexes(link, INDEXED),
        lambda: ia.add_indexes(file.parent, ["k:ngram"]),
        lambda: ia.drop_indexes(link, INDEXED),
    ):
        change()
        (report,) = ia.list_indexes(file)
        assert [entry.name for entry in report.sidecar] == ["n:minmax"]
        assert report.problems == ()
    assert link.is_symlink()


def test_an_error_about_an_open_file_names_its_path(file, monkeypatch):
    ds = ia.dataset(file)
    expected = ds.to_table(filter="n < 5")
    looked = os.fstat

    def fail(code):
        def fstat(number):
            raise OSError(code, "injected")

        return fstat

    opened = ia.ParquetFile(file)
    monkeypatch.setattr(os, "fstat", fail(errno.EIO))
    with pytest.raises(ia.PathError, match=r"t\.parquet: cannot be accessed: .*injected"):
        opened.read(["k"])
    monkeypatch.setattr(os, "fstat", fail(errno.ESTALE))  # like a file on a lost network disk
    with pytest.raises(ia.PathError, match="the file was replaced while it was read"):
        opened.read(["k"])
    monkeypatch.setattr(os, "fstat", looked)
    assert ds.to_table(filter="n < 5").equals(expected)
