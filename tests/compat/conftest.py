import importlib.util
import sys
from pathlib import Path

# The tests are no package: modules in this folder are imported by path.
_path = Path(__file__).with_name("write_files.py")
_spec = importlib.util.spec_from_file_location("write_files", _path)
sys.modules["write_files"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules["write_files"])
