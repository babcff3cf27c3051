"""Settings ``spark.intarsia.*`` of a session: defaults of arguments that are not given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "spark.intarsia."
SETTINGS: Mapping[str, Callable[[str], Any]] = {
    "reader": str,
    "sidecar": str,
    "on_corrupt": str,
    "page_size_limit": int,
    "compression": str,
    "rows_per_page": int,
    "target_file_size": str,
    "split_bytes": str,
    "parallelism": int,
}
"""The arguments that a session sets, and how their text is read. The functions check the values."""


def or_session_setting(spark: SparkSession, name: str, value: Any) -> Any:
    """Returns ``value``, or what the session sets if it is None. Raises ``ValueError``."""
    if value is not None:
        return value
    text = spark.conf.get(PREFIX + name, "")
    if not text:
        return None
    try:
        return SETTINGS[name](text)
    except ValueError:
        raise ValueError(f"{PREFIX}{name} is a whole number, not {text!r}") from None
