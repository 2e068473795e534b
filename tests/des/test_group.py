"""Ranks that step together: when steps start and end, who gets which request, who runs along."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from sim.engine.acceptance import AcceptanceByPosition, Speculation
from sim.latency.host import HostSection
from sim.sglang.config import DelayerSettings, SchedulerConfig
from sim.vllm.config import VllmConfig
from sim.workload.workload import Turn, listed
from tests.support.random_scenarios import random_scenarios, scheduler_configs
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

MS = 1_000_000
NORMAL = SchedulerConfig(disable_overlap_schedule=True, disable_radix_cache=True)
VLLM = VllmConfig(async_scheduling=False, num_gpu_blocks=400, max_model_len=4096)


def latency(**seconds):
    """10 ms a step and 1 ms for each prefill token, if nothing else is said."""
    none = {"per_prefill_token_s": 0.001, "per_decode_request_s": 0, "per_context_token_s": 0}
    return linear_latency(**{"step_s": 0.01, **none, **seconds})


def group(*requests, config=NORMAL, ranks=2, **how):
    latencies = [tuple(latency() for _ in range(ranks))]
    return serve(listed(list(requests)), config, latencies, **how)


def request(name, prompt=10, output=1, at_ms=0):
    segment = (sum(name.encode()), prompt)
    return scripted(name, segment, output=output, arrival_ns=int(at_ms * MS), ignore_eos=True)


def lines(served):
    return [
        (line["step"], line["rank"], line["mode"], line["t_start_ns"] // MS, line["t_end_ns"] // MS)
        for line in served.steps
    ]


def ranks_of(served):
    return served.log.requests.replica.tolist()


def test_group_step_lasts_as_long_as_its_slowest_rank():
    """A rank without work has no line; the next step starts when all have ended this one."""
    served = group(request("a", prompt=50, output=2), request("b", prompt=10, output=4))
    assert lines(served) == [
        (0, 0, "extend", 0, 60), (0, 1, "extend", 0, 60),
        (1, 0, "decode", 60, 70), (1, 1, "decode", 60, 70),
        (2, 1, "decode", 70, 80), (3, 1, "decode", 80, 90),
    ]  # fmt: skip
    assert served.log.num_ranks == 2
    assert served.log.requests.first_token_ns.tolist() == [60 * MS, 60 * MS]


def test_group_arrival_at_an_idle_rank_waits_for_the_step_of_the_others():
    """Ranks decide at the same times. With fast-forward an arrival ends the run of all."""
    late = request("b", at_ms=95)
    for fast_forward in (True, False):
        served = group(request("a", output=60), late, fast_forward=fast_forward)
        assert served.request("b")["scheduled_ns"] == 100 * MS
        # The step of b's prefill has 20 ms; a decodes meanwhile.
        assert served.request("b")["first_token_ns"] == 120 * MS


@given(random_scenarios(scheduler_configs()))
def test_group_of_one_rank_is_a_server(scenario):
    """To the byte; of family sglang, whose idle servers run no steps."""
    alone = scenario.latencies()
    ranked = [(model,) for model in scenario.latencies()]
    logs = [serve(scenario.workload, scenario.config, each).text for each in (alone, ranked)]
    assert logs[0] == logs[1]


def test_group_tells_each_latency_model_the_tokens_of_all_ranks():
    """A rank of vLLM without work runs one token; one of SGLang runs none."""

    class Watched:
        def __init__(self):
            self.model, self.steps = latency(), []

        def step_ns(self, step):
            self.steps.append((step.num_group_tokens, step.max_rank_tokens, step.group_prefills))
            return self.model.step_ns(step)

        def __getattr__(self, name):
            return getattr(self.model, name)

    for config, idle_tokens in ((NORMAL, 0), (VLLM, 1)):
        models = tuple(Watched() for _ in range(3))
        workload = listed([request("a", prompt=50, output=3), request("b", output=2)])
        serve(workload, config, [models], fast_forward=False)
        first = [(60 + idle_tokens, 50, True), (2 + idle_tokens, 1, False)]
        assert models[0].steps[:3] == [*first, (1 + 2 * idle_tokens, 1, False)]
        assert models[1].steps[:2] == first


def test_sglang_deals_in_turn_or_by_known_loads():
    """Between two looks at the loads, what was dealt counts as well."""
    sizes = {"a": 100, "b": 10, "c": 10, "d": 200, "e": 10}
    dealt = {
        "round_robin": [0, 1, 0, 1, 0],
        "total_requests": [0, 1, 0, 1, 0],
        "total_tokens": [0, 1, 1, 1, 0],
    }
    for method, ranks in dealt.items():
        config = SchedulerConfig(load_balance_method=method)
        requests = [request(name, prompt=size) for name, size in sizes.items()]
        assert ranks_of(group(*requests, config=config)) == ranks
    # A look at 500 ms: `a` still runs on rank 0, and `b` is gone from rank 1.
    later = [request("a", output=200), request("b"), *(request(n, at_ms=500) for n in "cd")]
    config = SchedulerConfig(load_balance_method="total_requests")
    assert ranks_of(group(*later, config=config)) == [0, 1, 1, 0]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("ends_before", [True, False])
def test_sglang_loads_are_those_of_the_steps_passed_so_far(overlap, ends_before):
    """Rank 0 has two short requests, rank 1 a longer one: the 15th step after it shows the other.

    A request comes at the very end of that step: before it, or because the same step of the other
    group, which ends behind it, answers its client.
    """
    config = SchedulerConfig(
        page_size=1, load_balance_method="total_tokens", disable_overlap_schedule=not overlap
    )
    sizes = {"a": 5, "x": 12, "b": 12, "y": 12, "c": 5}
    requests = [request(name, prompt=size, output=120) for name, size in sizes.items()]
    turns = [request("p", prompt=6, output=16), request("q")]
    clients = [] if ends_before else [[Turn(0, each) for each in turns]]
    if ends_before:
        requests += [request("p", output=16), request("q", at_ms=160)]
    models = [tuple(latency(per_prefill_token_s=0) for _ in range(2)) for _ in range(2)]
    for fast_forward in (True, False):
        served = serve(listed(requests, clients), config, models, fast_forward=fast_forward)
        assert served.request("q")["arrival_ns"] == 160 * MS
        assert ranks_of(served)[-1] == (0 if ends_before else 1)
        assert (len(served.log.steps.num_steps) < len(served.steps) // 10) == fast_forward


def test_vllm_deals_to_the_smallest_score_that_is_known():
    """A request that waits counts four times one that runs; counts come after 100 ms.

    From 0.33.0 on ranks without requests take turns.
    """
    old, burst = replace(VLLM, version="0.19.0"), [request(name) for name in "abcd"]
    assert ranks_of(group(*burst, config=old)) == [0, 1, 0, 1]
    # At 1 s it is known that `a` runs; `b` counts as waiting.
    busy = [request("a", output=300), request("b", at_ms=1000), request("c", at_ms=1001)]
    assert ranks_of(group(*busy, config=old)) == [0, 1, 0]
    # `a` is over after 30 ms, but that is not known at 35 ms.
    times_ms = {"a": 0, "b": 35, "c": 36, "d": 900}
    soon = [request(name, output=2, at_ms=at_ms) for name, at_ms in times_ms.items()]
    assert ranks_of(group(*soon, config=old)) == [0, 1, 0, 0]
    assert ranks_of(group(*soon, config=VLLM)) == [0, 1, 0, 1]
    # A request of one step comes and goes between two reports, so nothing changes.
    unseen = [request(name, at_ms=at_ms) for name, at_ms in times_ms.items()]
    assert ranks_of(group(*unseen, config=old)) == [0, 1, 0, 1]


def test_vllm_api_servers_know_what_they_sent_themselves():
    """Each begins at a rank of its own. One that sent to a rank does not see what others sent."""
    burst = [request(name) for name in "abcd"]
    host = HostSection(request_s=0.001)
    assert ranks_of(group(*burst, config=VLLM, host=host, num_front_ends=2)) == [0, 1, 1, 0]
    assert ranks_of(group(*burst, config=VLLM, host=host)) == [0, 1, 0, 1]


@pytest.mark.parametrize(("config", "scheduled_ms"), [(NORMAL, 37), (VLLM, 40)])
def test_vllm_ranks_run_on_without_work(config, scheduled_ms):
    """They ask each other every 32 steps whether any has work. An arrival waits for the step."""
    served = group(request("a", output=2), request("b", at_ms=37), config=config)
    assert served.request("b")["scheduled_ns"] == scheduled_ms * MS
    # After the 32nd step (20 ms, then 31 x 10 ms) they rest.
    late = group(request("a", output=2), request("b", at_ms=337), config=config)
    assert late.request("b")["scheduled_ns"] == 337 * MS


def test_sglang_decode_first_holds_for_all_ranks():
    """After a prefill step on any rank, every rank with running requests decodes once."""
    config = SchedulerConfig(disable_overlap_schedule=True, decode_first=True)
    requests = [
        request("a", output=9),
        request("b"),
        request("c", at_ms=21),
        request("d", at_ms=31),
    ]
    served = group(*requests, config=config)
    modes = {(step, rank): mode for step, rank, mode, *_ in lines(served)}
    # c prefills on rank 0 in step 2, so a and c decode in step 3 while d prefills on rank 1.
    assert [modes.get((step, 0)) for step in range(5)] == [
        "extend", "decode", "extend", "decode", "decode",
    ]  # fmt: skip


def test_sglang_ratio_is_reset_only_when_all_ranks_rest():
    """The other rank works on: this one keeps the ratio that it reached."""
    config = SchedulerConfig(disable_overlap_schedule=True, new_token_ratio_decay_steps=10)
    requests = [request("a", output=5), request("b", output=40), request("c", at_ms=300)]
    ratios = [line["ratio"] for line in group(*requests, config=config).steps if line["rank"] == 0]
    assert len(ratios) == 6
    assert ratios[5] == ratios[4] < ratios[0]
    alone = [request("a", output=5), request("b", output=5), request("c", at_ms=300)]
    ratios = [line["ratio"] for line in group(*alone, config=config).steps if line["rank"] == 0]
    assert ratios[5] == ratios[0]


def test_group_request_that_no_rank_can_serve_is_not_dealt():
    """The next one goes where it would have gone."""
    config = SchedulerConfig(context_length=100)
    served = group(request("x", prompt=500), request("a"), request("b"), config=config)
    assert served.log.requests.status == ["rejected", "finished", "finished"]
    assert ranks_of(served) == [0, 0, 1]
    assert np.all(served.log.steps.num_prefill_tokens > 0)


def test_sglang_ranks_with_drafts_wait_while_another_one_prefills():
    """Rank 0 decodes with drafts; it goes without the step in which rank 1 prefills."""
    speculation = Speculation("EAGLE", 2, AcceptanceByPosition([0.0, 0.0]))
    eagle = {"speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": 3}
    drafts = replace(NORMAL, **eagle, speculative_num_steps=2, speculation=speculation)
    two = (request("a", output=4), request("b", output=2, at_ms=25))
    decoded = [
        [line[0] for line in lines(group(*two, config=config)) if line[1:3] == (0, "decode")]
        for config in (NORMAL, drafts)
    ]
    assert decoded == [[1, 2, 3], [1, 3, 4]]


DELAYED = SchedulerConfig(
    disable_radix_cache=True, prefill_delayer=DelayerSettings(3, None, None, 0)
)


def test_sglang_delayer_waits_until_all_ranks_can_prefill():
    """While a decodes on rank 0, b waits on rank 1 for the request c of rank 0: two passes."""
    three = (request("a", output=20), request("b", at_ms=45), request("c", at_ms=55))
    served = group(*three, config=DELAYED)
    assert served.request("b")["scheduled_ns"] == served.request("c")["scheduled_ns"] == 60 * MS


def test_sglang_delayer_lets_one_rank_prefill_after_its_passes():
    """Nobody waits on rank 0: two passes are delayed, the third goes on; at once if all idle."""
    served = group(request("a", output=20), request("b", at_ms=45), config=DELAYED)
    assert served.request("a")["scheduled_ns"] == 0
    assert served.request("b")["scheduled_ns"] == 70 * MS


def test_sglang_delayer_asks_many_ranks():
    """Each rank that asks stands on the stack until all are asked."""
    many = [request(f"r{number}") for number in range(300)]
    served = group(*many, config=DELAYED, ranks=300)
    assert {line[:3] for line in lines(served)} == {(0, rank, "extend") for rank in range(300)}
