"""Files with deprecated bounds only: after a change, other readers still skip by these bounds."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.parquet.metadata import FileMetaData
from intarsia.parquet.thrift import amended, decode, encode

TABLE = pa.table(
    {
        "i": range(1000),
        "x": [row / 8 - 3 for row in range(1000)],
        "b": [row >= 500 for row in range(1000)],
        "u": pa.array(range(1000), pa.uint32()),
        "t": [f"{row:04}" for row in range(1000)],
    }
)


def with_old_bounds(chunk: Any) -> Any:
    stats = chunk.meta_data.statistics
    old = {"null_count": stats.null_count, "min": stats.min_value, "max": stats.max_value}
    bare = amended(chunk, meta_data={"statistics": None})
    return amended(bare, meta_data={"statistics": old})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file as writers made it in 2015."""
    path = tmp_path / "old.parquet"
    pq.write_table(TABLE, path, row_group_size=100, write_page_index=False)
    data = path.read_bytes()
    (length,) = struct.unpack("<I", data[-8:-4])
    metadata, _ = decode(FileMetaData, data[-8 - length : -8])
    groups = [
        amended(group, columns=[with_old_bounds(chunk) for chunk in group.columns])
        for group in metadata.row_groups
    ]
    raw = encode(amended(metadata, column_orders=None, row_groups=groups))
    path.write_bytes(data[: -8 - length] + raw + struct.pack("<I", len(raw)) + b"PAR1")
    return path


def bounds_seen(path: Path) -> list[Any]:
    """The bounds that pyarrow reads from the first row group."""
    group = pq.read_metadata(path).row_group(0)
    stats = [group.column(number).statistics for number in range(group.num_columns)]
    return [(one.min, one.max) if one.has_min_max else None for one in stats]


@pytest.mark.parametrize("index", [ia.PageIndex(), ia.Bloom("i"), ia.Lookup("i")])
def test_other_readers_skip_by_deprecated_bounds_as_before(path, index):
    before, data = bounds_seen(path), path.read_bytes()
    assert before[:3] == [(0, 99), (-3.0, 99 / 8 - 3), (False, False)]
    ia.add_indexes(path, [index])
    assert bounds_seen(path) == before
    (fragment,) = pads.dataset(path).get_fragments()
    assert len(fragment.subset(pc.field("i") == 5).row_groups) == 1
    assert len(fragment.subset(pc.field("b")).row_groups) == 5
    assert ia.verify(path) == []
    for filter_ in (pc.field("i") == 5, pc.field("x") < -2, ~pc.field("b"), pc.field("t") > "07"):
        assert ia.dataset(path).to_table(filter=filter_).equals(TABLE.filter(filter_))
    ia.drop_indexes(path, all=True)
    assert path.read_bytes() == data
