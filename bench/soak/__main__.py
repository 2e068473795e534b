"""`simulate serve` beside good and bad clients: `python -m bench.soak --minutes 30`.

Good clients read streams of tokens whose times are known; their errors, and how late their tokens
are, are counted. Beside them clients go away, are slow, and send what is no request. The server's
memory is looked at every few seconds. The figures are printed, and drawn in out/bench/soak.png.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import numpy as np

from bench.clients.served import served
from bench.machine import describe_machine, machine_line
from bench.places import OUT, SCENARIOS
from bench.results import markdown_table
from bench.serve_load import memory_mib
from bench.soak import bad
from bench.soak.good import Good
from bench.soak.picture import Sample, soak_picture
from sim.report.figures.render import save_picture

_STEP_S = 0.02  # of bench/scenarios/soak.yaml
_SAMPLE_S = 5.0


async def _sampled(process: int, good: Good) -> list[Sample]:
    """Look at the server every few seconds, until cancelled."""
    samples: list[Sample] = []
    try:
        while True:
            files = len(list(Path(f"/proc/{process}/fd").iterdir()))
            now_s = time.perf_counter() - good.begin_s
            samples.append(Sample(now_s, memory_mib(process), files, good.requests))
            await asyncio.sleep(_SAMPLE_S)
    except asyncio.CancelledError:
        return samples


async def _soak(
    url: str, process: int, minutes: float, num_clients: int, step_s: float
) -> tuple[Good, Counter[tuple[str, str]], list[Sample]]:
    good, seen = Good(step_s), Counter[tuple[str, str]]()
    port = int(url.rpartition(":")[2])
    async with AsyncExitStack() as opened:
        connector = aiohttp.TCPConnector(limit=0)
        session = aiohttp.ClientSession(url, connector=connector)
        await opened.enter_async_context(session)
        tasks = [asyncio.ensure_future(good.client(session, each)) for each in range(num_clients)]
        tasks += [
            asyncio.ensure_future(bad.client(kind, port, seen))
            for kind, (_, number, _) in bad.KINDS.items()
            for _ in range(number)
        ]
        sampling = asyncio.ensure_future(_sampled(process, good))
        await asyncio.wait([*tasks, sampling], timeout=60 * minutes,
                           return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
        for task in (*tasks, sampling):
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        faults = [each for each in results if not isinstance(each, asyncio.CancelledError)]
        if faults and isinstance(faults[0], BaseException):
            raise faults[0]
        return good, seen, await sampling


def _tables(good: Good, seen: Counter[tuple[str, str]], samples: list[Sample]) -> str:
    late_ms = np.array([late for _, late in good.late])
    p50, p99, p999 = np.percentile(late_ms, (50, 99, 99.9))
    rows = [
        ("good clients' requests", f"{good.requests:,}"),
        ("their errors", f"{good.errors.total():,}"),
        ("their tokens, in chunks", f"{len(late_ms):,}"),
        ("tokens late, ms: median, 99 %, 99.9 %, most",
         f"{p50:.1f}, {p99:.1f}, {p999:.1f}, {late_ms.max():.0f}"),
        ("time to first token, ms: median, 99 %",
         "{:.0f}, {:.0f}".format(*np.percentile(good.ttft_ms, (50, 99)))),
        ("bad clients' connections", f"{seen.total():,}"),
        ("memory, MiB: start, after a minute, most, end",
         ", ".join(f"{mib:.0f}" for mib in _memory(samples))),
        ("open files: most, end",
         f"{max(each.files for each in samples)}, {samples[-1].files}"),
    ]  # fmt: skip
    kinds = [
        (kind, f"{sum(number for (of, _), number in seen.items() if of == kind):,}",
         ", ".join(f"{end} {number:,}" for (of, end), number in sorted(seen.items()) if of == kind))
        for kind in bad.KINDS
    ]  # fmt: skip
    errors = [(reason, f"{number:,}") for reason, number in good.errors.most_common(20)]
    return "\n\n".join([
        markdown_table(("what", "figure"), rows),
        markdown_table(("bad clients", "connections", "ended with"), kinds),
        *([markdown_table(("error of a good client", "times"), errors)] if errors else []),
    ])  # fmt: skip


def _memory(samples: list[Sample]) -> tuple[float, float, float, float]:
    warm = next((each for each in samples if each.at_s >= 60), samples[-1])
    most = max(each.memory_mib for each in samples)
    return samples[0].memory_mib, warm.memory_mib, most, samples[-1].memory_mib


def main() -> None:
    parser = argparse.ArgumentParser(description="simulate serve beside good and bad clients.")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=24, help="good ones, each with one request")
    parser.add_argument("--speed", type=float, default=1, help="as of simulate serve")
    arguments = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    with served(SCENARIOS / "soak.yaml", ["--speed", str(arguments.speed)]) as (url, process):
        good, seen, samples = asyncio.run(
            _soak(url, process, arguments.minutes, arguments.clients, _STEP_S / arguments.speed)
        )
    save_picture(soak_picture(samples, good.late), OUT / "soak.png")
    machine = machine_line(describe_machine())
    sys.stdout.write(f"{_tables(good, seen, samples)}\n\n{machine}\n{OUT / 'soak.png'}\n")
    sys.exit(1 if good.errors else 0)


if __name__ == "__main__":
    main()
