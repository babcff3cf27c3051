"""Takes pictures of the pages that ``--html`` makes, with Chromium.

``draw.py`` calls ``take``. The pages are those of the file of ``intarsia demo`` and of a lake of
departures. Each picture is taken in light and in dark mode.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

import intarsia as ia

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars")
MODES = {"": 1, "-dark": 0}  # the end of a file's name, and Chromium's number of the mode
WIDTH = 1000
FIRST = "main{padding-top:12px}.brand,.lowest{display:none}"
# Hides all parts of the page of a query but the pages and bytes of its file.
QUERY = """h1,.lead,dl.facts,section:first-of-type,section h2,section>p,
section h3:first-of-type,section h3:first-of-type+table{display:none}
section,section h3:nth-of-type(2){margin-top:0}"""
HEIGHTS = {"explain": 425, "inspect": 988, "status": 1018}  # end between two parts of a page
DEMO = "intarsia-demo/logs.parquet"


def lake(table: pa.Table, path: Path) -> None:
    """Writes ten indexed months by Intarsia, and two without indexes by pyarrow."""
    numbers = pc.utf8_lpad(pc.cast(table["month"], pa.string()), 2, "0")
    months = pc.binary_join_element_wise("2013", numbers, "-")
    table = table.append_column("period", months)
    is_foreign = pc.is_in(table["month"], value_set=pa.array([10, 11]))
    indexes = ["tailnum:lookup", "dest:distinct"]
    indexed = table.filter(pc.invert(is_foreign))
    ia.write_dataset(
        indexed, path, partition_by=["period"], indexes=indexes, max_rows_per_file=5_000
    )
    ia.add_indexes(path, indexes, keep=True, replace=False)
    pads.write_dataset(
        table.filter(is_foreign),
        path,
        format="parquet",
        partitioning=["period"],
        partitioning_flavor="hive",
        max_rows_per_file=10_000,
        max_rows_per_group=10_000,
        existing_data_behavior="overwrite_or_ignore",
    )


def take(table: pa.Table, folder: Path, target: Path) -> None:
    """Writes explain, inspect and status as PNG files to ``target``."""
    if not (folder / DEMO).exists():
        _intarsia(folder, "demo")
    trace = ia.dataset(folder / DEMO).take([500_123], columns=["trace_id"])["trace_id"][0]
    where = f"trace_id = '{trace}'"
    _intarsia(folder, "explain", DEMO, "--where", where, "--html", "explain.html")
    _intarsia(folder, "inspect", DEMO, "--html", "inspect.html")
    lake(table, folder / "flights")
    _intarsia(folder, "status", "flights", "--html", "status.html")
    for name, height in HEIGHTS.items():
        page = folder / f"{name}.html"
        style = FIRST + (QUERY if name == "explain" else "")
        html = page.read_text().replace(f"{folder}/", "")
        page.write_text(html.replace("</style>", f"{style}</style>", 1))
        for ending, mode in MODES.items():
            _shoot(page, height, mode, target / f"{name}{ending}.png")


def _intarsia(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "intarsia", *arguments]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def _shoot(page: Path, height: int, mode: int, out: Path) -> None:
    """Saves the top of a page as a picture."""
    assert BROWSER is not None
    command = [
        BROWSER,
        *OPTIONS,
        f"--user-data-dir={page.parent / 'profile'}",
        f"--window-size={WIDTH},{height}",
        f"--blink-settings=preferredColorScheme={mode}",
        f"--screenshot={out}",
        page.as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
