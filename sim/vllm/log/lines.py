"""The lines of a vLLM server's log, from 0.8 to 0.33.

Sources: `vllm/entrypoints/common/startup.py`, `vllm/v1/engine/core.py`,
`vllm/v1/core/kv_cache_utils.py`, `vllm/v1/worker/gpu_worker.py`, `vllm/logger.py` (0.33.0), and
what these were before. A line's time has no year.
"""

import re
from functools import partial

from sim.server_log.engine_log import EngineLog, Taken, read_settings, whole_numbers
from sim.server_log.pieces import Pieces
from sim.server_log.records import NO_RANK, Kind, LogEvent, Rank
from sim.server_log.text_lines import cleaned
from sim.vllm.log import statistics as tables

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
_ENGINE, _CONFIG = b" LLM engine (v", b") with config: "
_NON_DEFAULT, _ALL_ARGS = b"non-default args: ", b" args: Namespace("


class VllmLog(EngineLog):
    """Reads the lines of vLLM's log."""

    def __init__(self) -> None:
        super().__init__("vllm")
        self._iterations = Pieces(tables.ITERATION_HEAD, tables.ITERATION, tables.ITERATION_NEEDS)
        self._statistics = Pieces(
            tables.STATISTICS_HEAD, tables.STATISTICS, tables.STATISTICS_NEEDS
        )
        self._drafts = Pieces(tables.SPECULATION_HEAD, tables.SPECULATION, tables.SPECULATION_NEEDS)
        self.tables = (self._iterations, self._statistics, self._drafts)
        self.marks = (
            (b" Iteration(", partial(self._values, Kind.ITERATION, self._iterations)),
            (b" HTTP/1.", self.take_http),
            (b" Avg prompt throughput: ", partial(self._values, Kind.STATISTICS, self._statistics)),
            (b"] SpecDecoding metrics: ", partial(self._values, Kind.SPECULATION, self._drafts)),
            (_NON_DEFAULT, partial(self._flags, _NON_DEFAULT)),
            (_ALL_ARGS, partial(self._flags, _ALL_ARGS)),
            (_ENGINE, self._config),
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
        version, _, config = cleaned(line).partition(_ENGINE)[2].partition(_CONFIG)
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
