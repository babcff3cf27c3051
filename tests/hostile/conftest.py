import importlib.util
import sys
from pathlib import Path

# Modules beside the tests are loaded by path: the tests are no package.
_spec = importlib.util.spec_from_file_location("crafted", Path(__file__).with_name("crafted.py"))
sys.modules["crafted"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules["crafted"])
