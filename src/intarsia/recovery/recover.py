"""``recover``: writes a Parquet file with the intact row groups of a torn one."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from intarsia.deadline import time_limited
from intarsia.errors import FormatError, PathError, Where, placed, public
from intarsia.io.atomic_replace import (
    TEMPORARY_SUFFIX,
    check_place,
    copy_into,
    remove_leftovers_of,
    replacing,
    spared,
)
from intarsia.io.local_path import local_path
from intarsia.io.source import WindowSource
from intarsia.io.storage import FileSource, PathLike, resolve
from intarsia.notebook import notebook_html
from intarsia.parquet.footer import read_footer
from intarsia.recovery.footer_check import LostGroup
from intarsia.recovery.salvage import Salvage, Template, salvage
from intarsia.redaction import shown_redacted


@shown_redacted
@dataclass(frozen=True, slots=True)
class Recovery:
    """The report of ``recover``: what was recovered from a torn file, and what was lost.

    Offsets and lengths are in bytes.

    Examples
    --------
    >>> report = ia.recover("logs.parquet", "whole.parquet")
    >>> report.is_whole, report.rows, report.rows_gone
    (True, 1000, 0)
    >>> sorted(report.to_dict())[:3]
    ['bytes', 'bytes_gone', 'bytes_kept']
    """

    torn: str
    """Path of the torn file."""
    out: str
    """Path of the new file."""
    rows: int
    """Rows of the new file."""
    row_groups: int
    """Row groups of the new file."""
    is_whole: bool
    """True if nothing was missing: the copy equals the file."""
    checkpoint_rows: int
    """Rows of row groups in a footer of the torn file."""
    rebuilt_rows: int
    """Rows of row groups that were found by their pages."""
    rebuilt_row_groups: int
    """Row groups that were found by their pages."""
    lost: tuple[LostGroup, ...]
    """Damaged row groups of a footer of the torn file."""
    bytes: int
    """Length of the torn file."""
    bytes_kept: int
    """Bytes of the torn file, from its start, that were copied."""
    bytes_gone: int
    """Bytes behind the copied ones, and bytes of lost row groups."""
    rows_gone: int
    """Lost rows that can be counted: those of lost row groups, and those that the first column has
    in whole pages of an unfinished row group. More rows may never have reached the disk."""
    stopped_at: int
    """The offset up to which the torn file could be read."""
    reason: str
    """Why it could not be read further."""
    notes: tuple[str, ...]
    """Remarks on the recovered rows, such as pages without checksums."""

    def __str__(self) -> str:
        lines = [
            f"{self.rows:,} rows in {self.row_groups:,} row groups recovered from {self.torn}",
            f"  listed in a footer of the file: {self.checkpoint_rows:,} rows; "
            f"found by their pages: {self.rebuilt_rows:,} rows",
        ]
        if self.is_whole:
            lines.append("  nothing is missing: this is the whole file")
        else:
            lines.append(
                f"  stopped at offset {self.stopped_at:,} of {self.bytes:,}: {self.reason}"
            )
            lines.append(
                f"  gone: {self.bytes_gone:,} bytes; rows that can be counted: {self.rows_gone:,}"
            )
        lines += [f"  lost: {group}" for group in self.lost]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts = [
            (name.replace("_", " "), len(value) if name == "lost" else value)
            for name, value in self.to_dict().items()
        ]
        return notebook_html(f"Recovered {self.rows:,} rows", (("", ""), facts))

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields, as values that JSON can represent."""
        return dataclasses.asdict(self)


@public
@time_limited("recovering")
def recover(
    torn: PathLike,
    out: PathLike,
    *,
    schema_from: PathLike | pa.Schema | None = None,
    filesystem: Any = None,
    timeout: float | None = None,
    memory_limit: int | str | None = None,
) -> Recovery:
    """Writes the intact row groups of a torn Parquet file to a new file.

    Uses the last footer that accounts for every page before it: the file's own, or a checkpoint of
    ``ParquetWriter``. Row groups behind it, or all if there is none, are found by their pages.
    Row groups with pages that cannot be decoded, or do not match their checksums, are left out.

    Every recovered row is one that was written, and complete. Row groups whose extent is not
    certain are left out and reported. The limits:

    - Without a footer, columns of one type and without dictionaries cannot be distinguished.
    - A page without a checksum may have damage that decoding does not show.
    - A wrong schema is not noticed if the values of its columns take the same bytes.

    Removes files that killed processes have left beside ``torn`` and ``out``, unless they hold rows
    of their own. An example is an unfinished copy to which indexes were being added.

    Parameters
    ----------
    torn : path-like
        A Parquet file that was cut short or damaged. It is not changed.
    out : path-like
        The new file, which may not be ``torn``. It replaces an existing file in one step, and only
        on success.
    schema_from : path-like or pyarrow.Schema, optional
        The schema, or a Parquet file with the same columns. Needed if no footer is left. A file
        also gives each column's codec. Otherwise, or if these codecs fit no page, one codec for
        all columns is found by trial.
    filesystem : pyarrow.fs.FileSystem or fsspec.AbstractFileSystem, optional
        The file system that has the files. By default the local one, or the one of the URI.
    timeout : float, optional
        Seconds after which to give up.
    memory_limit : int or str, optional
        The most memory to take, in bytes or as in ``"2GB"``.

    Returns
    -------
    Recovery
        The recovered and the lost rows, row groups and bytes.

    Raises
    ------
    FormatError
        If nothing can be recovered.
    UnsupportedError
        For encrypted or signed files.
    PathError
        If ``torn`` does not exist, or ``out`` cannot be written.
    QueryTimeoutError
        After ``timeout`` seconds.
    OutOfMemoryError
        If a page does not fit into ``memory_limit``.

    Examples
    --------
    >>> with open("logs.parquet", "rb") as whole, open("torn.parquet", "wb") as torn:
    ...     size = torn.write(whole.read()[:-100])
    >>> ia.recover("torn.parquet", "recovered.parquet", schema_from="logs.parquet").rows
    1000
    """
    torn_on, path = resolve(torn, filesystem)
    target_on, target = resolve(out, filesystem)
    _check_paths(torn_on, path, target_on, target)
    _check_is_other(schema_from, target, target_on, filesystem)
    source = FileSource(torn_on, path)
    template = _template(schema_from, filesystem)
    protected = spared(local_path(path, torn_on))
    with placed(Where(path)), contextlib.closing(source), protected:
        remove_leftovers_of([path], torn_on)
        salvaged = salvage(source, template)
        model = path if torn_on.equals(target_on) else None
        with replacing(target, target_on, like=model) as create, create() as file:
            copy_into(WindowSource(source, 0, salvaged.length), file)
            file.write(salvaged.footer or b"")
    return _report(path, target, salvaged, source.size)


def _report(path: str, target: str, salvaged: Salvage, size: int) -> Recovery:
    rebuilt = [group for group in salvaged.saved if group.is_rebuilt]
    rows = sum(group.rows for group in salvaged.saved)
    rebuilt_rows = sum(group.rows for group in rebuilt)
    return Recovery(
        torn=path,
        out=target,
        rows=rows,
        row_groups=len(salvaged.saved),
        is_whole=salvaged.is_whole,
        checkpoint_rows=rows - rebuilt_rows,
        rebuilt_rows=rebuilt_rows,
        rebuilt_row_groups=len(rebuilt),
        lost=tuple(salvaged.lost),
        bytes=size,
        bytes_kept=salvaged.length,
        bytes_gone=size - salvaged.length + sum(group.bytes for group in salvaged.lost),
        rows_gone=salvaged.rows_begun + sum(group.rows or 0 for group in salvaged.lost),
        stopped_at=salvaged.stopped_at,
        reason=salvaged.reason,
        notes=tuple(salvaged.notes),
    )


def _template(schema_from: PathLike | pa.Schema | None, filesystem: Any) -> Any:
    if schema_from is None or isinstance(schema_from, pa.Schema):
        return schema_from
    schema_on, path = resolve(schema_from, filesystem)
    source = FileSource(schema_on, path)
    try:
        footer = read_footer(source)
    except FormatError as error:
        raise error.at(Where(path)) from error
    finally:
        source.close()
    return Template(footer.raw, footer.metadata)


def _check_paths(on: pafs.FileSystem, torn: str, target_on: pafs.FileSystem, target: str) -> None:
    local, local_target = local_path(torn, on), local_path(target, target_on)
    if local is not None and not os.path.exists(local):
        unfinished = _unfinished(Path(local))
        hint = f"; unfinished writes of it: {', '.join(unfinished)}" if unfinished else ""
        raise PathError(f"{torn}: there is no such file{hint}")
    if _are_one(local, local_target) or (on.equals(target_on) and torn == target):
        raise PathError(f"{target}: this is the torn file itself, which is not to be changed")
    if local_target is not None:
        check_place(local_target)


def _check_is_other(
    schema_from: PathLike | pa.Schema | None,
    target: str,
    target_on: pafs.FileSystem,
    filesystem: Any,
) -> None:
    if not isinstance(schema_from, str | os.PathLike):
        return
    on, path = resolve(schema_from, filesystem)
    if _are_one(local_path(path, on), local_path(target, target_on)):
        raise PathError(f"{target}: this is the file that the schema is from")


def _are_one(path: str | None, other: str | None) -> bool:
    """True if two paths on the local disk are those of one file."""
    if path is None or other is None:
        return False
    return os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other)


def _unfinished(path: Path) -> list[str]:
    """Returns the names of temporary files that killed writers of ``path`` left beside it."""
    if not path.parent.is_dir():
        return []
    names = sorted(os.listdir(path.parent))
    start = f".{path.name[:60]}."
    return [name for name in names if name.startswith(start) and name.endswith(TEMPORARY_SUFFIX)]
