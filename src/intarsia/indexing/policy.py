"""The policy of a data set: the indexes, the layout and the sort order that its files should have.

It is ``_intarsia/policy.json`` in the data set's folder. Other readers ignore that folder. Our
writers read it when they add files, and ``maintain`` adds what files lack.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow.dataset as pads
import pyarrow.fs as pafs

from intarsia.errors import FormatError, IndexSpecError, IntarsiaError, PathError, Where, warn
from intarsia.index.index import Index
from intarsia.index.parquet_indexes import PageIndex, Standard
from intarsia.index.registry import IndexSpec, parse, parse_indexes, spec_name, spec_text
from intarsia.io.glob import is_glob
from intarsia.io.retry import infos_of
from intarsia.io.small_file import read_small_file, write_small_file
from intarsia.io.storage import POLICY_NAME, SIDECAR_FOLDER, as_list, folders_above, resolve
from intarsia.limits import MAX_POLICY_BYTES
from intarsia.redaction import shown_redacted
from intarsia.tables.data_files import Data, table_of

_VERSION = 1
_LAYOUT: Mapping[str, type] = {
    "rows_per_page": int,
    "row_group_rows": int,
    "target_file_size": int,
    "compression": str,
}
"""The settings of a layout and their types. Sizes are in bytes."""


@shown_redacted
@dataclass(frozen=True, slots=True)
class Policy:
    """The indexes, layout and order that the files of a data set should have.

    Attributes
    ----------
    indexes : tuple of str
        The indexes, as ``add_indexes`` takes them.
    sort_by : tuple of str
        The columns that rows are sorted by when files are written anew.
    layout : dict
        ``rows_per_page``, ``row_group_rows``, ``target_file_size`` in bytes, and ``compression``,
        as far as they are set.
    page_index : bool
        True if files without a page index get one along with an index that finds rows.
    sidecar : bool or str
        Where ``maintain`` puts indexes: False for the files, True for sidecars beside them, or the
        folder of the sidecars. New files that our writers make have the indexes themselves.

    Raises
    ------
    FormatError
        If an attribute has another type.
    IndexSpecError
        If an index is invalid.

    Examples
    --------
    >>> Policy(("trace_id:lookup",), layout={"rows_per_page": 2048}).specs
    [Lookup(on='trace_id', granule_rows=8192)]
    """

    indexes: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    layout: Mapping[str, int | str] = field(default_factory=dict)
    page_index: bool = True
    sidecar: bool | str = False

    def __post_init__(self) -> None:
        for name in ("indexes", "sort_by"):
            strings = getattr(self, name)
            if not isinstance(strings, tuple) or not all(isinstance(one, str) for one in strings):
                raise FormatError(f"the policy's {name} is not a list of strings")
        if type(self.page_index) is not bool or not isinstance(self.sidecar, bool | str):
            raise FormatError("the policy's page_index or sidecar has another type")
        if any(isinstance(one, Standard) for one in parse_indexes(self.indexes)) and self.sidecar:
            raise IndexSpecError("the policy's bloom filters and page indexes do not fit sidecars")
        for name, value in self.layout.items():
            kind = _LAYOUT.get(name)
            is_valid = kind is not None and type(value) is kind and (kind is str or int(value) > 0)
            if not is_valid:
                raise FormatError(f"the policy's layout has {name}={value!r:.100}")

    @property
    def specs(self) -> list[IndexSpec]:
        """The indexes as objects."""
        return parse_indexes(self.indexes)

    def with_indexes(self, indexes: Sequence[Index | str]) -> Policy:
        """Returns the policy with these indexes too. One of the same name is replaced.

        The page index of all columns becomes ``page_index``.
        """
        texts = {spec_name(parse(text)): text for text in self.indexes}
        specs = parse_indexes(indexes)
        texts |= {spec_name(one): spec_text(one) for one in specs if one != PageIndex()}
        page_index = self.page_index or PageIndex() in specs
        return replace(self, indexes=tuple(texts.values()), page_index=page_index)

    def encode(self) -> bytes:
        """Returns the policy as JSON, in UTF-8."""
        document = {
            "version": _VERSION,
            "indexes": self.indexes,
            "sort_by": self.sort_by,
            "layout": dict(self.layout),
            "page_index": self.page_index,
            "sidecar": self.sidecar,
        }
        return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> Policy:
        """Reads a policy. Raises ``FormatError`` if it is none, or of a later version."""
        try:
            document: Any = json.loads(data)
            version = document["version"]
            if version != _VERSION:
                raise FormatError(f"a policy of version {version!r:.9}, not {_VERSION}")
            return cls(
                tuple(document.get("indexes", ())),
                tuple(document.get("sort_by", ())),
                dict(document.get("layout", {})),
                document.get("page_index", True),
                document.get("sidecar", False),
            )
        except FormatError:
            raise
        except (ValueError, TypeError, KeyError, RecursionError, IntarsiaError) as error:
            raise FormatError(f"not a policy: {error!r:.200}") from error


def policy_path(root: str) -> str:
    """Returns the path of the policy of the data set in the folder ``root``."""
    return f"{root.rstrip('/')}/{SIDECAR_FOLDER}/{POLICY_NAME}"


def read_policy(filesystem: pafs.FileSystem, root: str) -> Policy | None:
    """Returns the policy of the data set in the folder ``root``. None if it has none.

    Raises ``FormatError`` if it is damaged, and ``PathError`` if it cannot be read.
    """
    path = policy_path(root)
    try:
        data = read_small_file(filesystem, path, "the policy", MAX_POLICY_BYTES)
        return None if data is None else Policy.decode(data)
    except FormatError as error:
        raise error.at(Where(path)) from error


def write_policy(filesystem: pafs.FileSystem, root: str, policy: Policy) -> None:
    """Writes the policy of the data set in the folder ``root``. Raises ``PathError``."""
    write_small_file(filesystem, policy_path(root), policy.encode())


def policy_folder(path: Data, filesystem: Any) -> tuple[pafs.FileSystem, str]:
    """Returns the file system of ``path``, and the folder there. A table has its own folder.

    Raises ``PathError`` if it is no folder.
    """
    if isinstance(path, pads.FileSystemDataset):
        table = table_of(path)
        if table is None or table.root is None:
            raise PathError(f"{path!r}: a policy is of one folder, and this is not one")
        return path.filesystem, table.root
    given = as_list(path)
    storage, root = resolve(given[0], filesystem)
    kind = infos_of(storage, root).type
    if kind == pafs.FileType.NotFound and not is_glob(root):
        raise PathError(f"{root}: there is no such folder")
    if len(given) > 1 or kind != pafs.FileType.Directory:
        raise PathError(f"{root}: a policy is of one folder, and this is not one")
    return storage, root.rstrip("/")


def change_policy(
    filesystem: pafs.FileSystem,
    root: str,
    indexes: Sequence[Index | str] = (),
    layout: Mapping[str, int | str] | None = None,
    **attributes: Any,
) -> None:
    """Adds indexes and settings of the layout to a folder's policy, and replaces ``attributes``.

    Raises ``PathError`` if the policy cannot be written.
    """
    old = read_policy(filesystem, root) or Policy()
    policy = replace(old, layout={**old.layout, **(layout or {})}, **attributes)
    write_policy(filesystem, root, policy.with_indexes(indexes))


def policy_above(filesystem: pafs.FileSystem, folder: str) -> Policy | None:
    """Returns the policy of the data set that ``folder`` belongs to. None if it has none.

    The data set's folder is ``folder`` or, above ``key=value`` folders, one that holds them. A
    damaged policy is ignored with a warning: a write must not fail because of it.
    """
    for place in folders_above(folder):
        try:
            policy = read_policy(filesystem, place)
        except (IntarsiaError, OSError) as error:
            warn(f"the policy of {place} is ignored: {error}")
            return None
        if policy is not None:
            return policy
    return None
