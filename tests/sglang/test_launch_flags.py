"""Scheduler settings as SGLang's flags and environment variables: none is lost."""

import pytest

from sim.latency.config import Parallelism
from sim.sglang.launch_flags import COMMAND, KEYS, sglang_launch, sglang_parallel
from sim.sglang.section.scheduler import SglangSection

# One value that is not the default, and how SGLang 0.5.23 gets it, if not by the flag or variable
# of the declaration (tests/families/test_declared_settings.py), and one of each of these.
GIVEN = {
    "page_size": (64, "--page-size 64"),
    "chunked_prefill_size": (-1, "--chunked-prefill-size -1"),
    "cuda_graph_max_bs": (64, "--cuda-graph-max-bs-decode 64"),
    "enable_mixed_chunk": (True, "--enable-mixed-chunk"),
    "waiting_timeout_s": (2.5, "SGLANG_REQ_WAITING_TIMEOUT=2.5"),
    "retraction_policy": (
        "priority",
        "retraction_policy=priority (SGLang: with --enable-priority-scheduling only)",
    ),
    "fairness": ({"kind": "k_lpm", "k": 4}, 'fairness={"kind":"k_lpm","k":4}'),
    "admission": (
        {"kind": "pack", "lookahead": 8},
        'admission={"kind":"pack","lookahead":8,"force_fifo_every":8,"cost":"prompt"}',
    ),
    "prefill_delayer": ({}, "--enable-prefill-delayer"),
    "decode_first": (True, "--prefill-decode-interval 1"),
}
# Keys that are set together, which SGLang does not have.
TOGETHER = {
    "batching": "static",
    "static_batch_size": 4,
    "static_max_wait_ms": 5.0,
    "decode_max_requests": 2,
}
TLRU = {
    "radix_eviction_policy": "tlru",
    "radix_eviction_policy_config": {"threshold": 400, "next_prompt_estimate": 30},
}
# Several flags that go together.
EAGLE = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 2,
    "speculative_num_draft_tokens": 3,
    "speculative_eagle_topk": 1,
    "speculative_draft_model_path": "org/drafter",
}
# Several flags for one key.
HOST_CACHE = {"host_cache": {"load_tokens_per_s": 1e6}}
ALWAYS = ["--chunked-prefill-size 8192", "--max-running-requests 256"]


def all_parts(launch):
    return [*launch.variables, *launch.flags, *launch.without_flag]


def launched(searched=(), **settings):
    return sglang_launch(SglangSection.model_validate(settings), searched)


def test_launch_knows_every_key_that_is_declared_without_a_flag():
    """It needs code of its own here, or a place among what SGLang does not have.

    The family is the program, the version the server's, the sliding window the model's, and an
    installed engine is none of the server's flags.
    """
    known = {
        "family",
        "version",
        "sliding_window",
        "engine",
        *GIVEN,
        *TOGETHER,
        *HOST_CACHE,
        *TLRU,
        *EAGLE,
    }
    told = {*KEYS.options, *KEYS.switches, *KEYS.variables}
    assert set(SglangSection.model_fields) - told == known - told


def test_launch_names_static_batching_and_turns_apart():
    """SGLang has neither; the settings of a batching that is not asked for are left out."""
    launch = launched(disable_overlap_schedule=True, **TOGETHER)
    assert set(launch.without_flag) == {f"{key}={value}" for key, value in TOGETHER.items()}
    assert launch.flags == (*ALWAYS, "--disable-overlap-schedule")
    assert launched(static_batch_size=4).without_flag == ()


def test_launch_gives_settings_of_the_prefill_delayer():
    flags = launched(prefill_delayer={"queue_min_ratio": 0.2, "max_delay_passes": 4}).flags[-2:]
    assert flags == (
        "--prefill-delayer-max-delay-passes 4",
        "--prefill-delayer-queue-min-ratio 0.2",
    )


def test_launch_gives_all_flags_that_make_drafts_a_chain():
    """SGLang's own choice may be a tree, and EAGLE needs the weights of its drafter."""
    assert launched(**EAGLE).flags[1:] == (
        "--max-running-requests 48",
        "--speculative-algorithm EAGLE3",
        "--speculative-num-steps 2",
        "--speculative-num-draft-tokens 3",
        "--speculative-eagle-topk 1",
        "--speculative-draft-model-path org/drafter",
    )
    assert launched(speculative_algorithm="STANDALONE").flags[-1] == (
        '--speculative-draft-model-path "$DRAFT_MODEL"'
    )
    assert launched(speculative_algorithm="NGRAM").flags[2:] == (
        "--speculative-algorithm NGRAM",
        "--speculative-num-steps 12",
        "--speculative-num-draft-tokens 12",
        "--speculative-ngram-max-bfs-breadth 1",
    )


def test_launch_gives_settings_of_the_eviction_policy():
    """As the JSON that SGLang takes."""
    assert launched(**TLRU).flags[-1] == (
        '--radix-eviction-policy-config \'{"threshold":400,"next_prompt_estimate":30}\''
    )


@pytest.mark.parametrize("key", GIVEN)
def test_launch_gives_what_differs_from_the_default_and_nothing_else(key):
    """Chunk size and running requests are always there: SGLang's own depend on the GPU."""
    value, wanted = GIVEN[key]
    parts = all_parts(launched(**{key: value}))
    assert wanted in parts
    others = [part for part in parts if part != wanted]
    left = [flag for flag in ALWAYS if flag.split()[0] != wanted.split()[0]]
    assert others == left + ["--prefill-decode-interval-min-bs 1"] * (key == "decode_first")


@pytest.mark.parametrize(
    ("keys", "flags", "without_flag"),
    [
        ({}, ["--hicache-ratio 2.0", "--hicache-write-policy write_through"], ()),
        (
            {"ratio": 4, "write_policy": "write_back"},
            ["--hicache-ratio 4.0", "--hicache-write-policy write_back"],
            (),
        ),
        ({"size_gb": 64}, ["--hicache-size 64", "--hicache-write-policy write_through"], ()),
        (
            {"capacity_tokens": 5000, "load_back_threshold_tokens": 64},
            ["--hicache-write-policy write_through"],
            ("host_cache.capacity_tokens=5000", "host_cache.load_back_threshold_tokens=64"),
        ),
    ],
)
def test_launch_with_host_memory(keys, flags, without_flag):
    """SGLang knows sizes in GB and as a ratio, and has a threshold of its own."""
    launch = launched(host_cache={**HOST_CACHE["host_cache"], **keys})
    assert launch.flags == (*ALWAYS, "--enable-hierarchical-cache", *flags)
    assert launch.without_flag == without_flag


def test_launch_with_a_store_names_its_settings_but_not_the_backend():
    """The scenario says how fast the store is, and not what it is."""
    storage = {"prefetch_policy": "best_effort", "prefetch_threshold": 64}
    launch = launched(host_cache={**HOST_CACHE["host_cache"], "storage": storage})
    assert launch.flags[-3:] == (
        '--hicache-storage-backend "$STORE"',
        "--hicache-storage-prefetch-policy best_effort",
        """--hicache-storage-backend-extra-config '{"prefetch_threshold": 64}'""",
    )


def test_launch_gives_what_was_searched_even_if_it_is_the_default():
    """So that the command says all that was found; a switch that is off has nothing to say."""
    launch = launched(["schedule_policy", "clip_max_new_tokens", "enable_mixed_chunk"])
    assert launch.variables == ("SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION=4096",)
    assert launch.flags == ("--schedule-policy fcfs", *ALWAYS)


def test_launch_on_several_gpus_counts_those_of_all_ranks():
    assert sglang_parallel(Parallelism()) == ()
    assert sglang_parallel(Parallelism(tp=2, pp=4)) == ("--tp-size 2", "--pp-size 4")
    flags = ("--tp-size 8", "--attn-dp-size 4", "--ep-size 8")
    assert sglang_parallel(Parallelism(tp=2, dp=4, moe_ep=8)) == flags


def test_launch_command_has_variables_before_it():
    """As a shell takes it."""
    launch = launched(schedule_policy="lpm", retract_decode_steps=10)
    assert launch.command == (
        f"SGLANG_RETRACT_DECODE_STEPS=10 {COMMAND} --schedule-policy lpm"
        " --chunked-prefill-size 8192 --max-running-requests 256"
    )


@pytest.mark.parametrize(
    ("settings", "without_flag"),
    [
        ({"schedule_policy": "sjf"}, "schedule_policy=sjf"),
        ({"schedule_policy": "mine:Mine"}, "schedule_policy=mine:Mine"),
        ({"radix_eviction_policy": "hit-benefit"}, "radix_eviction_policy=hit-benefit"),
    ],
)
def test_launch_names_what_is_not_sglangs(settings, without_flag):
    """It would not start with them."""
    launch = launched(list(settings), **settings)
    assert launch.without_flag == (without_flag,)
    assert launch.flags == tuple(ALWAYS)


def test_launch_policy_priority_is_fcfs_with_priorities():
    """SGLang 0.5.23 lists the name and does not know it."""
    switches = ("--enable-priority-scheduling", "--disable-priority-preemption")
    launch = launched(schedule_policy="priority")
    assert launch.flags == ("--schedule-policy fcfs", *ALWAYS, *switches)
    preempting = launched(schedule_policy="priority", enable_priority_scheduling=True)
    assert preempting.flags == ("--schedule-policy fcfs", *ALWAYS, switches[0])
    both = launched(schedule_policy="priority", retraction_policy="priority")
    assert "--retraction-policy priority" in both.flags


def test_launch_decode_first_beside_mixed_chunks_is_named_apart():
    """SGLang's interval counts mixed steps, ours does not."""
    assert launched(decode_first=True, enable_mixed_chunk=True).without_flag == (
        "decode_first=true",
    )


def test_launch_names_the_version():
    """Its rules are what was simulated."""
    assert launched(version="0.5.9").server == "SGLang 0.5.9"
