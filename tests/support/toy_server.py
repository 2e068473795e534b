"""A toy server that makes a run log quickly, for tests and examples of reports."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from sim.core.batch import ForwardMode
from sim.runlog import RunLog
from tests.support.run_logs import request_columns, run_log, step_columns

_MS = 1_000_000
_POOL_TOKENS = 200_000


@dataclass(slots=True)
class _ToyServer:
    """Turns requests into columns. It admits by arrival, or by cached tokens, most first."""

    prompt: list[int]
    cached: list[int]
    output: list[int]
    arrival_ns: list[int]
    prefers_cached: bool
    max_running: int
    now_ns: int = 0
    tree_tokens: int = 0
    waiting: deque[int] = field(default_factory=deque)
    running: dict[int, int] = field(default_factory=dict)
    scheduled_ns: dict[int, int] = field(default_factory=dict)
    first_token_ns: dict[int, int] = field(default_factory=dict)
    finish_ns: dict[int, int] = field(default_factory=dict)
    steps: list[dict[str, int]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def record(self, mode: ForwardMode, end_ns: int, **numbers: int) -> None:
        used = sum(self.prompt[row] + self.output[row] - left for row, left in self.running.items())
        used = min(used, _POOL_TOKENS)
        self.tree_tokens = min(self.tree_tokens, _POOL_TOKENS - used)
        kv = {
            "used_tokens": used,
            "evictable_tokens": self.tree_tokens,
            "free_tokens": _POOL_TOKENS - used - self.tree_tokens,
        }
        sizes = {"running": len(self.running), "queue": len(self.waiting)}
        times = {"t_start_ns": self.now_ns, "t_end_ns": end_ns, "device_ns": end_ns - self.now_ns}
        self.steps.append(
            {"mode": mode, "num_context_tokens": used, **times, **kv, **sizes} | numbers
        )

    def prefill(self) -> None:
        if self.prefers_cached:
            self.waiting = deque(sorted(self.waiting, key=lambda row: (-self.cached[row], row)))
        room = min(4, self.max_running - len(self.running), len(self.waiting))
        rows = [self.waiting.popleft() for _ in range(room)]
        new_tokens = sum(self.prompt[row] - self.cached[row] for row in rows)
        end_ns = self.now_ns + 8 * _MS + new_tokens * 25_000
        self.running |= {row: self.output[row] - 1 for row in rows}
        numbers = {"num_prefill_rows": room, "num_prefill_tokens": new_tokens}
        cached_tokens = sum(self.cached[row] for row in rows)
        self.record(ForwardMode.EXTEND, end_ns, num_cached_tokens=cached_tokens, **numbers)
        self.scheduled_ns |= dict.fromkeys(rows, self.now_ns)
        self.first_token_ns |= dict.fromkeys(rows, end_ns)
        self.leave(end_ns)

    def decode(self, next_arrival_ns: int) -> None:
        step_ns = 12 * _MS + len(self.running) * 60_000
        until_arrival = max(1, -(-(next_arrival_ns - self.now_ns) // step_ns))
        num_steps = min(*self.running.values(), until_arrival)
        end_ns = self.now_ns + num_steps * step_ns
        rows = len(self.running)
        self.gaps.append((step_ns, num_steps * rows))
        self.running = {row: left - num_steps for row, left in self.running.items()}
        self.record(ForwardMode.DECODE, end_ns, num_steps=num_steps, num_decode_rows=rows)
        self.leave(end_ns)

    def leave(self, end_ns: int) -> None:
        for row in [row for row, left in self.running.items() if left == 0]:
            del self.running[row]
            self.finish_ns[row] = end_ns
            self.tree_tokens += self.prompt[row] - self.cached[row]
        self.now_ns = end_ns

    def serve(self) -> None:
        upcoming = deque(range(len(self.arrival_ns)))
        while upcoming or self.waiting or self.running:
            if not self.waiting and not self.running:
                self.now_ns = max(self.now_ns, self.arrival_ns[upcoming[0]])
            while upcoming and self.arrival_ns[upcoming[0]] <= self.now_ns:
                self.waiting.append(upcoming.popleft())
            if self.waiting and len(self.running) < self.max_running:
                self.prefill()
            else:
                full = not upcoming or len(self.running) >= self.max_running
                self.decode(1 << 62 if full else self.arrival_ns[upcoming[0]])


def toy_log(
    num_requests: int, *, rate_rps: float, seed: int = 0, prefers_cached: bool = False
) -> RunLog:
    """The log of a consistent run of one server with Poisson arrivals.

    Half of the requests find most of their prompt in the cache. With `prefers_cached` these go
    first, and a few more tokens are found. The server can serve about 12 requests/s.
    """
    rng = np.random.default_rng(seed)
    prompt = rng.integers(200, 4_000, num_requests)
    share = np.where(rng.random(num_requests) < 0.5, 0.9, 0.05)
    cached = (prompt * share * (1.0 if prefers_cached else 0.8)).astype(np.int64)
    arrival_ns = np.cumsum(rng.exponential(1e9 / rate_rps, num_requests)).astype(np.int64)
    server = _ToyServer(
        prompt=prompt.tolist(),
        cached=cached.tolist(),
        output=rng.integers(2, 250, num_requests).tolist(),
        arrival_ns=arrival_ns.tolist(),
        prefers_cached=prefers_cached,
        max_running=48,
    )
    server.serve()
    rows = range(num_requests)
    requests = request_columns(
        arrival_ns=server.arrival_ns,
        scheduled_ns=[server.scheduled_ns[row] for row in rows],
        first_token_ns=[server.first_token_ns[row] for row in rows],
        finish_ns=[server.finish_ns[row] for row in rows],
        prompt_tokens=server.prompt,
        cached_tokens=server.cached,
        output_tokens=server.output,
    )
    names = ("num_steps", "num_prefill_rows", "num_prefill_tokens", "num_cached_tokens")
    defaults = {"num_steps": 1} | dict.fromkeys((*names[1:], "num_decode_rows"), 0)
    table = [defaults | step for step in server.steps]
    steps = step_columns(**{name: [step[name] for step in table] for name in table[0]})
    meta = {"replicas": 1, "max_total_tokens": _POOL_TOKENS, "wall_seconds": 0.1}
    return run_log(requests, steps, gaps=server.gaps, meta=meta)
