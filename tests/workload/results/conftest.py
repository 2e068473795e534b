"""Result files, small hand-written ones among them, and importing them."""

from pathlib import Path

import pytest

from sim.commands.import_results import read_results, sniff
from sim.core.errors import InputError
from sim.workload.config import TraceConfig
from sim.workload.kinds.build import build_workload
from sim.workload.results.measured import in_order, write_workload
from sim.workload.results.model import ReadOptions


@pytest.fixture
def written(tmp_path):
    """Write a file of text or bytes; returns its path."""

    def write(content, name="results"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def imported():
    """Import the run at a path: its requests by arrival, the first one at time 0."""

    def read(path, **options):
        run = read_results(path, sniff(path), ReadOptions(**options))
        requests, _ = in_order(run.requests, str(path))
        return run, requests

    return read


@pytest.fixture
def refusal(tmp_path, imported):
    """The error line of a bad file, from the file's name on."""

    def line(path, **options):
        with pytest.raises(InputError) as caught:
            imported(path, **options)
        message = str(caught.value)
        assert "\n" not in message
        return message.removeprefix(f"{tmp_path}/")

    return line


@pytest.fixture
def workload_of(tmp_path):
    """The requests written as a workload and read back."""

    def through_a_file(requests):
        path = Path(tmp_path) / "workload.jsonl.gz"
        write_workload(requests, path)
        config = TraceConfig(kind="trace", format="servetwin", path=path.name)
        return build_workload(config, seed=0, base_dir=tmp_path)

    return through_a_file
