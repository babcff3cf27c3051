"""Finds the flights of one aircraft among 336,776, and says how little was read.

python examples/find_flight.py [TAILNUM]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from flight_data import flights

import intarsia as ia

COLUMNS = ["time_hour", "carrier", "flight", "origin", "dest", "dep_delay"]


def main(tailnum: str) -> None:
    """Writes the flights with a lookup on the aircraft, and prints those of one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "flights.parquet")
        ia.write_table(flights(), path, indexes=["tailnum:lookup"])
        data = ia.dataset(path)
        rows = data.prepare("tailnum = ?").to_table(tailnum, columns=COLUMNS)
        print("  ".join(COLUMNS))
        for row in rows.to_pylist():
            print("  ".join(str(row[name]).rjust(len(name)) for name in COLUMNS))
        sought = ia.dataset(path).explain(COLUMNS, [("tailnum", "==", tailnum)], analyze=True)
        print(f"{rows.num_rows} of {data.count_rows():,} flights; {sought.verdict}")


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "N541US")
