"""Options of the simulation: how many seeds, or which one."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def seeds(pytestconfig: pytest.Config) -> range:
    """The seeds to run."""
    one = pytestconfig.getoption("--seed")
    if one is not None:
        return range(one, one + 1)
    return range(pytestconfig.getoption("--seeds"))
