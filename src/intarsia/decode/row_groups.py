"""Whole row groups, read by pyarrow as they are in the file, under the file's own footer.

Of small chunks that takes a fraction of the time that it takes to splice their pages: what a
spliced file says of each has to be written, and read again.
"""

from __future__ import annotations

import bisect
import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from intarsia.decode.synthetic_footer import SchemaTemplates
from intarsia.io.source import ByteRange
from intarsia.parquet.footer import MAGIC, framed
from intarsia.parquet.schema import Root


def read_by_pyarrow(footer: bytes) -> pq.FileMetaData:
    """A footer, from its thrift bytes, as pyarrow decodes it. Raises one of ``FAILURES``."""
    return pq.read_metadata(pa.BufferReader(MAGIC + framed(footer)))


class PartsOfFile(io.RawIOBase):
    """A file of which some ranges are in memory, in order, and nothing else can be read."""

    def __init__(self, size: int, ranges: Sequence[ByteRange], parts: Sequence[memoryview]) -> None:
        self._size, self._parts, self._at = size, parts, 0
        self._starts = [offset for offset, _ in ranges]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> memoryview:
        found = self.part((self._at, max(size, 0)))
        self._at += found.nbytes
        return found

    def part(self, range_: ByteRange) -> memoryview:
        """The bytes of a range, as many as are in memory."""
        offset, length = range_
        number = bisect.bisect_right(self._starts, offset) - 1
        if number < 0:
            return memoryview(b"")
        start = offset - self._starts[number]
        return self._parts[number][start : start + length]


def decode_groups(
    templates: SchemaTemplates,
    metadata: pq.FileMetaData,
    file: PartsOfFile,
    groups: Sequence[int],
    roots: Sequence[Root],
    *,
    verify_checksums: bool,
) -> pa.Table:
    """All rows of these row groups, and a column for each of ``roots``, in their order.

    Raises one of ``FAILURES``. No thread but the caller's is left with the file's memory.
    """
    opened = templates.whole(roots, pa.PythonFile(file, mode="r"), metadata, verify_checksums)
    leaves = [leaf for root in roots for leaf in root.leaves]
    return opened.reader.read_row_groups(list(groups), column_indices=leaves, use_threads=False)
