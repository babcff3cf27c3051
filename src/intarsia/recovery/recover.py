"""``recover``: a Parquet file of what is left of one that was cut short."""

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
from intarsia.parquet.footer import read_footer
from intarsia.recovery.footer_check import LostGroup
from intarsia.recovery.salvage import Salvage, Template, salvage
from intarsia.redaction import shown_redacted


@shown_redacted
@dataclass(frozen=True, slots=True)
class Recovery:
    """What came back from a torn file, and what did not. Offsets and lengths are in bytes."""

    torn: str
    out: str
    rows: int
    row_groups: int
    is_whole: bool
    """Nothing was missing: the copy is the file as it was."""
    checkpoint_rows: int
    """Rows that a footer of the file's own vouches for."""
    rebuilt_rows: int
    """Rows of row groups that were found by their pages."""
    rebuilt_row_groups: int
    lost: tuple[LostGroup, ...]
    """Row groups that a footer tells of and that are damaged."""
    bytes: int
    """Length of the torn file."""
    bytes_kept: int
    """Of the torn file, from its start."""
    bytes_gone: int
    """After those that were kept, and in row groups that are lost."""
    rows_gone: int
    """As far as they can be counted: in row groups that are lost, and of the first column in whole
    pages of a row group that was not finished. What was never on the disk, nobody knows."""
    stopped_at: int
    """The offset up to which the file makes sense."""
    reason: str
    """Why not further."""
    notes: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.rows:,} rows in {self.row_groups:,} row groups recovered from {self.torn}",
            f"  vouched for by a footer of its own: {self.checkpoint_rows:,} rows; "
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

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON takes it."""
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
    """Write to ``out`` what is left of ``torn``, a Parquet file that was cut short or damaged.

    The file is cut back to the last footer that accounts for every page before it, be it a
    checkpoint of ``ParquetWriter`` or the file's last. Row groups written since are found by their
    pages, as far as pages tell where columns end; so are all of a file without a footer, with the
    schema of ``schema_from``, a Parquet file of the same columns or a ``pyarrow.Schema``. A file
    tells each column's codec as well; else, and where that undoes no pages, one is found by trial,
    the same for all. Row groups with pages that do not match their checksums, or cannot be decoded,
    are left out.

    Every row that comes back is one that was written, whole. What cannot be told for certain is
    left out and reported: without a footer, columns of one type and without dictionaries cannot
    be told apart, damage that a page without a checksum does not show is not found, and a schema
    of other columns whose values take the same bytes is taken at its word.

    What killed processes have left beside ``torn`` and ``out`` is removed, if it holds no rows of
    its own: unfinished copies that indexes were added to, and the like.

    ``torn`` is not changed; ``out`` appears at once, in place of what is there, or not at all, and
    may not be ``torn``. Raises ``FormatError`` where nothing can be recovered, ``UnsupportedError``
    for encrypted or signed files, ``PathError`` where a path is no use, ``QueryTimeoutError`` after
    ``timeout`` seconds, ``OutOfMemoryError`` for a page that does not fit into ``memory_limit``.
    """
    found, path = resolve(torn, filesystem)
    target_on, target = resolve(out, filesystem)
    _check_paths(found, path, target_on, target)
    _check_is_other(schema_from, target, target_on, filesystem)
    source = FileSource(found, path)
    template = _template(schema_from, filesystem)
    spared_path = spared(local_path(path, found))
    with placed(Where(path)), contextlib.closing(source), spared_path:
        remove_leftovers_of([path], found)
        kept = salvage(source, template)
        model = path if found.equals(target_on) else None
        with replacing(target, target_on, like=model) as create, create() as file:
            copy_into(WindowSource(source, 0, kept.length), file)
            file.write(kept.footer or b"")
    return _report(path, target, kept, source.size)


def _report(path: str, target: str, kept: Salvage, size: int) -> Recovery:
    rebuilt = [group for group in kept.saved if group.is_rebuilt]
    rows = sum(group.rows for group in kept.saved)
    rebuilt_rows = sum(group.rows for group in rebuilt)
    return Recovery(
        torn=path,
        out=target,
        rows=rows,
        row_groups=len(kept.saved),
        is_whole=kept.is_whole,
        checkpoint_rows=rows - rebuilt_rows,
        rebuilt_rows=rebuilt_rows,
        rebuilt_row_groups=len(rebuilt),
        lost=tuple(kept.lost),
        bytes=size,
        bytes_kept=kept.length,
        bytes_gone=size - kept.length + sum(group.bytes for group in kept.lost),
        rows_gone=kept.rows_begun + sum(group.rows or 0 for group in kept.lost),
        stopped_at=kept.stopped_at,
        reason=kept.reason,
        notes=tuple(kept.notes),
    )


def _template(schema_from: PathLike | pa.Schema | None, filesystem: Any) -> Any:
    if schema_from is None or isinstance(schema_from, pa.Schema):
        return schema_from
    found, path = resolve(schema_from, filesystem)
    source = FileSource(found, path)
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
    """Are two paths on the local disk those of one file?"""
    if path is None or other is None:
        return False
    return os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other)


def _unfinished(path: Path) -> list[str]:
    """Temporary files that killed writers of ``path`` have left beside it."""
    if not path.parent.is_dir():
        return []
    names = sorted(os.listdir(path.parent))
    start = f".{path.name[:60]}."
    return [name for name in names if name.startswith(start) and name.endswith(TEMPORARY_SUFFIX)]
