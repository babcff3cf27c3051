"""Type checkers see the public names with their types, as a user's program does."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import intarsia as ia

PROGRAM = Path(__file__).with_name("typed_program.py")
SPARK_PACKAGE = Path(ia.__file__).parent / "spark" / "__init__.py"


def used(module):
    return {*re.findall(rf"\b{module}\.(\w+)", PROGRAM.read_text())}


def test_the_typed_program_uses_every_public_name():
    assert {*ia.__all__} - used("ia") == set()
    names = re.findall(r'^    "(\w+)",$', SPARK_PACKAGE.read_text(), re.MULTILINE)
    assert "read_delta" in names
    assert {*names} - used("ias") == set()


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="needs mypy, of extra test")
def test_a_program_is_checked_by_the_types_of_the_package(tmp_path, pytestconfig):
    """Right calls have the stated types, and wrong calls are errors, or their comment is one."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.read_text())
    cache = pytestconfig.cache.mkdir("mypy")  # the first run takes 15 s of processor time
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", cache]
    done = subprocess.run(
        [*command, program.name], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
