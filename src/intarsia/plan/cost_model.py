"""The costs that decide how rows are found and read: each with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass

_KIB, _MIB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class CostModel:
    """Costs and limits of planning and reading. None of them changes an answer.

    Examples
    --------
    >>> CostModel(probe_bytes=0).probe_bytes
    0
    """

    # Embedded indexes.
    probe_bytes: int = 256 * _KIB  # bytes read and decoded in the time of one local probe.
    index_page_bytes: int = 20 * _KIB  # usual size of a page of an index, least of a column's page.
    entries_cost: int = 2  # time to decode a byte of index entries, relative to one of a column.
    search_cost: int = 6  # the same if all values are searched; columns are searched undecoded.
    single_steps: int = 16  # tests applied one by one; with more, visiting all tests costs more.
    bloom_values: int = 1000  # values looked up in a bloom filter: of more, it contains some.

    # Many files.
    least_files: int = 4  # files that are examined together; fewer are planned one by one.
    first_batch_files: int = 8  # files examined first: a limit may need no more.
    batch_files: int = 128  # most files of later batches, no more than a cache keeps open.
    key_values: int = 16  # values of an IN: of more, most files hold one and each needs a page.

    # Small files, decoded together.
    small_file_bytes: int = 64 * _KIB  # stored, of the filter's columns; above, files are planned.
    small_file_rows: int = 64 * _KIB  # rows; above, files are planned.
    portion_bytes: int = 4 * _MIB  # decoded bytes of files that are decoded at a time.
    first_portion_files: int = 2  # files that measure sizes; later portions may grow eightfold.
    threaded_file_bytes: int = 128 * _KIB  # below, threads wait for the interpreter's lock.
    single_read_bytes: int = 64 * _KIB  # chunks of a file within this many bytes are one read.

    # Small chunks, read whole under the file's own footer.
    many_chunks: int = 64  # fewer chunks are spliced, which is fast enough.
    chunks_share: int = 32  # fewer than one chunk in this many: pyarrow reads the whole footer.
    chunk_bytes: int = 128 * _KIB  # most mean bytes of a chunk.
    skippable_bytes: int = 16 * _KIB  # most bytes of a chunk that reading single pages would skip.
    sampled: int = 8  # columns and row groups by which the bytes that can be skipped are estimated.
    file_bytes_per_chunk: int = 256 * _KIB  # files with larger chunks are not considered.

    # Units of reading.
    unit_rows: int = _MIB  # usual rows of a unit.
    unit_bytes: int = 32 * _MIB  # usual decoded bytes of a unit.
    first_unit_rows: int = 16 * _KIB  # first unit of a query with a limit; later ones may double.
    unit_scale: int = 4  # a unit is at most this many times the usual size.
    unit_column_bytes: int = 128 * _KIB  # mean bytes of a column: decoding fewer takes as long.
    unit_excess: float = 1.5  # a row group of many columns of up to this many units is one unit.
    cut_share: int = 16  # a unit has this many times the bytes of pages that its edges cut.
    few_row_groups: int = 8  # few rows in at most this many row groups are one unit.
    few_ranges: int = 16  # few rows in at most this many ranges are one unit.
    large_group_rows: int = 128 * _KIB  # from here, locating pages takes less than decoding all.
    large_group_bytes: int = 16 * _MIB  # the same, by the bytes of the columns that are read.
    sparse_share: int = 8  # pages are located if at most one row in this many is selected.

    # The engines' own readers.
    page_cost: float = 3.0  # our processor time for a byte, relative to an engine's.
    sample_files: int = 4  # files whose indexes are read first, to estimate the share of all.
    sample_share: float = 1 / 2  # above this share of its bytes, an engine reads all files.
    row_ranges: int = 64  # ranges of a file; above, row groups: each range is a condition.
    group_share: float = 1 / 2  # above this share of row groups, conditions do not pay.
    files_of_ranges: int = 16  # above, the engine reads all rows: each file takes a SELECT.
    small_bytes: int = _MIB  # most stored bytes of a scan that is read before the engine starts.
    small_rows: int = 16 * _KIB  # most candidate rows of such a scan.
    indexed_chunk_bytes: int = 16 * _KIB  # up to here, reading a chunk takes less than its index.
    pyarrow_sample_files: int = 2  # files planned to estimate all; planning one takes 0.5 ms.
    pyarrow_files: int = 32  # from here, a count by pyarrow is tried on a sample of the files.
    pyarrow_first_files: int = 8  # least files of that sample.
    opened_file_bytes: int = _MIB  # below, opening takes most of the time: no footer is read twice.


COSTS = CostModel()
