"""Measures what `simulate serve` can hold: `python -m bench.serve_load`.

The first table is about streams. A given number of clients open one stream each at the same moment,
and each token is stamped when it comes: how much later than simulated did the tokens come? The
second table is about memory: the requests of an hour of traffic are sent faster than real time.
"""

import argparse
import asyncio
import json
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import numpy as np

from bench.clients.served import served
from bench.machine import describe_machine, machine_line
from bench.places import SCENARIOS
from bench.results import markdown_table

_OUTPUT_TOKENS = 200
_KIB = 1 << 10
# Steps that hardly grow with their rows, to find the load at which the server is late.
_FAST = (
    "--set", "latency.per_decode_request_s=1e-6", "--set", "latency.per_context_token_s=0",
)  # fmt: skip


@dataclass(slots=True)
class LoadStream:
    """What came of one stream: its first token's time, and the gaps between its chunks, in ms."""

    ttft_ms: float
    gaps_ms: list[float]
    num_tokens: int


async def _stream(session: aiohttp.ClientSession, number: int) -> LoadStream:
    body = {
        "model": "bench-clients", "prompt": [number + 1] * 200, "max_tokens": _OUTPUT_TOKENS,
        "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    begin, times, num_tokens = time.perf_counter(), [], 0
    async with session.post("/v1/completions", json=body) as response:
        async for line in response.content:
            if line.startswith(b"data: {") and b'"choices":[{' in line:
                times.append(time.perf_counter())
            elif b'"usage"' in line:
                num_tokens = json.loads(line[6:])["usage"]["completion_tokens"]
    gaps = [(after - before) * 1000 for before, after in pairwise(times)]
    return LoadStream((times[0] - begin) * 1000, gaps, num_tokens)


async def _load(url: str, num_streams: int) -> tuple[list[LoadStream], float]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, connector=connector) as session:
        await _stream(session, 1 << 20)
        begin_s = time.perf_counter()
        done = await asyncio.gather(*[_stream(session, number) for number in range(num_streams)])
        return done, time.perf_counter() - begin_s


def _row(num_streams: int, *, fast: bool) -> list[str]:
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        arguments = ["--out", str(run), *(_FAST if fast else ())]
        with served(SCENARIOS / "clients.yaml", arguments) as (url, process):
            before_s = _cpu_s(process)
            done, wall_s = asyncio.run(_load(url, num_streams))
            cpu_s = _cpu_s(process) - before_s
        simulated = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    gaps = np.concatenate([each.gaps_ms for each in done])
    tokens = sum(each.num_tokens for each in done)
    mean_ms = sum(sum(each.gaps_ms) for each in done) / (tokens - len(done))
    return [
        f"{num_streams:,}{', fast steps' if fast else ''}",
        f"{tokens / wall_s:,.0f}",
        f"{simulated['mean_tpot_ms']:.2f}",
        f"{mean_ms:.2f}",
        f"{np.percentile(gaps, 99):.1f}",
        f"{np.mean([each.ttft_ms for each in done]) - simulated['mean_ttft_ms']:.0f}",
        f"{100 * cpu_s / wall_s:.0f}",
    ]


async def _hour(url: str, num_requests: int, at_once: int) -> None:
    """Short requests, some at a time."""
    places = asyncio.Semaphore(at_once)

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        body = {"prompt": [number + 1] * 100, "max_tokens": 50, "ignore_eos": True}
        async with places, session.post("/v1/completions", json=body) as response:
            await response.read()

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, connector=connector) as session:
        await asyncio.gather(*[one(session, number) for number in range(num_requests)])


def _memory_row(num_requests: int, *, keeps: bool) -> list[str]:
    with TemporaryDirectory() as folder:
        kept = ["--out", str(Path(folder) / "run")] if keeps else []
        with served(SCENARIOS / "clients.yaml", ["--speed", "1000", *kept]) as (url, process):
            asyncio.run(_hour(url, 100, 64))
            before, begin_s = memory_mib(process), time.perf_counter()
            asyncio.run(_hour(url, num_requests, 64))
            wall_s = time.perf_counter() - begin_s
            after = memory_mib(process)
    return [
        "with --out" if keeps else "without --out",
        f"{num_requests:,}",
        f"{wall_s:.0f}",
        f"{before:.0f}",
        f"{after:.0f}",
    ]


def _cpu_s(process: int) -> float:
    """CPU time of a process, in seconds (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def memory_mib(process: int) -> float:
    """Memory of a process that is in RAM, in MiB (Linux)."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / _KIB


def main() -> None:
    parser = argparse.ArgumentParser(description="The load that simulate serve holds.")
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 50, 200, 500, 1000])
    parser.add_argument("--fast", type=int, nargs="*", default=[50, 100, 200, 500])
    parser.add_argument("--requests", type=int, default=36_000, help="0: no table of memory")
    arguments = parser.parse_args()
    header = (
        "streams", "tokens/s", "TPOT ms, simulated", "received", "p99 gap ms",
        "TTFT ms, later by", "CPU %",
    )  # fmt: skip
    rows = [_row(number, fast=False) for number in arguments.streams]
    rows += [_row(number, fast=True) for number in arguments.fast]
    tables = [markdown_table(header, rows)]
    if arguments.requests:
        rows = [_memory_row(arguments.requests, keeps=keeps) for keeps in (False, True)]
        memory_header = ("log", "requests", "seconds", "MiB before", "MiB after")
        tables.append(markdown_table(memory_header, rows))
    sys.stdout.write("\n\n".join([*tables, machine_line(describe_machine())]) + "\n")


if __name__ == "__main__":
    main()
