"""Writes files with every feature that Intarsia writes, to be read by all later versions.

``python tests/compat/write_files.py`` makes the folder of this version beside the script. Do so
once a release, and commit it. An existing folder is never written again.
"""

from __future__ import annotations

import datetime
import os
import shutil
import uuid
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

import intarsia as ia

ROWS = 400
CHANGED = 1_767_225_600
"""Modification times in seconds. Sidecars and catalogs compare them, but git does not store them.
"""
WORDS = ["disk full", "timeout of peer", "retry in 5 s", "Ünïcode straße", "user logged in"]
EMBEDDED = [
    ia.Lookup("id", granule_rows=64),
    ia.Lookup("lower(name)", granule_rows=64),
    ia.Bloom("user"),
    ia.MinMax("price", granule_rows=64),
    ia.NGram("msg", granule_rows=64),
    ia.Words("msg", granule_rows=64),
    ia.Distinct("level", granule_rows=64),
    ia.Elements("tags", granule_rows=64),
    ia.Entries("attrs", granule_rows=64),
    ia.PageIndex(),
]
IN_SIDECAR = [ia.Lookup("id", granule_rows=64), ia.NGram("msg", granule_rows=64)]


def rows(first: int = 0) -> pa.Table:
    """400 rows from ``first`` on, of the kinds of columns that indexes are added to."""
    numbers = range(first, first + ROWS)
    moment = datetime.datetime(2026, 1, 1)
    return pa.table(
        {
            "id": pa.array([n * 7919 % 100_003 for n in numbers], pa.int64()),
            "name": [f"Name {n * 31 % 977}" if n % 11 else None for n in numbers],
            "user": [str(uuid.UUID(int=n * 31 % 211)) for n in numbers],
            "price": pa.array([Decimal(n * 37 % 1000) / 100 for n in numbers], pa.decimal128(9, 2)),
            "x": [float("nan") if n % 13 == 0 else n / 7 for n in numbers],
            "msg": [f"{WORDS[n % 5]} no. {n}" for n in numbers],
            "level": [["info", "warn", None, "error"][n // 100 % 4] for n in numbers],
            "ts": [moment + datetime.timedelta(minutes=n) for n in numbers],
            "tags": [[f"t{n % 50}", f"u{n % 7}"][: n % 3] for n in numbers],
            "attrs": pa.array(
                [[("host", f"h{n % 40}"), ("pod", f"p{n}")][: n % 3] for n in numbers],
                pa.map_(pa.string(), pa.string()),
            ),
        }
    )


def write(folder: Path) -> None:
    """Writes one of each: indexes in files, in sidecars, a catalog, and a torn file."""
    folder.mkdir()
    pages = {"data_page_size": 512, "write_batch_size": 20}
    layout = pages | {"row_group_size": 200}
    standard = [ia.DistinctIDX1("level")]
    ia.write_table(rows(), folder / "embedded.parquet", indexes=EMBEDDED, **layout)
    ia.write_table(rows(), folder / "standard.parquet", indexes=standard, **layout)
    ia.write_table(rows(), folder / "sidecar.parquet", **layout)
    os.utime(folder / "sidecar.parquet", (CHANGED, CHANGED))
    ia.add_indexes(folder / "sidecar.parquet", IN_SIDECAR, sidecar=True)
    lake = folder / "lake"
    for part in range(3):
        (lake / f"part={part}").mkdir(parents=True)
        path = lake / f"part={part}" / "a.parquet"
        ia.write_table(rows(part * ROWS), path, indexes=IN_SIDECAR)
        os.utime(path, (CHANGED, CHANGED))
    ia.build_catalog(lake)
    whole = folder / "whole.parquet"
    with ia.ParquetWriter(whole, rows().schema, checkpoint_row_groups=1, **pages) as writer:
        writer.write_table(rows(), row_group_size=200)
        writer.write_table(rows(ROWS), row_group_size=200)
    data = whole.read_bytes()
    (folder / "torn.bin").write_bytes(data[: len(data) * 3 // 4])
    whole.unlink()


if __name__ == "__main__":
    target = Path(__file__).with_name(ia.__version__)
    if target.exists():
        raise SystemExit(f"{target} is there; files of a version are written once")
    temporary = target.with_name(f"{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    write(temporary)
    temporary.rename(target)
