"""The pages as a browser shows them: complete, nothing cut off, in light and dark mode.

Pages may not contain scripts, so the tests look at pictures of them. Content beyond the edge would
show in the margins, which must be empty.
"""

import shutil
import struct
import subprocess
import zlib

import numpy as np
import pyarrow as pa
import pytest

import intarsia as ia
from intarsia.report.query_page import MAX_SHOWN_FILES
from intarsia.report.render import file_html, query_html
from intarsia.scan.parquet_file import open_file

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser: {', '.join(NAMES)}")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
WIDTHS = (800, 1400)
LONG = "a_name_without_any_place_to_break_it" * 6


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The page of a query and that of a file, with the explanation of the first."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "lake").mkdir()
    rows = range(20_000)
    columns = {"n": rows, "s": [f"s{n * 7919 % 20_011:05}" for n in rows], LONG: rows}
    columns["many words in one"] = [["ab c"] * (n % 3) for n in rows]
    path = folder / "lake" / f"{'x' * 200}.parquet"
    ia.write_table(
        pa.table(columns),
        path,
        indexes=[ia.Lookup("s"), ia.Bloom(LONG)],
        row_group_size=8_000,
        max_rows_per_page=500,
    )
    where = f"n BETWEEN 4000 AND 6100 AND s > '{'z' * 300}' OR s = 's00001'"
    actual = ia.dataset(folder / "lake").explain(None, where, analyze=True, maps=MAX_SHOWN_FILES)
    (folder / "query.html").write_text(query_html(actual))
    file = open_file(path)
    (folder / "file.html").write_text(file_html(file, file.schema.leaves)[0])
    return folder, actual


def browse(folder, page, *options):
    profile = f"--user-data-dir={folder / 'profile'}"
    address = (folder / page).as_uri()
    command = [BROWSER, *OPTIONS, profile, *options, address]
    return subprocess.run(command, capture_output=True, check=True, timeout=600).stdout.decode()


def shot(folder, page, width, *options):
    """A picture of the page: shape (height, width, 3)."""
    out = folder / "shot.png"
    out.unlink(missing_ok=True)
    browse(folder, page, f"--window-size={width},2400", f"--screenshot={out}", *options)
    return pixels(out.read_bytes())


def pixels(png):
    """Decodes a PNG of 8 bits a channel; returns its pixels without transparency."""
    at, data, head = 8, b"", b""
    while at < len(png):
        (length,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        body = png[at + 8 : at + 8 + length]
        head = body if kind == b"IHDR" else head
        data += body if kind == b"IDAT" else b""
        at += length + 12
    width, height, depth, colours = struct.unpack(">IIBB", head[:10])
    assert depth == 8
    channels = {2: 3, 6: 4}[colours]
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, -1)
    stored = lines[:, 1:].reshape(height, width, channels).astype(np.int16)
    return unfiltered(lines[:, 0].astype(np.int16), stored)[:, :, :3].astype(np.uint8)


def unfiltered(kinds, stored):
    """Undoes the filter of each line of a PNG (the PNG specification, section 9).

    A pixel needs the pixels at its left, above it, and above left, so this proceeds by diagonals.
    """
    height, width, channels = stored.shape
    actual = np.zeros((height + 1, width + 1, channels), np.int16)
    for diagonal in range(height + width - 1):
        y = np.arange(max(0, diagonal - width + 1), min(height, diagonal + 1))
        x = diagonal - y
        left, up, corner = actual[y + 1, x], actual[y, x + 1], actual[y, x]
        far = [abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)]
        nearer = np.where(far[1] <= far[2], up, corner)
        paeth = np.where((far[0] <= far[1]) & (far[0] <= far[2]), left, nearer)
        kind = kinds[y, None]
        guesses = [left, up, (left + up) // 2, paeth]
        guess = np.select([kind == i for i in range(1, 5)], guesses, 0)
        actual[y + 1, x + 1] = stored[y, x] + guess & 0xFF
    return actual[1:, 1:]


def test_the_browser_has_all_cells_and_no_error(pages):
    folder, actual = pages
    dom = browse(folder, "query.html", "--dump-dom")
    assert dom.count('<rect class="f"') == actual.planned.pages.selected
    assert dom.count('class="o"') == actual.planned.pages.total - actual.planned.pages.selected
    assert dom.count("</svg>") == dom.count("<svg")
    assert "What the query read" in dom
    assert '<svg class="strip"' in browse(folder, "file.html", "--dump-dom")


@pytest.mark.parametrize("page", ["query.html", "file.html"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_goes_beyond_the_right_edge(pages, page, width):
    """Overflowing content would be in the margin, which every page has at its sides."""
    actual = shot(pages[0], page, width)
    assert actual.shape[1] == width
    margins = np.concatenate((actual[:, :12], actual[:, -12:]), axis=1)
    assert (margins == actual[0, 0]).all()
    assert len(np.unique(actual.reshape(-1, 3), axis=0)) > 20, "the page is blank"


@pytest.mark.parametrize("page", ["query.html", "file.html"])
def test_it_is_light_or_dark_as_the_reader_prefers(pages, page):
    light = shot(pages[0], page, 800, "--blink-settings=preferredColorScheme=1")
    dark = shot(pages[0], page, 800, "--blink-settings=preferredColorScheme=0")
    assert light[0, 0].min() > 230
    assert dark[0, 0].max() < 40
    assert len(np.unique(dark.reshape(-1, 3), axis=0)) > 20
