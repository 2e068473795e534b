"""The worked example of admission: what the budget lets in, and when the rest follows."""

import pytest

from sim.sglang.config import SchedulerConfig
from sim.testing.serve import serve
from sim.testing.workloads import ListWorkload, scripted

CONFIG = SchedulerConfig(
    max_total_tokens=32_000,
    page_size=128,
    context_length=8_100,
    chunked_prefill_size=8_192,
    disable_overlap_schedule=True,
)


@pytest.fixture(scope="module")
def steps():
    requests = [scripted(f"r{i}", (10 + i, 1_000), output=50, limit=7_000) for i in range(7)]
    return serve(ListWorkload(requests), CONFIG).steps


def test_admission_seven_requests_first_pass_takes_six(steps):
    """Each is charged 1,024 + 4,096 + 128 = 5,248 of 32,000: the seventh gets NO_TOKEN."""
    assert 32_000 - 6 * 5_248 == 512
    assert [row[0] for row in steps[0]["prefill"]] == [f"r{i}" for i in range(6)]
    assert steps[0]["queue"] == 1
    assert steps[0]["full"]


def test_admission_seventh_request_enters_in_the_next_step(steps):
    """The full flag is lost with the batch; running requests reserve 0.7 x 4,096 each now."""
    assert steps[1]["mode"] == "extend"
    assert steps[1]["prefill"] == [["r6", 0, 1_000]]
    assert steps[1]["running"] == 6
    assert not steps[1]["full"]


def test_admission_all_seven_then_decode_together(steps):
    """Prefill comes first; once the queue is empty everybody decodes."""
    assert steps[2]["mode"] == "decode"
    assert steps[2]["n_decode"] == 7
