import importlib.util
import sys
from pathlib import Path

import pytest

# The tests are no package: modules in this folder are imported by path.
_spec = importlib.util.spec_from_file_location("cutting", Path(__file__).with_name("cutting.py"))
sys.modules["cutting"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules["cutting"])


@pytest.fixture(autouse=True)
def temporary_files_of_who_is_killed(tmp_path_factory, monkeypatch):
    """Keeps temporary files of killed processes in a folder that pytest removes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
