"""HTML pages, saved at once or not at all."""

from __future__ import annotations

from pathlib import Path

import click
import pyarrow.fs as pafs

from intarsia.errors import PathError
from intarsia.io.atomic_replace import check_place, replacing
from intarsia.io.storage import FileSource, resolve
from intarsia.parquet.footer import MAGIC
from intarsia.report.render import check_jinja2


def check_option(html: str | None, as_json: bool) -> None:
    """Raises an error early if a page cannot be written."""
    if html is None:
        return
    if as_json:
        raise click.UsageError("--html and --json are two forms: one of them can be had at a time")
    _check_place(html)


def _check_place(out: str) -> None:
    check_jinja2()
    filesystem, path = resolve(out)
    if not isinstance(filesystem, pafs.LocalFileSystem):
        raise PathError(f"{path}: pages are written to local folders only")
    check_place(path)
    place = Path(path)
    if place.exists() and place.stat().st_size >= len(MAGIC):
        source = FileSource(filesystem, path)
        head = bytes(source.read([(0, len(MAGIC))])[0])
        source.close()
        if head == MAGIC:
            raise PathError(f"{path}: it is a Parquet file, whose place no page is to take")


def save(out: str, html: str) -> None:
    """Writes a page to ``out``, and replaces an existing file. Raises ``PathError`` on failure."""
    filesystem, path = resolve(out)
    with replacing(path, filesystem) as create, create() as file:
        file.write(html.encode())
