"""Tables that others keep: which files count is said by a log of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.fs as pafs

from intarsia.data.journal import folders_above
from intarsia.errors import PathError

if TYPE_CHECKING:
    from intarsia.spark.place import Place

STREAM_LOG = "_spark_metadata"
"""What a stream of Spark's own writes beside its files; Spark reads a folder by it."""
_LOGS = {
    "_delta_log": "a Delta table",
    STREAM_LOG: "a folder that a stream of Spark's own writes to",
    ".hoodie": "a Hudi table",
}


def check_own(place: Place) -> None:
    """Raise ``PathError`` for a folder in a table whose log would not know of new files there."""
    logs = [(folder, log) for folder in folders_above(place.root) for log in _LOGS]
    infos = place.filesystem.get_file_info([f"{folder}/{log}" for folder, log in logs])
    for (folder, log), info in zip(logs, infos, strict=True):
        if info.type == pafs.FileType.Directory:
            raise PathError(
                f"{place.root}: {folder} is {_LOGS[log]}, whose log ({log}) would not know of what "
                "is written here"
            )
