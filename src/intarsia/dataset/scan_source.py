"""``ScanSource``: the files of a data set, and how they are opened and read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs

from intarsia.catalog.catalog import Catalog
from intarsia.dataset.partition_values import folder_constants
from intarsia.file.read_options import ReadOptions
from intarsia.scan.files.file_cache import FileCache
from intarsia.scan.files.file_pruning import File, prune_files
from intarsia.scan.request import FilterLike, Request, expression_of
from intarsia.scan.scan import Part, scan
from intarsia.threads import each_in_one_thread


@dataclass(frozen=True, eq=False, slots=True)
class ScanSource:
    """The files that scans of a data set read, and what they have in common.

    A data set and its fragments share the cache, so each file is opened once for all of them.
    """

    files: Sequence[File]
    schema: pa.Schema
    filesystem: pafs.FileSystem
    cache: FileCache
    filter: pc.Expression | None = None
    """The data set's own filter, which applies to every scan of it."""

    @classmethod
    def of(
        cls,
        fragments: Sequence[pads.Fragment],
        schema: pa.Schema,
        filesystem: pafs.FileSystem,
        cache: FileCache,
    ) -> ScanSource:
        """Returns the source for the files of pyarrow's fragments, without a filter."""
        table = cache.table
        files = [
            File(
                f.path,
                folder_constants(f, schema)
                if table is None
                else table.views[f.path].constants_in(schema),
            )
            for f in fragments
        ]
        return cls(files, schema, filesystem, cache)

    @property
    def options(self) -> ReadOptions:
        """How the files are read."""
        return self.cache.options

    @property
    def catalog(self) -> Catalog | None:
        """Facts about the files that are known without opening them. None without a catalog."""
        return self.cache.catalog

    def with_cache(self, cache: FileCache) -> ScanSource:
        """Returns the same source, whose files ``cache`` opens, as parts of its table if any."""
        if cache.table is None or cache.table is self.cache.table:
            return replace(self, cache=cache)
        views = cache.table.views
        files = [File(f.path, views[f.path].constants_in(self.schema)) for f in self.files]
        return replace(self, cache=cache, files=files)

    def profiled(self) -> ScanSource:
        """Returns the same source, whose files are opened anew and record what is read."""
        return self.with_cache(self.cache.anew(is_profiled=True))

    def filter_with(self, filter_: FilterLike) -> pc.Expression | None:
        """Returns the filter of a scan: ``filter_`` and the data set's own. Either may be None.

        Raises as ``expression_of`` does.
        """
        condition = expression_of(filter_, self.schema)
        if condition is None or self.filter is None:
            return self.filter if condition is None else condition
        return self.filter & condition

    def parts(self, request: Request, *, use_threads: bool = True) -> Iterator[Part]:
        """Yields the parts of a scan: the files in which rows may match."""
        parts = (candidate.part for candidate in prune_files(self.cache, self.files, request))
        return parts if use_threads else each_in_one_thread(parts)

    def scan(
        self,
        request: Request,
        project: Callable[[pa.Table], pa.Table],
        *,
        parts: Iterable[Part] | None = None,
        limit: int | None = None,
        use_threads: bool = True,
    ) -> Generator[pa.Table]:
        """Yields the matching rows, read by page, as tables that ``project`` changed.

        By default ``parts`` are all files in which rows may match. After the last table, what was
        noticed about the files is warned of.
        """
        cache = self.cache
        if cache.is_profiled:
            cache.requests.append(request)
        if parts is None:
            parts = self.parts(request, use_threads=use_threads)
        is_far = not cache.is_local
        tables = scan(parts, request, limit=limit, use_threads=use_threads, is_far=is_far)
        with contextlib.closing(tables):  # at once, where ``project`` fails
            yield from map(project, tables)
        cache.health.tell()
