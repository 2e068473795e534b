"""Speed of reading a server's log: `make bench`."""

from pathlib import Path

import pytest

from sim.families import open_server_log

pytestmark = pytest.mark.benchmark_suite

LINES = Path(__file__).parents[1] / "server_log/sglang-0.5.23.log"


@pytest.mark.benchmark(group="server log, 36,000 lines (9 MB)")
def test_events_of_a_log(benchmark, tmp_path):
    """Every line is an event: batches of 36 servers, one after the other."""
    path = tmp_path / "server.log"
    lines = LINES.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line * 1_000 for line in lines))
    num_events = benchmark(lambda: sum(1 for _ in open_server_log([path]).events()))
    assert num_events == 36_000
