"""INV-9 on real runs: a simulated engine makes the same decisions as the real server."""

from dataclasses import replace
from itertools import product

import pytest

from realrun.model.kv_tensors import page_bytes
from realrun.runner.warm_runner import RunnerOptions, warm_runner
from realrun.server.serve_workload import serve
from sim.engine.page_pool import PageCounts
from sim.engine.replay import RankReplay, of_one_server, replay
from sim.families import build_engine, build_executor
from sim.runlog.run_log_file import RecordedRun, load_run_log
from sim.sglang.config import PackSettings, SchedulerConfig, StaticSettings
from sim.sglang.policies.policy import POLICIES, PRIORITY_POLICIES
from sim.sglang.scheduler.waiting.fairness import FairnessT, KLpm
from sim.vllm.config import VllmConfig
from sim.vllm.offload.settings import OffloadSettings
from sim.workload.workload import Turn, listed
from tests.support.workloads import scripted

MS = 1_000_000
# Groups of shared prefixes, a few long prompts, arrivals spread over a tenth of a second.
REQUESTS = [
    scripted(
        f"r{i}",
        (100 + i % 3, 20 + 16 * (i % 3)),
        (i, 5 + 40 * (i % 7 == 0)),
        output=2 + 5 * i % 17,
        limit=20,
        arrival_ns=i * 5 * MS,
        priority=i % 4,
    )
    for i in range(20)
]
# An important request is sent 5 ms after its client's first one finished. By then a waiting request
# has taken the free slot, on a machine of any speed.
WAITING = [scripted(f"low{i}", (i, 5), output=20, limit=20) for i in range(24)]
CLIENTS = [
    [
        Turn(0, scripted(f"first{i}", (40 + i, 5), output=2 + i, limit=20, priority=5)),
        # Longer than the first one: what that one gave back is not enough, however slow steps are.
        Turn(5 * MS, scripted(f"high{i}", (50 + i, 70), output=3, limit=20, priority=5)),
    ]
    for i in range(8)
]
CHUNKING = {"whole": (-1, False), "chunked": (32, False), "mixed": (32, True)}


@pytest.fixture(scope="module")
def warm(one_layer):
    """One warm runner for all settings: 25 pages of 16 tokens."""
    model, options = one_layer, RunnerOptions(device="cpu")
    with warm_runner(model, options, num_pages=25, page_size=16, max_rows=8, cpu_threads=1) as warm:
        yield warm


def config_of(policy, chunking, overlap, **settings):
    chunked_prefill_size, enable_mixed_chunk = CHUNKING[chunking]
    return SchedulerConfig(
        schedule_policy=policy,
        page_size=16,
        max_total_tokens=400,
        context_length=512,
        chunked_prefill_size=chunked_prefill_size,
        enable_mixed_chunk=enable_mixed_chunk,
        max_running_requests=8,
        schedule_conservativeness=0.3,
        disable_overlap_schedule=not overlap,
        **settings,
    )


def record(warm, config, workload):
    lines = serve(warm, config, workload).lines()
    return RecordedRun.of_lines({"source": "realrun", "fingerprint": {}}, lines)


def replayed(run, config, requests):
    """The first decision in which a simulated engine differs; None if there is none."""
    executor, arrivals = build_executor(config), []
    by_rid = {request.spec.rid: request for request in requests}
    for line in run.requests:
        request = by_rid[line["rid"]].sent_at(line["arrival_ns"])
        spec = request.spec
        executor.add(spec.rid, request.script, ignore_eos=spec.ignore_eos)
        arrivals.append(spec)
    pool = PageCounts(config.pool_tokens // config.page_size, config.page_size)
    engine = build_engine(config, pool=pool, executor=executor)
    server = RankReplay(engine, executor, arrivals)
    return replay([server], of_one_server(run.steps), overlaps=config.overlaps)


def check_log(run, requests):
    """Requests finished with the scripted lengths, times are in order, all tokens are logged."""
    log = load_run_log(run)
    lengths = {request.spec.rid: request.script.num_tokens for request in requests}
    for line in run.requests:
        assert line["status"] == "finished"
        assert line["output_tokens"] == len(line["token_ns"]) == min(lengths[line["rid"]], 20)
        times = [line["arrival_ns"], line["scheduled_ns"], *line["token_ns"]]
        assert times == sorted(times)
        assert line["finish_ns"] == line["token_ns"][-1]
    assert (log.steps.device_ns > 0).all()
    assert (log.steps.host_ns >= 0).all()
    for step in run.steps:
        assert step["t_decided_ns"] <= step["t_known_ns"]
        assert step["t_start_ns"] < step["t_end_ns"] <= step["t_known_ns"]


def policies_and_modes():
    """Each pair of policy, chunking and overlap occurs; the other combinations in long runs."""
    for number, (policy, chunking) in enumerate(product(sorted(POLICIES), CHUNKING)):
        for overlap in (True, False):
            marks = () if overlap == (number % 2 == 0) else pytest.mark.long
            mode = "overlap" if overlap else "normal"
            yield pytest.param(
                policy, chunking, overlap, marks=marks, id=f"{policy}-{chunking}-{mode}"
            )


@pytest.mark.parametrize(("policy", "chunking", "overlap"), list(policies_and_modes()))
def test_parity_real_decisions_are_made_again(warm, policy, chunking, overlap):
    """Every policy, with and without chunks, mixed batches and overlap: step for step the same."""
    config = config_of(policy, chunking, overlap)
    run = record(warm, config, listed(REQUESTS))
    divergence = replayed(run, config, REQUESTS)
    assert divergence is None, f"\n{divergence}"
    check_log(run, REQUESTS)


OURS = {
    "fairness_t": {"fairness": FairnessT(10 * MS)},
    "k_lpm": {"fairness": KLpm(3)},
    "pack": {"admission": PackSettings(16, 4, counts_cached=False), "max_prefill_tokens": 64},
    "decode first": {"decode_first": True},
    "static": {"static_batching": StaticSettings(3, 20 * MS)},
    "turns": {"decode_max_requests": 2},
}


@pytest.mark.parametrize("overlap", [True, False], ids=["overlap", "normal"])
@pytest.mark.parametrize("ours", OURS)
def test_parity_of_what_sglang_does_not_have(warm, ours, overlap):
    """Aging by the wall clock, packing, static batches and turns are decided again, too."""
    overlap = overlap and ours != "turns"
    config = replace(config_of("lpm", "chunked", overlap), **OURS[ours])
    run = record(warm, config, listed(REQUESTS))
    divergence = replayed(run, config, REQUESTS)
    assert divergence is None, f"\n{divergence}"
    check_log(run, REQUESTS)


@pytest.mark.parametrize("overlap", [True, False], ids=["overlap", "normal"])
@pytest.mark.parametrize("policy", PRIORITY_POLICIES)
def test_parity_with_preemption(warm, policy, overlap):
    """Requests that make room for more important ones are put back in both worlds."""
    config = config_of(
        policy,
        "chunked",
        overlap,
        enable_priority_scheduling=True,
        priority_scheduling_preemption_threshold=1,
    )
    run = record(warm, config, listed(WAITING, CLIENTS))
    requests = [*WAITING, *(turn.request for turns in CLIENTS for turn in turns)]
    divergence = replayed(run, config, requests)
    assert divergence is None, f"\n{divergence}"
    check_log(run, requests)
    assert sum(line["preemptions"] for line in run.requests) > 0


VLLM = VllmConfig(
    block_size=16,
    num_gpu_blocks=26,
    max_model_len=400,
    max_num_batched_tokens=32,
    max_num_seqs=8,
)
OF_VLLM = {
    "chunks": {},
    "threshold": {"long_prefill_token_threshold": 10},
    "whole prompts": {"enable_chunked_prefill": False, "max_num_batched_tokens": 400},
    "no cache": {"enable_prefix_caching": False},
    "priority": {"scheduling_policy": "priority"},
    "preemption": {"num_gpu_blocks": 16, "max_model_len": 128},
    "preemption by priority": {
        "num_gpu_blocks": 16,
        "max_model_len": 128,
        "scheduling_policy": "priority",
        "scheduler_reserve_full_isl": False,
    },
    "preemption in 0.19": {"version": "0.19.0", "num_gpu_blocks": 16, "max_model_len": 128},
    "cadence and limits": {
        "prefill_schedule_interval": 3,
        "watermark": 0.1,
        "max_num_active_seqs": 5,
        "long_prefill_token_threshold": 8,
        "long_prefill_token_threshold_adaptive": True,
    },
}
# Eight of them fit into the pool when they are admitted, but not with all their outputs.
GROWING = [scripted(f"g{i}", (100 + i % 3, 16), (i, 10), output=20, limit=20) for i in range(14)]


@pytest.mark.parametrize("ahead", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("settings", OF_VLLM)
def test_parity_of_family_vllm(warm, settings, ahead):
    """Prompts in pieces, several at a time, beside decode rows; preempted rows computed again."""
    config = replace(VLLM, async_scheduling=ahead, **OF_VLLM[settings])
    # They arrive at once, so that the pool fills up on a machine of any speed.
    given = GROWING if "preemption" in settings else REQUESTS
    requests = [request.sent_at(0) for request in given]
    for i, request in enumerate(requests):
        request.spec.priority = i % 4
    run = record(warm, config, listed(requests))
    divergence = replayed(run, config, requests)
    assert divergence is None, f"\n{divergence}"
    check_log(run, requests)
    assert (sum(line["preemptions"] for line in run.requests) > 0) == ("preempt" in settings)
    assert (sum(line["cached_at_admit"] for line in run.requests) > 0) == (settings != "no cache")


@pytest.mark.parametrize("settings", [{}, {"enable_prefix_caching": False}], ids=["both", "host"])
def test_parity_with_kv_in_cpu_memory(warm, settings):
    """Prompts come back from CPU memory, and blocks leave both memories."""
    offload = OffloadSettings(num_chunks=30, blocks_per_chunk=2, offload_prompt_only=False)
    config = replace(VLLM, async_scheduling=False, offload=offload, **settings)
    requests = [scripted(f"r{i}", (i % 7, 60), (100 + i, 5), output=6, limit=20) for i in range(30)]
    run = record(warm, config, listed(requests))
    divergence = replayed(run, config, requests)
    assert divergence is None, f"\n{divergence}"
    check_log(run, requests)
    num_loaded = sum(number for step in run.steps for _, number in step["loaded"])
    assert num_loaded > 0
    copies = [copy for step in run.steps for copy in step.get("copies", ())]
    assert min(duration_ns for *_, duration_ns in copies) > 0
    bytes_by_direction = {"load": 0, "store": 0}
    for direction, num_bytes, _ in copies:
        bytes_by_direction[direction] += num_bytes
    per_token = page_bytes(warm.runner.model, 1)
    assert bytes_by_direction["load"] == num_loaded * per_token
    assert bytes_by_direction["store"] >= offload.num_chunks * 2 * VLLM.block_size * per_token


@pytest.mark.parametrize("overlap", [True, False], ids=["overlap", "normal"])
def test_parity_clients_that_wait_for_their_answers(warm, overlap):
    """Closed-loop clients: each turn arrives a think time after the one before was over."""
    config = config_of("lpm", "mixed", overlap)
    clients = [
        [Turn(i * MS, scripted(f"c{c}t{i}", (c, 30 + i), output=4, limit=20)) for i in range(3)]
        for c in range(4)
    ]
    run = record(warm, config, listed(clients=clients))
    requests = [turn.request for turns in clients for turn in turns]
    divergence = replayed(run, config, requests)
    assert divergence is None, f"\n{divergence}"
    check_log(run, requests)
    finish = {line["rid"]: line["finish_ns"] for line in run.requests}
    arrival = {line["rid"]: line["arrival_ns"] for line in run.requests}
    for c, i in product(range(4), (1, 2)):
        assert arrival[f"c{c}t{i}"] == finish[f"c{c}t{i - 1}"] + i * MS


def test_parity_changed_decision_is_found(warm):
    """A log that says one waiting request more than there was does not replay."""
    config = config_of("lpm", "mixed", overlap=True)
    run = record(warm, config, listed(REQUESTS))
    run.steps[7]["queue"] += 1
    divergence = replayed(run, config, REQUESTS)
    assert divergence is not None
    assert (divergence.where, divergence.fields) == ("step 7", ("queue",))


def test_parity_look_that_would_have_found_work_is_noticed(warm):
    """A log that says its server found nothing to do when there was something does not replay."""
    config = config_of("fcfs", "whole", overlap=False)
    run = record(warm, config, listed(REQUESTS))
    step = run.steps[3]
    step["looks_ns"] = [step["t_decided_ns"]]
    divergence = replayed(run, config, REQUESTS)
    assert divergence is not None
    assert divergence.where == "step 3"
