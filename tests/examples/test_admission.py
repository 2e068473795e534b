"""The worked example of admission: which requests the budget admits, and when the others follow."""

from sim.sglang.config import SchedulerConfig
from sim.workload.workload import listed
from tests.support.serve import serve
from tests.support.workloads import scripted

CONFIG = SchedulerConfig(
    max_total_tokens=32_000,
    page_size=128,
    context_length=8_100,
    chunked_prefill_size=8_192,
    disable_overlap_schedule=True,
)


def test_admission_of_seven_requests_takes_six_and_then_the_seventh():
    """Each is charged 1,024 + 4,096 + 128 = 5,248 of 32,000: the seventh gets NO_TOKEN.

    The full flag is lost with the batch, and running requests reserve 0.7 x 4,096 each from then
    on: the seventh enters in the next step. Then the queue is empty, and everybody decodes.
    """
    requests = [scripted(f"r{i}", (10 + i, 1_000), output=50, limit=7_000) for i in range(7)]
    first, second, third, *_ = serve(listed(requests), CONFIG).steps
    assert 32_000 - 6 * 5_248 == 512
    assert [row[0] for row in first["prefill"]] == [f"r{i}" for i in range(6)]
    assert (first["queue"], first["full"]) == (1, True)
    assert (second["mode"], second["prefill"]) == ("extend", [["r6", 0, 1_000]])
    assert (second["running"], second["full"]) == (6, False)
    assert (third["mode"], third["n_decode"]) == ("decode", 7)
