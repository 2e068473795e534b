"""The first requests of a workload, whatever its kind."""

from pathlib import Path

import pytest

from sim.scenario.load import load_scenario_text
from sim.workload.kinds.build import build_workload, first_requests
from sim.workload.workload import every_request
from tests.support.serve import LINEAR_LATENCY

LENGTHS = "prompt_tokens: {kind: constant, value: 9}, output_tokens: {kind: constant, value: 2}"
SYNTHETIC = (
    f"{{kind: synthetic, num_requests: 30, arrivals: {{kind: poisson, rate_rps: 3}}, {LENGTHS}}}"
)
CLIENTS = (
    "{kind: clients, clients: 4, requests_per_client: 6, think_s: {kind: exponential, mean: 2},"
    f" {LENGTHS}}}"
)
BENCH = "{kind: bench, client: vllm, num_prompts: 30, input_len: 9, output_len: 2}"
PARTS = f"{{tenant: a, workload: {SYNTHETIC}}}, {{tenant: b, workload: {CLIENTS}}}"
MIX = f"{{kind: mix, parts: [{PARTS}]}}"


def built(text):
    scenario = load_scenario_text(
        f"name: first\n{LINEAR_LATENCY}scheduler: {{max_total_tokens: 4096}}\nworkload: {text}\n"
    ).scenario
    return build_workload(scenario.workload, seed=7, base_dir=Path())


@pytest.mark.parametrize(
    "text", [SYNTHETIC, CLIENTS, BENCH, MIX], ids=["open", "clients", "phases", "mix"]
)
@pytest.mark.parametrize("most", [1, 7, 10_000])
def test_it_has_as_many_as_asked_for_or_all(text, most):
    """Requests of the whole, in the whole's order."""
    whole = built(text)
    first = first_requests(whole, most)
    kept = [request.spec.rid for request in every_request(first)]
    assert len(kept) == first.num_requests == min(most, whole.num_requests)
    order = [request.spec.rid for request in every_request(whole)]
    assert kept == [rid for rid in order if rid in set(kept)]


def test_clients_keep_the_turns_that_are_asked_for_first():
    """Nobody keeps a turn that is asked for later than one that another client lost."""
    whole = built(CLIENTS)
    kept_ns, lost_ns = [], []
    for kept, turns in zip(first_requests(whole, 11).clients, whole.clients, strict=True):
        assert [turn.think_ns for turn in kept] == [turn.think_ns for turn in turns][: len(kept)]
        at_ns = [sum(turn.think_ns for turn in turns[: n + 1]) for n in range(len(turns))]
        kept_ns += at_ns[: len(kept)]
        lost_ns += at_ns[len(kept) :]
    assert max(kept_ns) <= min(lost_ns)
