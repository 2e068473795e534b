"""`realrun replay`: sends a scenario's workload to a server, and keeps what a comparison needs."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.command_line import Scenario, Set, command, out_option
from sim.core.errors import InputError
from sim.extras import how_to_install

if TYPE_CHECKING:
    from realrun.replay.run import Replayed
    from sim.workload.results.model import ImportedRequest

SERVER, TOKENS = "server.json", "tokens.jsonl.gz"


@command(user_code=True)
def replay(
    *,
    file: Scenario,
    url: Annotated[str, typer.Option(help="address of the server, such as http://host:8000")],
    out: Annotated[Path, out_option("folder of the results")],
    set_: Set = None,
    model: Annotated[
        str | None,
        typer.Option(help="model's name on the server; default: the first that it lists"),
    ] = None,
    vocab_size: Annotated[
        int, typer.Option(min=2, help="prompts have token ids below this number")
    ] = 32_000,
    token_timeout_s: Annotated[
        float, typer.Option(min=0, help="a request that gets no token for so long has failed")
    ] = 600,
) -> None:
    """Send a scenario's workload to a running server, to compare it with its twin."""
    from sim.commands import import_results as results
    from sim.commands.import_results import import_table
    from sim.commands.output import check_folder, print_line
    from sim.commands.recorded_scenario import compose_scenario
    from sim.core.errors import say
    from sim.scenario.build import located_errors
    from sim.scenario.load import load_scenario
    from sim.workload.kinds.build import build_workload
    from sim.workload.results.measured import in_order

    try:
        from realrun.replay.interrupts import run_interruptible
        from realrun.replay.run import ReplayOptions, replay
    except ImportError as missing:
        reason = f"realrun replay needs the package {missing.name}: {how_to_install('replay')}"
        raise InputError(reason) from None
    if not url.startswith(("http://", "https://")):
        raise InputError(f"--url {url}: must begin with http:// or https://")
    check_folder(out, file)
    loaded = load_scenario(file, set_ or ())
    scenario = loaded.scenario
    with located_errors(loaded):
        workload = build_workload(scenario.workload, seed=scenario.seed, base_dir=loaded.base_dir)
    options = ReplayOptions(
        url=url, model=model, vocab_size=vocab_size, token_timeout_s=token_timeout_s
    )
    say(f"servetwin: sends {workload.num_requests:,} requests to {url}")
    replayed = run_interruptible(replay(workload, options))
    _refuse_silence(replayed.requests, url, vocab_size)
    requests, _ = in_order(replayed.requests, url)
    composed = compose_scenario(
        replayed.server.facts,
        requests,
        source=file,
        out=out,
        template=file,
        overrides=set_ or (),
        name=scenario.name,
    )
    results.write_import(out, requests, composed.text)
    _write_server(out, url, replayed)
    stats = results.read_back(out, max(results.MIN_BLOCK, composed.page_size))
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
    print_line(f"next: calibrate validate {out / results.SCENARIO} {out / results.MEASURED}")


def _refuse_silence(requests: "Sequence[ImportedRequest]", url: str, vocab_size: int) -> None:
    """Raises InputError if no request was answered, or none was sent before Ctrl-C."""
    if not any(request.finish_ns is not None for request in requests):
        failure = min({request.failure for request in requests}, default="interrupted")
        hint = f" (prompts have token ids below --vocab-size {vocab_size})"
        of_tokens = any(word in failure.lower() for word in ("vocab", "no token"))
        raise InputError(
            f"--url {url}: no request was answered: {failure}{hint if of_tokens else ''}"
        )


def _write_server(out: Path, url: str, replayed: "Replayed") -> None:
    """Write when each token came, and what the server said of itself."""
    from sim.core.files import json_text, write_text
    from sim.core.packed import open_text, to_json_line
    from sim.core.units import NS_PER_S

    first_ns = replayed.requests[0].arrival_ns
    with open_text(out / TOKENS) as file:
        for request, times_ns in zip(replayed.requests, replayed.token_ns, strict=True):
            token_s = [(time_ns - first_ns) / NS_PER_S for time_ns in times_ns]
            file.write(to_json_line({"rid": request.rid, "token_s": token_s}))
    write_text(out / SERVER, json_text({"url": url, **replayed.server.as_json()}, indent=1))


def _say_failures(replayed: "Replayed", requests: "Sequence[ImportedRequest]") -> None:
    from sim.core.errors import say

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
