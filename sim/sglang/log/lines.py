"""The lines of an SGLang server's log, from 0.4.6 to 0.5.23.

Sources: `sglang/srt/managers/scheduler.py`, `sglang/srt/entrypoints/engine.py`,
`sglang/srt/mem_cache/memory_pool.py`, `sglang/srt/model_executor` (0.5.23), and the same files of
0.4.6 and 0.5. A line begins with its time and the ranks that the server has more than one of:
`[2026-06-11 04:38:42 DP1 TP3] `.
"""

import re
from functools import partial

from sim.server_log.engine_log import EngineLog, Taken
from sim.server_log.pieces import Pieces
from sim.server_log.records import FieldValue, Kind, LogEvent, Rank
from sim.server_log.text_lines import cleaned
from sim.sglang.log.batches import (
    BEGIN,
    DECODE_HEAD,
    DECODE_NEEDS,
    PIECES,
    PREFILL_HEAD,
    PREFILL_NEEDS,
)

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
        """CUDA graphs of the model: their sizes, and in another line their memory."""
        of_decode = not any(word in line for word in (b"draft", b"refill", b"iecewise"))
        found = _MEMORY.search(line)
        if found is not None and of_decode and self.server.graphs_gib is None:
            self.server.graphs_gib = float(found[1])
        if (sizes := _SIZES.search(line)) is not None:
            numbers = tuple(sorted(int(text) for text in sizes[1].split(b",")))
            if of_decode and not self.server.graph_sizes:
                self.server.graph_sizes = numbers
            elif not of_decode and b"draft" not in line:
                self.server.prefill_graph_sizes = numbers
        return Kind.SETTINGS

    def _ready(self, number: int, line: bytes) -> Taken:
        self.server.is_ready = True
        return Kind.SETTINGS
