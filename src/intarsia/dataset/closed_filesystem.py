"""A file system that opens no file: pyarrow's own scans of a table would give wrong rows."""

from __future__ import annotations

from typing import Any, NoReturn

import pyarrow.fs as pafs

from intarsia.errors import UnsupportedError


class _Closed(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow is not typed
    """Raises ``UnsupportedError`` for anything that is done with a file."""

    def __init__(self, table: str) -> None:
        self._table = table

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Closed) and other._table == self._table

    __hash__ = None  # type: ignore[assignment]  # mypy knows no class without a hash

    def get_type_name(self) -> str:
        return "closed"

    def normalize_path(self, path: str) -> str:
        return path

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise UnsupportedError(
            f"{self._table} deletes rows of its files, or gives columns other names. pyarrow's own "
            "scans do not know that: use the data set's methods, such as scanner or to_batches"
        )

    get_file_info = get_file_info_selector = _refuse
    open_input_stream = open_input_file = open_output_stream = open_append_stream = _refuse
    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = _refuse


def closed_filesystem(table: str) -> pafs.FileSystem:
    """Returns a file system that opens no file of a table, which is named in its errors."""
    return pafs.PyFileSystem(_Closed(table))
