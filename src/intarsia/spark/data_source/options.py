"""The options of ``format("intarsia")``, which are text, as what they stand for."""

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
from intarsia.writer.defaults import PAGE_ROWS

_LISTS = ("partition_by", "cluster_by", "sort_within")
_WRITES = (
    "indexes",
    *_LISTS,
    "rows_per_page",
    "target_file_size",
    "compression",
    "partition_overwrite",
    "checkpoint_row_groups",
    "keep_unfinished",
)
_READS = ("where", "columns", "parallelism", "table_format")
_TABLES = ("catalog", "sidecar", "merge_schema")
_STREAMS = ("max_files_per_trigger", "max_file_age")
_SPARKS = {
    "partitionoverwritemode": "partition_overwrite",
    "maxfilespertrigger": "max_files_per_trigger",
    "maxfileage": "max_file_age",
    "timezone": "time_zone",
    "mergeschema": "merge_schema",
}
"""Spark's own names of options, in small letters."""
_PASSED = ("path", "paths", "checkpointlocation")
_ARTIFACTS, _NO_ARTIFACTS = "SPARK_JOB_ARTIFACT_UUID", "default"
"""Of an environment variable: otherwise Spark has its Python run in a folder of its own."""
_AGE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*")
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Options = Mapping[str, str]


def path_of(options: Options) -> str | list[str]:
    """The path, or the paths, to read from or write to.

    Raises ``PathError`` without one, and for one that is relative to a folder that Spark made for
    its Python processes, and removes.
    """
    if "paths" in options:
        found: list[str] = json.loads(options["paths"])
        for path in found:
            _check_absolute(path)
        return found
    if not options.get("path"):
        raise PathError(
            "no path was given: tables of a catalog give none (what saveAsTable wrote is read by "
            "its path), temp views do"
        )
    _check_absolute(options["path"])
    return options["path"]


def _check_absolute(path: str) -> None:
    is_scratch = os.environ.get(_ARTIFACTS, _NO_ARTIFACTS) != _NO_ARTIFACTS
    is_absolute = is_uri(path) or os.path.isabs(path)
    if is_scratch and not is_absolute:
        raise PathError(
            f"{path}: the path is relative, and on Spark Connect there is nothing it could be "
            "relative to: give an absolute one"
        )


def check_writes(options: Options) -> None:
    """Raise ``ValueError`` for options that writing does not have."""
    if "curve" in options:
        raise ValueError(
            "option 'curve': rows are written as they come; put them on a curve before, by "
            "intarsia.spark.cluster(df, cluster_by, curve=…), or use intarsia.spark.write.write"
        )
    _check(options, (*_WRITES, "time_zone"), "writes")


def check_reads(options: Options, *, streams: bool) -> None:
    """Raise ``ValueError`` for options that reading does not have."""
    _check(options, (*_READS, *(_STREAMS if streams else _TABLES)), "reads")


def _check(options: Options, known: Sequence[str], does: str) -> None:
    for name in options:
        ours = _SPARKS.get(name.lower(), name.lower())
        if ours not in known and ours not in _PASSED:
            raise ValueError(f"option {name!r} is unknown where one {does}: {', '.join(known)}")


def get(options: Options, name: str) -> str | None:
    """An option by our name of it, be it given by that or Spark's."""
    for theirs, ours in _SPARKS.items():
        if ours == name and theirs in options:
            return options[theirs]
    return options.get(name)


def layout_of(options: Options) -> Layout:
    """How files are to be laid out."""
    return Layout(
        indexes=options.get("indexes", "") or (),
        partition_by=names_of(options, "partition_by"),
        cluster_by=names_of(options, "cluster_by"),
        sort_within=names_of(options, "sort_within"),
        rows_per_page=count_of(options, "rows_per_page") or PAGE_ROWS,
        target_file_size=options.get("target_file_size"),
        checkpoint_row_groups=count_of(options, "checkpoint_row_groups"),
        keep_unfinished=flag_of(options, "keep_unfinished"),
        compression=options.get("compression", "zstd"),
    )


def count_of(options: Options, name: str) -> int | None:
    """A whole number from 1 on; None where it is not given. Raises ``ValueError`` for others."""
    text = get(options, name)
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"option {name!r} is a number from 1 on, not {text!r}")
    return int(text)


def flag_of(options: Options, name: str) -> bool:
    """``true`` or ``false``; false where it is not given. Raises ``ValueError`` for others."""
    text = (get(options, name) or "false").strip().lower()
    if text not in ("true", "false"):
        raise ValueError(f"option {name!r} is true or false, not {text!r}")
    return text == "true"


def catalog_of(options: Options) -> bool | Literal["auto"]:
    """Is a catalog to be asked; ``auto``: where there is one. Raises ``ValueError`` for others."""
    is_auto = (get(options, "catalog") or "auto").strip().lower() == "auto"
    return "auto" if is_auto else flag_of(options, "catalog")


def table_format_of(options: Options) -> TableFormatOption:
    """What is done about tables of other formats. Raises ``ValueError`` as ``dataset`` does."""
    asked: Any = (get(options, "table_format") or "auto").strip().lower()
    check_table_format(asked)
    found: TableFormatOption = asked
    return found


def age_of(options: Options, default: str) -> int:
    """The greatest age of files in ms. Raises ``ValueError`` for what is not like ``7d``."""
    text = get(options, "max_file_age") or default
    found = _AGE.fullmatch(text)
    if not found:
        raise ValueError(f"option 'max_file_age' is a time such as 7d, 12h or 30m, not {text!r}")
    return int(float(found.group(1)) * _MILLISECONDS[found.group(2)])


def names_of(options: Options, name: str) -> list[str]:
    """Names with commas between them; JSON for names that have commas in them.

    Raises ``ValueError`` for what is no list in JSON.
    """
    text = options.get(name, "")
    if not text.strip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return [str(part) for part in json.loads(text)]
    except ValueError as error:
        raise ValueError(f"option {name!r} is no list in JSON: {text!r}: {error}") from error
