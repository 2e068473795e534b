"""vLLM's log: the lines of its versions, its settings and its pool, and a real server's log."""

from pathlib import Path

import pytest

from sim.families import open_server_log
from sim.server_log.records import Kind, Rank

MEASURED = Path(__file__).parents[2] / "data/measured/vllm-0.26-h100-llama-3.1-8b/server.log.gz"
ITERATION = (
    "(APIServer pid=521) INFO 11-27 09:34:46 [loggers.py:182] Engine 000: Iteration(7): 1 context "
    "requests, 997 context tokens, 2 generation requests, 3 generation tokens, "
    "iteration elapsed time: 3.43 ms, GPU KV cache usage: 0.2%"
)
STATISTICS = (
    "INFO 11-27 09:35:42 [loggers.py:310] Engine 001: Avg prompt throughput: 10529.4 tokens/s, "
    "Avg generation throughput: 1448.5 tokens/s, Running: 13 reqs, Waiting: 2 reqs, "
    "Preemptions: 5, GPU KV cache usage: 3.2%, Prefix cache hit rate: 40.0%, "
    "External prefix cache hit rate: 1.5%"
)
SPECULATION = (
    "(APIServer pid=1) INFO 08-04 20:51:08 [metrics.py:120] SpecDecoding metrics: Mean acceptance "
    "length: 3.49, Accepted throughput: 0.12 tokens/s, Drafted throughput: 0.34 tokens/s, "
    "Accepted: 92 tokens, Drafted: 259 tokens, Per-position acceptance rate: 0.757, 0.622, 0.432, "
    "Avg Draft acceptance rate: 35.5%"
)
ARGS = (
    "(APIServer pid=68) INFO 06-05 05:32:55 [utils.py:278] non-default args: {'model_tag': 'a/b', "
    "'model': 'a/b', 'enable_prefix_caching': False, 'compilation_config': {'mode': "
    "<CompilationMode.VLLM_COMPILE: 3>, 'cudagraph_capture_sizes': [2, 1]}, 'max_num_seqs': 4}"
)
CONFIG = (
    "(EngineCore pid=232) INFO 06-05 05:33:41 [core.py:112] Initializing a V1 LLM engine (v0.22.0) "
    "with config: model='a/b', dtype=torch.bfloat16, max_seq_len=2068, kv_transfer_config=None, "
    "observability_config=ObservabilityConfig(otlp=None, sample=0.01), compilation_config={'mode': "
    "<CompilationMode.VLLM_COMPILE: 3>, 'cudagraph_capture_sizes': [4, 1, 2], 'passes': {}}"
)


def only(events):
    (event,) = events
    return event


def test_iteration_has_all_of_its_values(read_log):
    _, events = read_log([ITERATION])
    assert only(events).kind is Kind.ITERATION
    assert only(events).rank == Rank(dp=0)
    assert only(events).fields == {
        "step": 7,
        "num_prefill_requests": 1,
        "num_prefill_tokens": 997,
        "num_decode_requests": 2,
        "num_decode_tokens": 3,
        "elapsed_ms": 3.43,
        "kv_usage_pct": 0.2,
    }


def test_statistics_have_all_of_their_values(read_log):
    _, events = read_log([STATISTICS])
    assert only(events).kind is Kind.STATISTICS
    assert only(events).rank == Rank(dp=1)
    assert only(events).fields == {
        "prompt_tokens_per_s": 10529.4,
        "generated_tokens_per_s": 1448.5,
        "num_running": 13,
        "num_waiting": 2,
        "num_preempted": 5,
        "kv_usage_pct": 3.2,
        "prefix_hit_pct": 40.0,
        "external_prefix_hit_pct": 1.5,
    }


@pytest.mark.parametrize(
    "line",
    [
        (
            "INFO 03-01 10:00:00 [loggers.py:80] Avg prompt throughput: 1.0 tokens/s, Avg "
            "generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 4 reqs, GPU KV "
            "cache usage: 5.0%, Prefix cache hit rate: 6.0%"
        ),
        (
            "INFO 03-01 10:00:00 metrics.py:455] Avg prompt throughput: 1.0 tokens/s, Avg "
            "generation throughput: 2.0 tokens/s, Running: 3 reqs, Swapped: 0 reqs, Pending: 4 "
            "reqs, GPU KV cache usage: 5.0%, CPU KV cache usage: 0.0%."
        ),
        (
            "INFO 03-01 10:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 "
            "tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 4 "
            "reqs, Deferred: 1 reqs, KV fetch: 1 waiting to start, 2 in progress, 3 completed "
            "waiting, GPU KV cache usage: 5.0%, MM cache hit rate: 9.0%"
        ),
    ],
    ids=["0.8", "before V1", "0.33"],
)
def test_statistics_of_every_version_are_read(read_log, line):
    log, events = read_log([line])
    fields = only(events).fields
    assert (fields["num_running"], fields["num_waiting"], fields["kv_usage_pct"]) == (3, 4, 5.0)
    assert log.notes() == ["times are by the server's clock, whose time zone is not in the log"]


def test_statistics_of_several_engines_together_say_so(read_log):
    _, events = read_log([STATISTICS.replace("Engine 001: ", "8 Engines Aggregated: ")])
    assert only(events).rank == Rank(num_engines=8)


def test_drafts_have_a_number_for_each_position(read_log):
    _, events = read_log([ITERATION, SPECULATION])
    assert events[1].kind is Kind.SPECULATION
    assert events[1].fields["accepted_fraction_by_position"] == (0.757, 0.622, 0.432)
    assert events[1].fields["num_draft_tokens"] == 259
    assert events[1].fields["accepted_pct"] == 35.5


def test_settings_and_pool_are_read(read_log):
    log, _ = read_log(
        [
            ARGS,
            CONFIG,
            "INFO 06-05 05:51:38 [gpu_worker.py:466] Available KV cache memory: 57.22 GiB",
            "INFO 06-05 05:51:38 [kv_cache_utils.py:1733] GPU KV cache size: 886,521 tokens",
            (
                "INFO 06-05 05:51:38 [kv_cache_utils.py:1734] Maximum concurrency for 9,472 "
                "tokens per request: 93.59x"
            ),
            (
                "INFO 06-05 05:51:38 [core.py:1] Overriding num_gpu_blocks=55407 with "
                "num_gpu_blocks_override=2400"
            ),
            (
                "INFO 06-05 05:51:39 [scheduler.py:252] Chunked prefill is enabled with "
                "max_num_batched_tokens=8192."
            ),
        ]
    )
    server = log.server
    assert (server.engine, server.version, server.model) == ("vllm", "0.22.0", "a/b")
    assert server.flags["enable_prefix_caching"] is False
    assert server.flags["compilation_config"]["mode"] == "<CompilationMode.VLLM_COMPILE: 3>"
    assert server.settings["dtype"] == "torch.bfloat16"
    assert server.settings["observability_config"] == {"otlp": None, "sample": 0.01}
    assert server.settings["max_model_len"] == 9472
    assert server.settings["max_num_batched_tokens"] == 8192
    assert server.graph_sizes == (1, 2, 4)
    assert (server.kv_pool.num_tokens, server.kv_pool.num_blocks) == (886521, 2400)
    assert server.kv_pool.memory_gib == 57.22


def test_pool_of_newest_version_is_in_one_line(read_log):
    log, _ = read_log(
        [
            ARGS,
            (
                "INFO 06-05 05:51:38 [kv_cache_utils.py:1148] GPU KV cache size: 1,024 tokens, "
                "Maximum concurrency for 512 tokens per request: 2.00x"
            ),
        ]
    )
    assert log.server.kv_pool.num_tokens == 1024
    assert log.server.settings["max_concurrency"] == 2.0


def test_version_0_8_logs_all_arguments(read_log):
    log, _ = read_log(
        [
            "INFO 03-01 10:00:00 [api_server.py:1034] vLLM API server version 0.8.5",
            (
                "INFO 03-01 10:00:00 [api_server.py:1035] args: Namespace(model='a/b', port=8000, "
                "dispatch_function=<function ServeSubcommand.cmd at 0x7f>)"
            ),
            ITERATION,
        ]
    )
    assert log.server.version == "0.8.5"
    assert log.server.has_all_flags
    assert log.server.flags["port"] == 8000


def test_version_0_8_writes_its_compilation_as_json(read_log):
    log, _ = read_log(
        [
            ARGS,
            (
                "INFO 04-01 10:00:00 [core.py:58] Initializing a V1 LLM engine (v0.8.5) with "
                "config: model='a/b', served={'x'}, enforce_eager=False, "
                'compilation_config={"level":3,"use_inductor":true,"cudagraph_capture_sizes":[2'
                ',1],"max":2}'
            ),
        ]
    )
    assert log.server.graph_sizes == (1, 2)
    assert log.server.settings["served"] == "{'x'}"
    assert log.server.settings["compilation_config"]["use_inductor"] == "true"


def test_times_have_no_year(read_log):
    """1972 stands for it, so that 29 February is a day."""
    _, events = read_log([ITERATION.replace("11-27 09:34:46", "02-29 00:00:01")])
    assert only(events).at_us == 68_169_601_000_000


def test_real_log_is_read_whole():
    """Each line has a stamp in microseconds before it."""
    log = open_server_log([MEASURED])
    events = list(log.events())
    assert log.counts == {
        Kind.OTHER: 129,
        Kind.SETTINGS: 9,
        Kind.HTTP: 1893,
        Kind.STATISTICS: 17,
    }
    assert log.num_not_understood == 0
    assert log.resolution_us == 1
    assert log.notes() == ["times are those of the stamps before the lines"]
    assert [event.at_us for event in events] == sorted(event.at_us for event in events)
    server = log.server
    assert (server.version, server.model) == ("0.26.0", "/tmp/llama")  # noqa: S108
    assert server.kv_pool.num_tokens == 462_944
    assert len(server.graph_sizes) == 51
    assert server.flags["max_model_len"] == 8192
