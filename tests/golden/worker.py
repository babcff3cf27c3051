"""Reads and changes files of the corpus in its own process, since pyarrow may crash.

Reads paths; prints, for each, ``start`` and the path, then a JSON object of outcomes.
"""

import contextlib
import fcntl
import json
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from gathered import TWO_GIGABYTES

import intarsia as ia
from intarsia.decode import splice
from intarsia.file.chunk_reader import Chunk
from intarsia.io.source import BufferSource
from intarsia.parquet.footer import read_footer
from intarsia.parquet.metadata import PageType
from intarsia.parquet.thrift import amended, encode
from intarsia.scan.parquet_file import open_file

NAMES = {
    PageType.DATA_PAGE: "DATA_V1",
    PageType.DATA_PAGE_V2: "DATA_V2",
    PageType.DICTIONARY_PAGE: "DICT",
    PageType.INDEX_PAGE: "INDEX",
}
WITH_LOGICAL_TYPES = pads.ParquetFileFormat(arrow_extensions_enabled=True)
"""Reads UUIDs and JSON as such in files without ``ARROW:schema``, as data sets here do."""
NEEDED_BYTES = 6 * 10**9
"""The memory that is free before the file of two gigabytes is read. Reading takes 5.5 GB."""
MAX_WAIT_SECONDS = 1200
READ_ERRORS = (pa.ArrowException, OSError, UnicodeDecodeError)


def outcomes(path: Path, scratch: Path) -> dict:
    actual = {"opens": opens(path), "footer": footer(path)}
    if path.name != TWO_GIGABYTES:
        actual["findings"], actual["verify_seconds"] = findings(path)
    theirs = by_pyarrow(path)
    actual["reads"] = reads(path, theirs)
    if actual["opens"] != "yes":
        return actual
    actual["page_index"] = page_index(path, scratch, actual["reads"], theirs)
    # pyarrow's data set cannot read what its reader cannot.
    actual["left"] = "not by pyarrow" if theirs is None else left(path)
    del theirs
    actual["pages"], actual["crc"] = pages(path)
    if actual["page_index"] == "added":
        actual["findings_after"], seconds = findings(scratch / path.name)
        # The copy holds all bytes of the original, so its findings include those of the original.
        actual.setdefault("findings", actual["findings_after"])
        actual.setdefault("verify_seconds", seconds)
    (scratch / path.name).unlink(missing_ok=True)
    return actual


def opens(path: Path) -> str:
    try:
        ia.ParquetFile(path)
    except ia.UnsupportedError:
        return "unsupported"
    except ia.FormatError:
        return "no"
    return "yes"


def footer(path: Path) -> str:
    """Compares the re-encoded footer with the stored bytes."""
    try:
        actual = read_footer(BufferSource(path.read_bytes()))
        groups = [
            amended(group, columns=[amended(column) for column in group.columns])
            for group in actual.metadata.row_groups
        ]
    except ia.FormatError:
        return "not decodable"
    again = encode(amended(actual.metadata, row_groups=groups))
    return "identical" if actual.raw.startswith(again) else "differs"


def pages(path: Path) -> tuple[dict | str, int]:
    """Counts pages by type over all chunks, and pages with a checksum."""
    file = open_file(path)
    counts, crc = Counter(), 0
    try:
        for group in range(len(file.metadata.row_groups)):
            for leaf in range(len(file.schema.leaves)):
                for page in Chunk(file, group, leaf).pages():
                    counts[NAMES.get(page.header.type, "other")] += 1
                    crc += page.header.crc is not None
    except ia.FormatError as error:
        return str(error), crc
    return dict(counts), crc


def by_pyarrow(path: Path) -> pa.Table | None:
    """Returns pyarrow's rows. Returns None if pyarrow raises an error."""
    try:
        theirs = pq.ParquetFile(path).read()
        _ = theirs.schema.names  # fails on names that are not UTF-8
    except READ_ERRORS:
        return None
    return theirs


def reads(path: Path, theirs: pa.Table | None) -> str:
    """Compares the rows read here, whole and in part, with pyarrow's."""
    try:
        file = ia.ParquetFile(path)
        with patch.object(splice, "_MIN_WIDE_ROWS", 0):  # reads strings as in files of many rows
            ours = file.read()
        middle = (ours.num_rows // 3, -(-ours.num_rows * 2 // 3))
        part = file.read(rows=ia.RowRanges.of(middle))
    except ia.IntarsiaError:
        return "by neither" if theirs is None else "by pyarrow only"
    if theirs is None:
        return "here only"
    same = equal(ours, theirs) and equal(part, theirs.slice(middle[0], middle[1] - middle[0]))
    return "equal" if same and ours.schema.names == theirs.schema.names else "differently"


def left(path: Path) -> str:
    """Compares a data set's rows with pyarrow's, with every page checked and with a filter."""
    try:
        theirs = pads.dataset(path, format=WITH_LOGICAL_TYPES).to_table()
        always = pc.is_valid(pc.field(theirs.schema.names[0])) | pc.scalar(True)
    except (*READ_ERRORS, IndexError):  # no column
        return "not by pyarrow"
    try:
        checked = ia.dataset(path, on_corrupt="skip").to_table()
        filtered = ia.dataset(path).to_table(filter=always)
    except ia.IntarsiaError:
        return "not here"
    return "all" if equal(checked, theirs) and equal(filtered, theirs) else "not all"


def equal(ours: pa.Table, theirs: pa.Table) -> bool:
    if not ours.schema.equals(theirs.schema):
        return False
    return ours.equals(theirs) or repr(ours.to_pylist()) == repr(theirs.to_pylist())


def findings(path: Path) -> tuple[list[dict], float]:
    """Returns what ``verify`` finds, and its processor time in seconds. A warning is an error."""
    before = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        actual = ia.verify(path)
    seconds = time.process_time() - before
    assert all(finding.where.file == str(path) for finding in actual)
    rows = [
        {
            "severity": finding.severity.name,
            "column": finding.where.column,
            "page": finding.where.page,
            "message": finding.message,
        }
        for finding in actual
    ]
    return rows, seconds


def page_index(path: Path, scratch: Path, read: str, theirs: pa.Table | None) -> str:
    """Compares pyarrow's rows of a copy with page indexes with those of the original."""
    copy = scratch / path.name
    shutil.copyfile(path, copy)
    before = path.read_bytes()
    try:
        ia.add_indexes(copy, [ia.PageIndex()])
    except ia.IntarsiaError:
        return "refused" if copy.read_bytes() == before else "refused, and changed"
    if not copy.read_bytes().startswith(before):
        return "moved bytes"
    if read not in ("equal", "by pyarrow only"):
        return "added"
    return "added" if equal(pq.ParquetFile(copy).read(), theirs) else "broken"


def main() -> None:
    warnings.simplefilter("ignore", ia.IntarsiaWarning)
    with tempfile.TemporaryDirectory() as scratch:
        for line in sys.stdin:
            path = Path(line.rstrip("\n"))
            print("start", path, sep="\t", flush=True)
            with alone() if path.name == TWO_GIGABYTES else contextlib.nullcontext():
                print(json.dumps(outcomes(path, Path(scratch))), flush=True)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Waits for the workers of other suites, and some minutes for ``NEEDED_BYTES`` of memory."""
    with (Path(tempfile.gettempdir()) / "intarsia-golden.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        end = time.monotonic() + MAX_WAIT_SECONDS
        while available_bytes() < NEEDED_BYTES and time.monotonic() < end:
            time.sleep(1)
        yield


def available_bytes() -> int:
    """The memory that a process can take. Suites side by side keep Spark sessions meanwhile."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


if __name__ == "__main__":
    main()
