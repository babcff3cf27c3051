from __future__ import annotations

from pathlib import Path

import gathered
import pytest


@pytest.fixture(scope="session")
def outcomes(corpus: Path) -> dict[str, dict]:
    """The outcomes of the workers for every file of the corpus, by name."""
    return gathered.gather(corpus)
