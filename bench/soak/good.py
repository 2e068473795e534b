"""Clients as they should be: they read every token at once, and note when it came."""

import json
import time
from collections import Counter
from dataclasses import dataclass, field

import aiohttp

# Tokens of answers, in turn.
_OUTPUTS = (20, 60, 200)


@dataclass(slots=True)
class Good:
    """What good clients saw.

    Attributes:
        step_s: how long a token takes.
        begin_s: the start, on the clock of this process.
        requests: answers that came whole.
        errors: how many answers did not, by what was wrong.
        late: for each token, when it came (s since the start), and how much later than it was due
            (ms): the least late token of each answer counts as punctual.
        ttft_ms: times to first token.
    """

    step_s: float
    begin_s: float = field(default_factory=time.perf_counter)
    requests: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    late: list[tuple[float, float]] = field(default_factory=list)
    ttft_ms: list[float] = field(default_factory=list)

    async def client(self, session: aiohttp.ClientSession, number: int) -> None:
        """Send one request after the other, until cancelled."""
        turn = 0
        while True:
            output = _OUTPUTS[(number + turn) % len(_OUTPUTS)]
            try:
                times = await self._ask(session, [number + 1] * (20 + turn % 50 * 20), output)
            except (aiohttp.ClientError, OSError, ValueError) as error:
                self.errors[f"{type(error).__name__}: {str(error)[:80]}"] += 1
            else:
                self._note(times, output)
            turn += 1

    async def _ask(
        self, session: aiohttp.ClientSession, prompt: list[int], output: int
    ) -> list[tuple[int, float]]:
        """How many tokens there were when, in s since the start; the first entry: none, asked."""
        body = {
            "prompt": prompt, "max_tokens": output, "ignore_eos": True, "stream": True,
            "stream_options": {"continuous_usage_stats": True},
        }  # fmt: skip
        times = [(0, time.perf_counter() - self.begin_s)]
        async with session.post("/v1/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.content:
                if line.startswith(b"data: {"):
                    now_s = time.perf_counter() - self.begin_s
                    times.append((json.loads(line[6:])["usage"]["completion_tokens"], now_s))
        return times

    def _note(self, times: list[tuple[int, float]], output: int) -> None:
        (_, asked_s), *tokens = times
        if not tokens or tokens[-1][0] != output:
            self.errors["too few tokens"] += 1
            return
        self.requests += 1
        self.ttft_ms.append((tokens[0][1] - asked_s) * 1000)
        begins = [now_s - count * self.step_s for count, now_s in tokens]
        first = min(begins)
        self.late += [
            (now_s, (begin - first) * 1000)
            for (_, now_s), begin in zip(tokens, begins, strict=True)
        ]
