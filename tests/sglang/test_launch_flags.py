"""Scheduler settings as SGLang's flags and environment variables: none is lost."""

import pytest

from sim.latency.config import Parallelism
from sim.sglang.launch_flags import COMMAND, sglang_launch, sglang_parallel
from sim.sglang.section.scheduler import SglangSection

# One value that is not the default, and how SGLang 0.5.23 gets it.
GIVEN = {
    "schedule_policy": ("lpm", "--schedule-policy lpm"),
    "page_size": (64, "--page-size 64"),
    "max_total_tokens": (4096, "--max-total-tokens 4096"),
    "mem_fraction_static": (0.8, "--mem-fraction-static 0.8"),
    "kv_cache_dtype": ("fp8_e4m3", "--kv-cache-dtype fp8_e4m3"),
    "context_length": (8192, "--context-length 8192"),
    "chunked_prefill_size": (-1, "--chunked-prefill-size -1"),
    "max_prefill_tokens": (4096, "--max-prefill-tokens 4096"),
    "max_running_requests": (32, "--max-running-requests 32"),
    "prefill_max_requests": (4, "--prefill-max-requests 4"),
    "schedule_conservativeness": (0.3, "--schedule-conservativeness 0.3"),
    "clip_max_new_tokens": (512, "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION=512"),
    "enable_mixed_chunk": (True, "--enable-mixed-chunk"),
    "disable_radix_cache": (True, "--disable-radix-cache"),
    "radix_eviction_policy": ("lfu", "--radix-eviction-policy lfu"),
    "disable_overlap_schedule": (True, "--disable-overlap-schedule"),
    "enable_priority_scheduling": (True, "--enable-priority-scheduling"),
    "schedule_low_priority_values_first": (True, "--schedule-low-priority-values-first"),
    "priority_scheduling_preemption_threshold": (
        3,
        "--priority-scheduling-preemption-threshold 3",
    ),
    "disable_priority_preemption": (True, "--disable-priority-preemption"),
    "retraction_policy": (
        "priority",
        "retraction_policy=priority (SGLang: with --enable-priority-scheduling only)",
    ),
    "random_seed": (5, "--random-seed 5"),
    "tokenizer_worker_num": (2, "--tokenizer-worker-num 2"),
    "num_reserved_decode_tokens": (64, "--num-reserved-decode-tokens 64"),
    "disaggregation_decode_extra_slots": (8, "--disaggregation-decode-extra-slots 8"),
    "disaggregation_decode_polling_interval": (2, "--disaggregation-decode-polling-interval 2"),
    "disaggregation_decode_enable_radix_cache": (
        True,
        "--disaggregation-decode-enable-radix-cache",
    ),
    "disaggregation_decode_retraction_backup": (
        "cpu_tensor",
        "--disaggregation-decode-retraction-backup cpu_tensor",
    ),
    "hicache_ratio": (0.5, "--hicache-ratio 0.5"),
    "load_balance_method": ("total_tokens", "--load-balance-method total_tokens"),
    "scheduler_recv_interval": (30, "--scheduler-recv-interval 30"),
    "cuda_graph_max_bs": (64, "--cuda-graph-max-bs 64"),
    "init_new_token_ratio": (0.5, "SGLANG_INIT_NEW_TOKEN_RATIO=0.5"),
    "min_new_token_ratio_factor": (0.2, "SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR=0.2"),
    "new_token_ratio_decay_steps": (300, "SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS=300"),
    "retract_decode_steps": (40, "SGLANG_RETRACT_DECODE_STEPS=40"),
    "in_batch_prefix_check_threshold": (-1, "IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD=-1"),
    "in_batch_prefix_deprioritize_threshold": (
        64,
        "IN_BATCH_PREFIX_CACHING_DEPRIORITIZE_THRESHOLD=64",
    ),
    "fairness": ({"kind": "k_lpm", "k": 4}, 'fairness={"kind":"k_lpm","k":4}'),
    "admission": (
        {"kind": "pack", "lookahead": 8},
        'admission={"kind":"pack","lookahead":8,"force_fifo_every":8,"cost":"prompt"}',
    ),
    "max_queued_requests": (9, "--max-queued-requests 9"),
    "waiting_timeout_s": (2.5, "SGLANG_REQ_WAITING_TIMEOUT=2.5"),
    "running_timeout_s": (30.0, "SGLANG_REQ_RUNNING_TIMEOUT=30.0"),
    "prefill_decode_interval": (3, "--prefill-decode-interval 3"),
    "prefill_decode_interval_min_bs": (2, "--prefill-decode-interval-min-bs 2"),
    "min_free_slots_delay": (4, "--min-free-slots-delay 4"),
    "prefill_delayer": ({}, "--enable-prefill-delayer"),
    "decode_first": (True, "--prefill-decode-interval 1"),
    "swa_full_tokens_ratio": (0.5, "--swa-full-tokens-ratio 0.5"),
    "disable_hybrid_swa_memory": (True, "--disable-hybrid-swa-memory"),
    "swa_eviction_interval": (64, "SGLANG_SWA_EVICTION_INTERVAL=64"),
    "max_mamba_cache_size": (2000, "--max-mamba-cache-size 2000"),
    "mamba_full_memory_ratio": (0.5, "--mamba-full-memory-ratio 0.5"),
    "mamba_ssm_dtype": ("bfloat16", "--mamba-ssm-dtype bfloat16"),
    "mamba_radix_cache_strategy": ("no_buffer", "--mamba-radix-cache-strategy no_buffer"),
    "mamba_track_interval": (512, "--mamba-track-interval 512"),
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
    return [*launch.variables, *launch.flags, *launch.apart]


def launched(searched=(), **settings):
    return sglang_launch(SglangSection.model_validate(settings), searched)


def test_launch_knows_every_key_of_the_section():
    """A new key of the scheduler needs a flag, a variable, or a place among those without.

    The family is the program, the version the server's, and the sliding window the model's.
    """
    known = {"family", "version", "sliding_window", *GIVEN, *TOGETHER, *HOST_CACHE, *TLRU, *EAGLE}
    assert known == set(SglangSection.model_fields)


def test_launch_names_static_batching_and_turns_apart():
    """SGLang has neither; the settings of a batching that is not asked for are left out."""
    launch = launched(disable_overlap_schedule=True, **TOGETHER)
    assert set(launch.apart) == {f"{key}={value}" for key, value in TOGETHER.items()}
    assert launch.flags == (*ALWAYS, "--disable-overlap-schedule")
    assert launched(static_batch_size=4).apart == ()


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
    ("keys", "flags", "apart"),
    [
        ({}, ["--hicache-ratio 2.0", "--hicache-write-policy write_through"], ()),
        (
            {"ratio": 4, "write_policy": "write_back"},
            ["--hicache-ratio 4.0", "--hicache-write-policy write_back"],
            (),
        ),
        (
            {"capacity_tokens": 5000, "load_back_threshold_tokens": 64},
            ["--hicache-write-policy write_through"],
            ("host_cache.capacity_tokens=5000", "host_cache.load_back_threshold_tokens=64"),
        ),
    ],
)
def test_launch_with_host_memory(keys, flags, apart):
    """SGLang knows sizes in GB and as a ratio, and has a threshold of its own."""
    launch = launched(host_cache={**HOST_CACHE["host_cache"], **keys})
    assert launch.flags == (*ALWAYS, "--enable-hierarchical-cache", *flags)
    assert launch.apart == apart


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
    ("settings", "apart"),
    [
        ({"schedule_policy": "sjf"}, "schedule_policy=sjf"),
        ({"schedule_policy": "mine:Mine"}, "schedule_policy=mine:Mine"),
        ({"radix_eviction_policy": "hit-benefit"}, "radix_eviction_policy=hit-benefit"),
    ],
)
def test_launch_names_apart_what_is_not_sglangs(settings, apart):
    """It would not start with them."""
    launch = launched(list(settings), **settings)
    assert launch.apart == (apart,)
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
    assert launched(decode_first=True, enable_mixed_chunk=True).apart == ("decode_first=true",)


def test_launch_names_the_version():
    """Its rules are what was simulated."""
    assert launched(version="0.5.9").server == "SGLang 0.5.9"
