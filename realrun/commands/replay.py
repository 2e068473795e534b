"""`realrun replay`: sends a scenario's workload to a server, and keeps what a comparison needs."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sim.commands.import_results import MEASURED, SCENARIO, read_back, write_import
from sim.commands.import_scenario import compose_scenario
from sim.commands.import_table import import_table
from sim.commands.output import ResultFiles, print_line
from sim.core.atomic import atomic_path
from sim.core.errors import InputError
from sim.core.files import json_text, write_text
from sim.core.say import say
from sim.core.units import NS_PER_S
from sim.extras import how_to_install
from sim.runlog.json_lines import open_text, to_json_line
from sim.scenario.build import located_errors
from sim.scenario.load import load_scenario
from sim.workload.build import build_workload
from sim.workload.results.model import ImportedRequest
from sim.workload.results.write import in_order

if TYPE_CHECKING:
    from realrun.replay.run import Replayed

SERVER, TOKENS = "server.json", "tokens.jsonl.gz"
_MIN_BLOCK = 16


def replay_scenario(
    path: Path,
    *,
    overrides: Sequence[str],
    url: str,
    model: str | None,
    vocab_size: int,
    token_timeout_s: float,
    out: Path,
) -> None:
    """Send the workload, and write the folder.

    Args:
        path: the scenario.
        overrides: `--set` options.
        url: the server.
        model: see `ReplayOptions`.
        vocab_size: see `ReplayOptions`.
        token_timeout_s: see `ReplayOptions`.
        out: the folder.

    Raises:
        InputError: the scenario or the folder is bad, there is no server, or no request was
            answered.
    """
    try:
        from realrun.replay.run import ReplayOptions, replay
    except ImportError as missing:
        reason = f"realrun replay needs the package {missing.name}: {how_to_install('replay')}"
        raise InputError(reason) from None
    if not url.startswith(("http://", "https://")):
        raise InputError(f"--url {url}: must begin with http:// or https://")
    ResultFiles(directory=out).check(path)
    loaded = load_scenario(path, overrides)
    scenario = loaded.scenario
    with located_errors(loaded):
        workload = build_workload(scenario.workload, seed=scenario.seed, base_dir=loaded.base_dir)
    options = ReplayOptions(
        url=url, model=model, vocab_size=vocab_size, token_timeout_s=token_timeout_s
    )
    say(f"servetwin: sends {workload.num_requests:,} requests to {url}")
    replayed = asyncio.run(replay(workload, options))
    names = [request.rid for request in replayed.requests]
    requests, _ = in_order(replayed.requests, url)
    if not any(request.finish_ns is not None for request in requests):
        failure = min({request.failure for request in requests}, default="there is none")
        hint = f" (prompts have token ids below --vocab-size {vocab_size})"
        of_tokens = any(word in failure.lower() for word in ("vocab", "no token"))
        raise InputError(
            f"--url {url}: no request was answered: {failure}{hint if of_tokens else ''}"
        )
    composed = compose_scenario(
        replayed.server.facts,
        requests,
        source=path,
        out=out,
        template=path,
        overrides=overrides,
        name=scenario.name,
    )
    write_import(out, requests, composed.text)
    first_ns = replayed.requests[0].arrival_ns
    with atomic_path(out / TOKENS) as beside, open_text(beside, compressed=True) as file:
        for rid, times_ns in zip(names, replayed.token_ns, strict=True):
            token_s = [(time_ns - first_ns) / NS_PER_S for time_ns in times_ns]
            file.write(to_json_line({"rid": rid, "token_s": token_s}))
    write_text(out / SERVER, json_text({"url": url, **replayed.server.as_json()}, indent=1))
    stats = read_back(out, max(_MIN_BLOCK, composed.page_size))
    for line in import_table("replay", requests, stats):
        print_line(line)
    if replayed.num_cached is not None:
        print_line(f"the server found {replayed.num_cached:,} prompt tokens in its cache")
    short = sum(
        request.finish_ns is not None
        and (request.output_tokens or 0) < (request.max_new_tokens or 0)
        for request in requests
    )
    if short:
        say(
            f"servetwin: {short:,} answers have fewer tokens than were asked for: does the server"
            " follow ignore_eos?"
        )
    for note in composed.notes:
        say(f"servetwin: {' '.join(note.split())}")
    _say_failures(replayed, requests)
    print_line("")
    print_line(f"next: calibrate validate {out / SCENARIO} {out / MEASURED}")


def _say_failures(replayed: "Replayed", requests: Sequence[ImportedRequest]) -> None:
    if replayed.num_interrupted is not None:
        say(
            f"servetwin: interrupted: {len(replayed.requests):,} requests were sent, and"
            f" {replayed.num_interrupted:,} of them were under way: they have failed"
        )
    reasons = Counter(request.failure for request in requests if request.failure)
    for reason, number in reasons.most_common(20):
        rid = next(request.rid for request in requests if request.failure == reason)
        more = f" (and {number - 1:,} more)" if number > 1 else ""
        say(f"servetwin: {rid}{more}: {reason}")
