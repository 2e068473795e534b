"""The lines of an SGLang server's log, from 0.4.6 to 0.5.23, and the names of its metrics.

Sources: `sglang/srt/managers/scheduler.py`, `sglang/srt/entrypoints/engine.py`,
`sglang/srt/mem_cache/memory_pool.py`, `sglang/srt/model_executor` (0.5.23), and the same files of
0.4.6 and 0.5. A line begins with its time and the ranks that the server has more than one of:
`[2026-06-11 04:38:42 DP1 TP3] `.

The values of `Prefill batch` and `Decode batch` are in `scheduler.py` (0.4.6),
`scheduler_metrics_mixin.py` (0.5), `scheduler_components/metrics_reporter.py` and
`pool_stats_observer.py` (0.5.23). All have the form `name: value`; which ones a line has depends on
the version, the kind of memory, drafts and the server's role. A decode line is written every
`decode_log_interval` steps of a rank, a prefill line for each batch; both tell what the scheduler
knew when it wrote the line, after the step.

The log has the value of every setting, given or not, with what SGLang has changed at its start.
Names of metrics are those of 0.5.23, observability/metrics_collector.py.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from sim.core.flags import Command, flag_of, flag_words
from sim.server_log.engine_log import (
    COUNT,
    DECIMAL,
    PERCENT,
    YES_OR_NO,
    EngineLog,
    Piece,
    Pieces,
    Taken,
)
from sim.server_log.records import FieldValue, Kind, LogEvent, LoggedServer, Rank
from sim.server_log.text_lines import cleaned
from sim.server_metrics.scrape import MetricNames
from sim.sglang.read_launch import FLAGS

_COUNTS = {
    "#new-seq": "num_new_requests",
    "#new-token": "num_new_tokens",
    "#cached-token": "num_cached_tokens",
    "#running-req": "num_running",
    "#queue-req": "num_waiting",
    "#token": "num_used_tokens",
    "#full token": "num_used_full_tokens",
    "#swa token": "num_used_window_tokens",
    "#gpu token": "num_used_device_tokens",
    "#cpu token": "num_used_host_tokens",
    "mamba num": "num_used_states",
    "#pending-token": "num_pending_tokens",
    "#replay-token": "num_replayed_tokens",
    "#bootstrap-req": "num_bootstrapping",
    "#unbootstrapped-req": "num_bootstrapping",
    "#inflight-req": "num_sending",
    "#transferring-req": "num_sending",
    "#optimistic-req": "num_optimistic",
    "#prealloc-req": "num_preallocating",
    "#transfer-req": "num_receiving",
    "#retracted-req": "num_retracted",
    "#host-receive-req": "num_receiving_to_host",
    "waiting-image-req": "num_waiting_for_images",
}
_FRACTIONS = {
    "token usage": "token_usage_fraction",
    "full token usage": "full_token_usage_fraction",
    "swa token usage": "window_token_usage_fraction",
    "mamba usage": "state_usage_fraction",
    "gpu token usage": "device_token_usage_fraction",
    "cpu token usage": "host_token_usage_fraction",
    "pre-allocated usage": "preallocated_fraction",
    "accept len": "accepted_tokens_per_step",
    "accept rate": "accepted_fraction",
    "cap len": "capped_tokens_per_step",
    "block accept len": "block_accepted_tokens_per_step",
    "input throughput (token/s)": "prompt_tokens_per_s",
    "gen throughput (token/s)": "generated_tokens_per_s",
    "est. prefill TFLOPS/s (per GPU)": "prefill_tflops_per_gpu",
    "est. decode TFLOPS/s (per GPU)": "decode_tflops_per_gpu",
    "est. read BW (GB/s per GPU)": "read_gb_per_s_per_gpu",
    "est. write BW (GB/s per GPU)": "write_gb_per_s_per_gpu",
}


def _named(words: str, value: bytes) -> bytes:
    return re.escape(words.encode()) + b": " + value


PIECES = (
    *(Piece(name, _named(words, COUNT)) for words, name in _COUNTS.items()),
    *(Piece(name, _named(words, DECIMAL)) for words, name in _FRACTIONS.items()),
    Piece("hit_pct", _named("cache hit rate", PERCENT)),
    Piece("uses_graph", rb"(?:cuda|cpu|npu|musa|xpu) graph: " + YES_OR_NO),
)
# SGLang: `[2026-06-11 04:38:42.123 DP1 TP3] `, milliseconds with SGLANG_LOG_MS.
BEGIN = (
    rb"(.{0,300}?)\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,](\d{3}))?"
    rb"((?: [A-Z_]{1,10}\d{1,6}){0,6})\] "
)
# The number of the step, with SGLANG_LOG_FORWARD_ITERS.
_STEP = rb" batch(?: \[(\d{1,15})\])?[,.] {1,2}"
PREFILL_HEAD = BEGIN + rb"Prefill" + _STEP
DECODE_HEAD = BEGIN + rb"Decode" + _STEP
PREFILL_NEEDS = ("num_new_requests", "num_new_tokens", "num_cached_tokens")
DECODE_NEEDS = ("num_running", "generated_tokens_per_s")


_MAX_RANKS = 100_000
_BEGIN = re.compile(BEGIN)
_RETRACTED = re.compile(rb"#retracted_reqs?: (\d{1,15})(?:, #new_tokens?_gained: (\d{1,15}))?")
_LIMITS = re.compile(rb"(max_total_num_tokens|chunked_prefill_size|max_prefill_tokens"
                     rb"|max_running_requests|context_len)=(-?\d{1,15}|None)")  # fmt: skip
_POOL = re.compile(rb"#tokens: (\d{1,15}), (?:KV size: (\d{1,9}\.\d{1,9})|"
                   rb"K size: (\d{1,9}\.\d{1,9}) GB, V size: (\d{1,9}\.\d{1,9})) GB")  # fmt: skip
_MEMORY = re.compile(rb"mem usage=(\d{1,9}\.\d{1,9}) GB")
_SIZES = re.compile(rb"(?:bs|tokens)[ =]\[(\d{1,9}(?:, \d{1,9}){0,5000})\]")
_SERVER_ARGS = b"server_args="


class SglangLog(EngineLog):
    """Reads the lines of SGLang's log."""

    def __init__(self) -> None:
        super().__init__("sglang")
        self._decode = Pieces(DECODE_HEAD, PIECES, DECODE_NEEDS)
        self._prefill = Pieces(PREFILL_HEAD, PIECES, PREFILL_NEEDS)
        self.tables = (self._decode, self._prefill)
        self.marks = (
            (b"] Decode batch", partial(self._batch, Kind.DECODE, self._decode)),
            (b"] Prefill batch", partial(self._batch, Kind.PREFILL, self._prefill)),
            (b" HTTP/1.", self.take_http),
            (b"#retracted_req", self._retraction),
            (b"] " + _SERVER_ARGS, self._flags),
            (b"max_total_num_tokens=", self._limits),
            (b"#tokens: ", self._pool),
            (b"] Load weight end", self._weights),
            (b"] Capture ", self._graphs),
            (b"] The server is fired up", self._ready),
        )

    def _batch(self, kind: Kind, table: Pieces, number: int, line: bytes) -> Taken:
        if (read := table.read(line)) is None:
            return None
        groups, fields = read
        before, second, fraction, ranks, step = groups[:5]
        if step is not None:
            fields["step"] = int(step)
        self.has_served = True
        at_us = self.times.at_us(before, second, fraction)
        return LogEvent(kind, number, at_us, self._ranks.get(ranks) or self._rank(ranks), fields)

    def _retraction(self, number: int, line: bytes) -> Taken:
        line = cleaned(line)
        begin, found = _BEGIN.match(line), _RETRACTED.search(line)
        if begin is None or found is None:
            return Kind.OTHER
        fields: dict[str, FieldValue] = {"num_retracted": int(found[1])}
        if found[2] is not None:
            fields["num_freed_tokens"] = int(found[2])
        before, second, fraction, ranks = begin.groups()
        at_us = self.times.at_us(before, second, fraction)
        return LogEvent(Kind.RETRACT, number, at_us, self._rank(ranks), fields)

    def _rank(self, text: bytes) -> Rank:
        """The rank of ` DP1 PP0 TP3`."""
        numbers = {}
        for word in text.split():
            name = word.rstrip(b"0123456789")
            numbers[name] = int(word[len(name) :])
        dp, pp, tp, ep = (numbers.get(name) for name in (b"DP", b"PP", b"TP", b"EP"))
        rank = Rank(dp, pp, tp, ep)
        if len(self._ranks) < _MAX_RANKS:
            self._ranks[text] = rank
        return rank

    def _flags(self, number: int, line: bytes) -> Taken:
        text = line[line.index(_SERVER_ARGS) + len(_SERVER_ARGS) :]
        taken = self.take_flags(number, text, "server_args", has_all=True)
        if taken is not None:
            version = self.server.flags.get("version")
            self.server.version = version if isinstance(version, str) else ""
        return taken

    def _limits(self, number: int, line: bytes) -> Taken:
        found = dict(_LIMITS.findall(line))
        if (tokens := found.get(b"max_total_num_tokens", b"None")) == b"None":
            return Kind.OTHER
        settings, pool = self.server.settings, self.server.kv_pool
        # Each rank of data parallelism writes it; the allocator's line before it counts one pool.
        known = pool.num_tokens if "max_total_num_tokens" in settings else None
        pool.num_tokens = int(tokens) if known is None else min(known, int(tokens))
        settings |= {
            name.decode(): None if text == b"None" else int(text) for name, text in found.items()
        }
        return Kind.SETTINGS

    def _pool(self, number: int, line: bytes) -> Taken:
        if (found := _POOL.search(line)) is None:
            return Kind.OTHER
        pool = self.server.kv_pool
        if b"VA upper bound" not in line and pool.memory_gib is None:
            # The first pool is the model's; those of its windows and of a draft come after it.
            tokens, both, keys, values = found.groups()
            pool.memory_gib = float(both) if both else float(keys) + float(values)
            pool.num_tokens = int(tokens) if pool.num_tokens is None else pool.num_tokens
        return Kind.SETTINGS

    def _weights(self, number: int, line: bytes) -> Taken:
        if (found := _MEMORY.search(line)) is not None and self.server.weights_gib is None:
            self.server.weights_gib = float(found[1])
        return Kind.SETTINGS

    def _graphs(self, number: int, line: bytes) -> Taken:
        """CUDA graphs of decode batches: their sizes, and in another line their memory."""
        of_decode = not any(word in line for word in (b"draft", b"refill", b"iecewise"))
        if not of_decode:
            return Kind.SETTINGS
        if (found := _MEMORY.search(line)) is not None and self.server.graphs_gib is None:
            self.server.graphs_gib = float(found[1])
        if (sizes := _SIZES.search(line)) is not None and not self.server.graph_sizes:
            self.server.graph_sizes = tuple(sorted(int(text) for text in sizes[1].split(b",")))
        return Kind.SETTINGS

    def _ready(self, number: int, line: bytes) -> Taken:
        self.server.is_ready = True
        return Kind.SETTINGS


# What the pool follows from; the log has the pool itself.
_POOL_FLAGS = {"mem_fraction_static", "max_total_tokens"}
# SGLang 0.4.6 to 0.5.23, `handle_data_parallelism`: what DP attention does to the given values.
_CONSERVATIVENESS = 0.3
_SWITCHES = {*FLAGS.switches, *(name for group in FLAGS.others for name in group.switches)}


def sglang_launch_of_log(server: LoggedServer) -> Command:
    """See `Family.launch_of_log`."""
    flags = {key: value for key, value in server.flags.items() if key not in _POOL_FLAGS}
    if flags.get("enable_hierarchical_cache") is not True:
        flags = {key: value for key, value in flags.items() if not key.startswith("hicache_")}
    for key, setting, factor in (
        ("max_running_requests", "max_running_requests", _num_ranks(flags)),
        ("context_length", "context_len", 1),
    ):
        if flags.get(key) is None and type(found := server.settings.get(setting)) is int:
            flags[key] = found * factor
    if (num_ranks := _num_ranks(flags)) > 1:
        if type(chunk := flags.get("chunked_prefill_size")) is int and chunk > 0:
            flags["chunked_prefill_size"] = chunk * num_ranks
        if isinstance(share := flags.get("schedule_conservativeness"), float):
            flags["schedule_conservativeness"] = round(share / _CONSERVATIVENESS, 6)
    image = f"sglang:v{server.version}" if server.version else "sglang"
    words = [word for key, value in flags.items() for word in _words(key, value)]
    return Command({}, [image, "sglang", "serve", *words])


def _num_ranks(flags: Mapping[str, object]) -> int:
    """Ranks that share what is given for all of them."""
    size = flags.get("dp_size")
    return size if flags.get("enable_dp_attention") is True and type(size) is int else 1


def _words(key: str, value: object) -> list[str]:
    """A setting as a flag, if it is one that changes the decisions, or a switch that is on."""
    name = flag_of(key)[2:]
    if isinstance(value, bool):
        return flag_words(key, value) if value and name in _SWITCHES else []
    is_flag = name in FLAGS.options and not isinstance(value, list)
    return flag_words(key, value) if is_flag else []


def sglang_measured_pool(server: LoggedServer) -> dict[str, Any]:
    """See `Family.measured_pool`."""
    tokens = server.kv_pool.num_tokens
    return {} if tokens is None else {"max_total_tokens": tokens}


# The metrics that `simulate serve` shows.
METRIC_NAMES = {
    "running": "sglang:num_running_reqs",
    "waiting": "sglang:num_queue_reqs",
    "kv_usage": "sglang:token_usage",
    "prompt_tokens": "sglang:prompt_tokens",
    "cached_tokens": "sglang:cached_tokens",
    "generation_tokens": "sglang:generation_tokens",
    "requests": "sglang:num_requests",
    "preemptions": "sglang:num_retracted_requests",
    "ttft_s": "sglang:time_to_first_token_seconds",
    "itl_s": "sglang:inter_token_latency_seconds",
    "e2e_s": "sglang:e2e_request_latency_seconds",
}
# Those that a real server has besides.
_FURTHER = {
    "pool_tokens": "sglang:max_total_num_tokens",
    "queue_s": "sglang:queue_time_seconds",
    "prompt_lengths": "sglang:prompt_tokens_histogram",
    "output_lengths": "sglang:generation_tokens_histogram",
}


def sglang_metrics() -> MetricNames:
    return MetricNames.of("sglang", METRIC_NAMES, _FURTHER)
