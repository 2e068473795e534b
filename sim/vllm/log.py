"""The lines of a vLLM server's log, from 0.8 to 0.33, and the names of its metrics.

Sources: `vllm/entrypoints/common/startup.py`, `vllm/v1/engine/core.py`,
`vllm/v1/core/kv_cache_utils.py`, `vllm/v1/worker/gpu_worker.py`, `vllm/logger.py` (0.33.0), and
what these were before. A line's time has no year.

Values are those of `vllm/v1/metrics/loggers.py`, `vllm/v1/spec_decode/metrics.py` (0.33.0 and
older), and `vllm/engine/metrics.py` (the engine of before V1). Statistics are written every ten
seconds while requests are served, and are means over that time; an iteration (with
`--enable-logging-iteration-details`) is one step of an engine. A rank's idle step beside busy ones
is an iteration without requests. Names of metrics are those of 0.33.0, v1/metrics/loggers.py, and
older ones.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from sim.core.declared import is_version
from sim.core.flags import Command, flag_of, flag_words
from sim.server_log.engine_log import (
    COUNT,
    DECIMAL,
    PERCENT,
    EngineLog,
    Piece,
    Pieces,
    Taken,
    read_settings,
    whole_numbers,
)
from sim.server_log.records import NO_RANK, Kind, LogEvent, LoggedServer, Rank
from sim.server_log.text_lines import cleaned
from sim.server_metrics.scrape import MetricNames
from sim.vllm.read_launch import FLAGS
from sim.vllm.section.groups import block_bytes
from sim.vllm.section.scheduler import VllmSection

# vLLM: `(EngineCore pid=232) INFO 06-05 05:33:41 [core.py:112] `, before 0.8 without brackets.
BEGIN = (
    rb"(.{0,300}?)(?:INFO|WARNING|ERROR|DEBUG) (\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,](\d{3}))? "
    rb"(?:\[[^\]]{1,100}\]|[\w.]{1,100}:\d{1,7}\]) "
)
_ENGINE = rb"(?:Engine (\d{1,6}): |(\d{1,6}) Engines Aggregated: |)"


def _of(words: str, value: bytes, unit: str = "") -> bytes:
    return re.escape(words.encode()) + b": " + value + re.escape(unit.encode())


STATISTICS_HEAD = BEGIN + _ENGINE + rb"(?=Avg prompt throughput: )"
STATISTICS_NEEDS = ("prompt_tokens_per_s", "generated_tokens_per_s", "num_running", "num_waiting")
STATISTICS = (
    Piece("prompt_tokens_per_s", _of("Avg prompt throughput", DECIMAL, " tokens/s")),
    Piece("generated_tokens_per_s", _of("Avg generation throughput", DECIMAL, " tokens/s")),
    Piece("num_running", _of("Running", COUNT, " reqs")),
    Piece("num_waiting", rb"(?:Waiting|Pending): " + COUNT + rb" reqs"),
    Piece("num_swapped", _of("Swapped", COUNT, " reqs")),
    Piece("num_deferred", _of("Deferred", COUNT, " reqs")),
    Piece("num_waiting_to_fetch", _of("KV fetch", COUNT, " waiting to start")),
    Piece("num_fetching", COUNT + rb" in progress"),
    Piece("num_fetched_waiting", COUNT + rb" completed waiting"),
    Piece("num_preempted", _of("Preemptions", COUNT)),
    Piece("num_corrupted", _of("Corrupted", COUNT, " reqs")),
    Piece("cpu_kv_usage_pct", _of("CPU KV cache usage", PERCENT) + rb"\.?"),
    Piece("kv_usage_pct", rb"[A-Z]{1,10} KV cache usage: " + PERCENT),
    Piece("prefix_hit_pct", _of("Prefix cache hit rate", PERCENT)),
    Piece("external_prefix_hit_pct", _of("External prefix cache hit rate", PERCENT)),
    Piece("multimodal_hit_pct", _of("MM cache hit rate", PERCENT)),
)
ITERATION_HEAD = BEGIN + _ENGINE + rb"Iteration\((\d{1,15})\): "
ITERATION_NEEDS = ("num_prefill_requests", "num_decode_requests", "elapsed_ms")
ITERATION = (
    Piece("num_prefill_requests", COUNT + rb" context requests"),
    Piece("num_prefill_tokens", COUNT + rb" context tokens"),
    Piece("num_decode_requests", COUNT + rb" generation requests"),
    Piece("num_decode_tokens", COUNT + rb" generation tokens"),
    Piece("elapsed_ms", _of("iteration elapsed time", DECIMAL, " ms") + rb"(?: \(dummy\))?"),
    Piece("kv_usage_pct", rb"[A-Z]{1,10} KV cache usage: " + PERCENT),
    Piece("num_encoder_inputs", _of("encoder inputs", COUNT)),
    Piece("num_encoder_tokens", _of("encoder output embeddings", COUNT)),
)
SPECULATION_HEAD = BEGIN + _ENGINE + rb"SpecDecoding metrics: "
SPECULATION_NEEDS = ("num_accepted_tokens", "num_draft_tokens")
SPECULATION = (
    Piece("accepted_tokens_per_step", _of("Mean acceptance length", DECIMAL)),
    Piece("accepted_tokens_per_s", _of("Accepted throughput", DECIMAL, " tokens/s")),
    Piece("draft_tokens_per_s", _of("Drafted throughput", DECIMAL, " tokens/s")),
    Piece("num_accepted_tokens", _of("Accepted", COUNT, " tokens")),
    Piece("num_draft_tokens", _of("Drafted", COUNT, " tokens")),
    Piece(
        "accepted_fraction_by_position", _of("Per-position acceptance rate", DECIMAL), is_list=True
    ),
    Piece("", DECIMAL, continues=True),
    Piece("accepted_pct", rb"(?:Avg )?Draft acceptance rate: " + PERCENT),
)


# The banner, before and since it is drawn with blocks.
_VERSION = re.compile(rb"(?:API server|\xe2\x96\x88) {1,4}version (\d[\w.+-]{0,60})")
_TOKENS = re.compile(rb"KV cache size: (\d[\d,]{0,20}) tokens")
_CONCURRENCY = re.compile(rb"Maximum concurrency for (\d[\d,]{0,20}) tokens per request: "
                          rb"(\d{1,9}(?:\.\d{1,9})?)x")  # fmt: skip
_BLOCKS = re.compile(rb"# (?:GPU|[a-z]{1,10}) blocks: (\d{1,15})|num_gpu_blocks is: (\d{1,15})"
                     rb"|num_gpu_blocks_override=(\d{1,15})")  # fmt: skip
_POOL = re.compile(rb"Available KV cache memory: (\d{1,9}(?:\.\d{1,9})?) GiB")
_WEIGHTS = re.compile(rb"Model loading took (\d{1,9}(?:\.\d{1,9})?) Gi?B")
_GRAPHS = re.compile(rb" secs?, took (-?\d{1,9}(?:\.\d{1,9})?) GiB")
_BATCHED_TOKENS = re.compile(rb"max_num_batched_tokens=(\d{1,15})")
_LLM_ENGINE, _CONFIG = b" LLM engine (v", b") with config: "
_NON_DEFAULT, _ALL_ARGS = b"non-default args: ", b" args: Namespace("


class VllmLog(EngineLog):
    """Reads the lines of vLLM's log."""

    def __init__(self) -> None:
        super().__init__("vllm")
        self._iterations = Pieces(ITERATION_HEAD, ITERATION, ITERATION_NEEDS)
        self._statistics = Pieces(STATISTICS_HEAD, STATISTICS, STATISTICS_NEEDS)
        self._drafts = Pieces(SPECULATION_HEAD, SPECULATION, SPECULATION_NEEDS)
        self.tables = (self._iterations, self._statistics, self._drafts)
        self.marks = (
            (b" Iteration(", partial(self._values, Kind.ITERATION, self._iterations)),
            (b" HTTP/1.", self.take_http),
            (b" Avg prompt throughput: ", partial(self._values, Kind.STATISTICS, self._statistics)),
            (b"] SpecDecoding metrics: ", partial(self._values, Kind.SPECULATION, self._drafts)),
            (_NON_DEFAULT, partial(self._flags, _NON_DEFAULT)),
            (_ALL_ARGS, partial(self._flags, _ALL_ARGS)),
            (_LLM_ENGINE, self._config),
            (b" version ", self._banner),
            (b" KV cache size: ", self._pool),
            (b"Maximum concurrency for ", self._pool),
            (b"Available KV cache memory: ", self._memory),
            (b"Model loading took ", self._memory),
            (b"Graph capturing finished in ", self._memory),
            (b" blocks: ", self._blocks),
            (b"num_gpu_blocks", self._blocks),
            (b"Chunked prefill is enabled with ", self._chunk),
        )

    def _values(self, kind: Kind, table: Pieces, number: int, line: bytes) -> Taken:
        if (read := table.read(line)) is None:
            return None
        groups, fields = read
        before, second, fraction, engine, engines, step = groups[:6]
        if kind is Kind.ITERATION:
            fields["step"] = int(step)
        self.has_served = True
        at_us = self.times.at_us(before, second, fraction)
        return LogEvent(kind, number, at_us, self._rank(engine, engines), fields)

    def _rank(self, engine: bytes | None, engines: bytes | None) -> Rank:
        if engine is not None:
            if (rank := self._ranks.get(engine)) is None:
                rank = self._ranks[engine] = Rank(dp=int(engine))
            return rank
        return NO_RANK if engines is None else Rank(num_engines=int(engines))

    def _flags(self, mark: bytes, number: int, line: bytes) -> Taken:
        has_all = mark == _ALL_ARGS
        begin = line.index(mark) + (len(b" args: ") if has_all else len(mark))
        source = "args" if has_all else "non-default args"
        return self.take_flags(number, line[begin:], source, has_all=has_all)

    def _config(self, number: int, line: bytes) -> Taken:
        version, _, config = cleaned(line).partition(_LLM_ENGINE)[2].partition(_CONFIG)
        settings = read_settings(b"Config(%b)" % config.rstrip(b", \r"))
        if settings is None:
            return None
        self.server.version = version.decode(errors="replace")
        self.server.settings |= settings
        graphs = settings.get("compilation_config")
        if isinstance(graphs, dict):
            self.server.graph_sizes = whole_numbers(graphs.get("cudagraph_capture_sizes"))
        return Kind.SETTINGS

    def _banner(self, number: int, line: bytes) -> Taken:
        if (found := _VERSION.search(line)) is None:
            return Kind.OTHER
        self.server.version = found[1].decode(errors="replace")
        return Kind.SETTINGS

    def _pool(self, number: int, line: bytes) -> Taken:
        pool, settings = self.server.kv_pool, self.server.settings
        if (found := _TOKENS.search(line)) is not None:
            num_tokens = int(found[1].replace(b",", b""))
            # Each engine of data parallelism writes its own.
            pool.num_tokens = min(num_tokens, pool.num_tokens or num_tokens)
        if (times := _CONCURRENCY.search(line)) is not None:
            settings["max_model_len"] = int(times[1].replace(b",", b""))
            settings["max_concurrency"] = float(times[2])
        return Kind.SETTINGS if found or times else Kind.OTHER

    def _memory(self, number: int, line: bytes) -> Taken:
        if (found := _POOL.search(line)) is not None and self.server.kv_pool.memory_gib is None:
            self.server.kv_pool.memory_gib = float(found[1])
        if (found := _WEIGHTS.search(line)) is not None and self.server.weights_gib is None:
            self.server.weights_gib = float(found[1])
        if (found := _GRAPHS.search(line)) is not None and self.server.graphs_gib is None:
            self.server.graphs_gib = float(found[1])
        return Kind.SETTINGS

    def _blocks(self, number: int, line: bytes) -> Taken:
        if (found := _BLOCKS.search(line)) is None:
            return Kind.OTHER
        num_blocks = int(found[1] or found[2] or found[3])
        self.server.kv_pool.num_blocks = min(
            num_blocks, self.server.kv_pool.num_blocks or num_blocks
        )
        return Kind.SETTINGS

    def _chunk(self, number: int, line: bytes) -> Taken:
        if (found := _BATCHED_TOKENS.search(line)) is None:
            return Kind.OTHER
        self.server.settings["max_num_batched_tokens"] = int(found[1])
        return Kind.SETTINGS


# No flags: how the command line was split, and the model's name as a word of its own.
_NO_FLAGS = {"model_tag", "subparser", "dispatch_function", "config"}
# What the pool follows from; the log has the pool itself.
_POOL_FLAGS = {"gpu_memory_utilization", "kv_cache_memory_bytes", "num_gpu_blocks_override"}
# Flags that the log has under other names once vLLM has found their values.
_FOUND = {
    "max_model_len": "max_seq_len",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
}
_GIB = 2**30


def vllm_launch_of_log(server: LoggedServer) -> Command:
    """See `Family.launch_of_log`."""
    flags = {
        key: value for key, value in server.flags.items() if key not in _POOL_FLAGS | _NO_FLAGS
    }
    if server.has_all_flags:
        flags = {key: value for key, value in flags.items() if _is_key(key)}
    for flag, setting in _FOUND.items():
        if flags.get(flag) is None and type(found := server.settings.get(setting)) is int:
            flags[flag] = found
    if not flags.get("model"):
        flags["model"] = server.model
    image = f"vllm:v{server.version}" if is_version(server.version) else "vllm"
    words = [word for key, value in flags.items() for word in flag_words(key, value)]
    return Command({}, [image, "vllm", "serve", *words])


def _is_key(key: str) -> bool:
    name = flag_of(key)[2:]
    return name in FLAGS.options or name in FLAGS.switches


def vllm_measured_pool(
    server: LoggedServer, settings: Mapping[str, Any], model: str, tp: int
) -> dict[str, Any]:
    """See `Family.measured_pool`. With groups of layers, a block is not `block_size` tokens."""
    # Most commands read no model.
    from sim.latency.architectures.model_key import shape_if_known  # noqa: PLC0415

    pool = server.kv_pool
    block_size = int(settings.get("block_size", VllmSection(family="vllm").block_size))
    num_blocks = pool.num_blocks
    shape = shape_if_known(model) if settings.get("kv_cache_groups") == "model" else None
    if num_blocks is None and shape is not None and pool.memory_gib is not None:
        num_blocks = int(pool.memory_gib * _GIB) // block_bytes(shape, tp, block_size)
    elif num_blocks is None and shape is None and pool.num_tokens is not None:
        num_blocks = pool.num_tokens // block_size
    return {} if num_blocks is None or num_blocks < 2 else {"num_gpu_blocks_override": num_blocks}


# The metrics that `simulate serve` shows.
METRIC_NAMES = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "kv_usage": "vllm:kv_cache_usage_perc",
    "prompt_tokens": "vllm:prompt_tokens",
    "cached_tokens": "vllm:prefix_cache_hits",
    "generation_tokens": "vllm:generation_tokens",
    "requests": "vllm:request_success",
    "preemptions": "vllm:num_preemptions",
    "ttft_s": "vllm:time_to_first_token_seconds",
    "itl_s": "vllm:inter_token_latency_seconds",
    "e2e_s": "vllm:e2e_request_latency_seconds",
}
# Those that a real server has besides or instead, and those that versions before 0.10 had.
# `prompt_tokens_cached` has what host memory held, too.
_FURTHER = {
    "kv_usage": "vllm:gpu_cache_usage_perc",
    "cached_tokens": "vllm:prompt_tokens_cached",
    "itl_s": "vllm:time_per_output_token_seconds",
    "queried_tokens": "vllm:prefix_cache_queries",
    "queue_s": "vllm:request_queue_time_seconds",
    "prefill_s": "vllm:request_prefill_time_seconds",
    "prompt_lengths": "vllm:request_prompt_tokens",
    "output_lengths": "vllm:request_generation_tokens",
}


def vllm_metrics() -> MetricNames:
    return MetricNames.of(
        "vllm",
        METRIC_NAMES,
        _FURTHER,
        info="vllm:cache_config_info",
        pool=("num_gpu_blocks", "block_size"),
    )
