"""The options of ``format("intarsia")``, parsed from strings."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from intarsia.errors import PathError
from intarsia.io.storage import is_uri
from intarsia.spark.write.job_spec import Layout
from intarsia.tables.data_files import TableFormatOption, check_table_format

_LIST_OPTIONS = ("partition_by", "cluster_by", "sort_within")
_WRITE_OPTIONS = (
    "indexes",
    *_LIST_OPTIONS,
    "rows_per_page",
    "target_file_size",
    "compression",
    "partition_overwrite",
    "checkpoint_row_groups",
    "keep_unfinished",
)
_READ_OPTIONS = ("where", "columns", "parallelism", "table_format")
_FILE_OPTIONS = ("catalog", "sidecar", "merge_schema", "table")
"""Further options of batch reads of files."""
_SNAPSHOT_OPTIONS = {"delta": ("version",), "iceberg": ("snapshot_id", "ref")}
"""The options that select a snapshot, by the kind of table."""
_STREAM_OPTIONS = ("max_files_per_trigger", "max_file_age")
_SPARK_NAMES = {
    "partitionoverwritemode": "partition_overwrite",
    "maxfilespertrigger": "max_files_per_trigger",
    "maxfileage": "max_file_age",
    "timezone": "time_zone",
    "mergeschema": "merge_schema",
    "versionasof": "version",
    "timestampasof": "version",
    "snapshotid": "snapshot_id",
    "snapshot-id": "snapshot_id",
    "branch": "ref",
    "tag": "ref",
}
"""Our names of options by the names of Spark, Delta and Iceberg, in lower case."""
_PATH_OPTIONS = ("path", "paths", "checkpointlocation")
_ARTIFACTS_VARIABLE, _NO_ARTIFACTS = "SPARK_JOB_ARTIFACT_UUID", "default"
"""An environment variable, and its value unless Spark runs its Python in a temporary folder."""
_AGE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*")
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Options = Mapping[str, str]


def path_of(options: Options) -> str | list[str]:
    """Returns the path, or the paths, to read from or write to.

    Raises ``PathError`` without a path, or for a relative path if Spark runs its Python processes
    in a temporary folder.
    """
    if "paths" in options:
        paths: list[str] = json.loads(options["paths"])
        for path in paths:
            _check_absolute(path)
        return paths
    if not options.get("path"):
        raise PathError(
            "no path was given: tables of Spark's catalog pass none; read a table that saveAsTable "
            "wrote by its path, or make a temporary view"
        )
    _check_absolute(options["path"])
    return options["path"]


def _check_absolute(path: str) -> None:
    is_scratch = os.environ.get(_ARTIFACTS_VARIABLE, _NO_ARTIFACTS) != _NO_ARTIFACTS
    is_absolute = is_uri(path) or os.path.isabs(path)
    if is_scratch and not is_absolute:
        raise PathError(
            f"{path}: the path is relative, and Spark Connect has no folder that it could be "
            "relative to: pass an absolute path"
        )


def check_writes(options: Options) -> None:
    """Raises ``ValueError`` for an option that writing does not have."""
    if "curve" in options:
        raise ValueError(
            "option 'curve': rows are written in the order in which they come; sort them before by "
            "intarsia.spark.cluster(df, cluster_by, curve=…), or use intarsia.spark.write"
        )
    _check_names(options, (*_WRITE_OPTIONS, "time_zone"), "write")


def check_reads(options: Options, *, streams: bool) -> None:
    """Raises ``ValueError`` for an option that reading does not have."""
    kind, action = None if streams else table_of(options), "read"
    if kind is None:
        known = (*_READ_OPTIONS, *(_STREAM_OPTIONS if streams else _FILE_OPTIONS))
    else:
        own = ("table", *_SNAPSHOT_OPTIONS[kind], "sidecar")
        known, action = (*_READ_OPTIONS[:-1], *own), f"read a table of {kind}"
    _check_names(options, known, action)


def _check_names(options: Options, known: Sequence[str], action: str) -> None:
    given: dict[str, str] = {}
    for name in options:
        own_name = _SPARK_NAMES.get(name.lower(), name.lower())
        if own_name not in known and own_name not in _PATH_OPTIONS:
            raise ValueError(
                f"option {name!r} is unknown; the options to {action} are {', '.join(known)}"
            )
        if own_name in given:
            raise ValueError(f"options {given[own_name]!r} and {name!r} are the same: give one")
        given[own_name] = name


def table_of(options: Options) -> Literal["delta", "iceberg"] | None:
    """Returns the kind of table to read, or None for files. Raises ``ValueError`` for others."""
    kind = options.get("table")
    if kind is None:
        return None
    match kind.strip().lower():
        case "delta" | "iceberg" as known:
            return known
    raise ValueError(f"option 'table' is delta or iceberg, not {kind!r}")


def get(options: Options, name: str) -> str | None:
    """Returns an option by our name, whether it is set by our name or by Spark's."""
    for spark_name, own_name in _SPARK_NAMES.items():
        if own_name == name and spark_name in options:
            return options[spark_name]
    return options.get(name)


def layout_of(options: Options) -> Layout:
    """Returns how files are to be laid out."""
    return Layout(
        indexes=options.get("indexes") or None,
        partition_by=names_of(options, "partition_by"),
        cluster_by=names_of(options, "cluster_by"),
        sort_within=names_of(options, "sort_within"),
        rows_per_page=count_of(options, "rows_per_page"),
        target_file_size=options.get("target_file_size"),
        checkpoint_row_groups=count_of(options, "checkpoint_row_groups"),
        keep_unfinished=flag_of(options, "keep_unfinished"),
        compression=options.get("compression"),
    )


def count_of(options: Options, name: str) -> int | None:
    """Returns an integer from 1 on, None if not set. Raises ``ValueError`` for other values."""
    text = get(options, name)
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"option {name!r} is a number from 1 on, not {text!r}")
    return int(text)


def flag_of(options: Options, name: str) -> bool:
    """Returns whether the option is ``true``, by default not. Raises ``ValueError`` otherwise."""
    text = (get(options, name) or "false").strip().lower()
    if text not in ("true", "false"):
        raise ValueError(f"option {name!r} is true or false, not {text!r}")
    return text == "true"


def catalog_of(options: Options) -> bool | Literal["auto"]:
    """Returns whether a catalog is used, or ``auto``. Raises ``ValueError`` for other values."""
    is_auto = (get(options, "catalog") or "auto").strip().lower() == "auto"
    return "auto" if is_auto else flag_of(options, "catalog")


def table_format_of(options: Options) -> TableFormatOption:
    """Returns the handling of other table formats. Raises ``ValueError`` as ``dataset`` does."""
    text: Any = (get(options, "table_format") or "auto").strip().lower()
    check_table_format(text)
    table_format: TableFormatOption = text
    return table_format


def age_of(options: Options, default: str) -> int:
    """Returns the maximum age of files in ms. Raises ``ValueError`` unless it is as ``7d``."""
    text = get(options, "max_file_age") or default
    match = _AGE.fullmatch(text)
    if not match:
        raise ValueError(f"option 'max_file_age' is a time such as 7d, 12h or 30m, not {text!r}")
    return int(float(match.group(1)) * _MILLISECONDS[match.group(2)])


def names_of(options: Options, name: str) -> list[str]:
    """Returns names between commas or in a JSON list. Raises ``ValueError`` for a bad list."""
    text = options.get(name, "")
    if not text.strip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return [str(part) for part in json.loads(text)]
    except ValueError as error:
        raise ValueError(f"option {name!r} is no list in JSON: {text!r}: {error}") from error
