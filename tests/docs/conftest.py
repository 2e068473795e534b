"""Sweeps of pages without processes of their own."""

import pytest

from sim.workers.executor import ThisProcess


@pytest.fixture
def no_workers(monkeypatch):
    """Sweeps start no processes, each of which would load the program anew."""
    monkeypatch.setattr("sim.workers.choose.ProcessPool", lambda jobs, *, forks: ThisProcess())
