import importlib.util
import sys
from pathlib import Path

# The tests are no package: modules in this folder are imported by path.
for name in ("crafted", "sizes"):
    _spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    sys.modules[name] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[name])
