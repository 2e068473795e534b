"""Lets other people's clients measure a simulated server: `python -m bench.clients [NAME...]`.

Each client gets a fresh server. The table has what the client measured, read by `simulate import`,
beside what was simulated. `make clients` makes the environments first.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

from bench.clients.programs import ENVIRONMENTS, NUM_REQUESTS, PROGRAMS, ClientProgram, Place
from bench.clients.served import served
from bench.clients.tokenizer import make_tokenizer
from bench.machine import describe_machine, machine_line
from bench.places import OUT, REPOSITORY, SCENARIOS
from bench.results import markdown_table
from sim.commands.import_results import read_source
from sim.core.errors import InputError
from sim.runlog.columns import NOT_YET_NS
from sim.workload.results.measured import measured_of
from sim.workload.results.model import ReadOptions

_HEADER = (
    "client", "answered", "TTFT ms, client", "simulated", "TPOT ms, client", "simulated ",
)  # fmt: skip
_MOST_S = 300


def main() -> None:
    out = OUT / "clients"
    make_tokenizer(REPOSITORY / "docs", out / "tokenizer")
    wanted = sys.argv[1:]
    rows = []
    for number, program in enumerate(PROGRAMS):
        if not wanted or program.environment in wanted:
            rows.append(_row(program, out / str(number), out / "tokenizer"))
    sys.stdout.write(f"{markdown_table(_HEADER, rows)}\n\n{machine_line(describe_machine())}\n")


def _row(program: ClientProgram, folder: Path, tokenizer: Path) -> list[str]:
    if not (ENVIRONMENTS / program.environment).is_dir():
        return [program.name, "not installed", "", "", "", ""]
    rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    scenario = SCENARIOS / "clients.yaml"
    run = folder / "served"
    with served(scenario, ["--tokenizer", str(tokenizer), "--out", str(run)]) as (url, _):
        problem = _client(program, Place(url, tokenizer, folder))
    if problem:
        return [program.name, problem, "", "", "", ""]
    simulated = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    # SGLang's file has no times of sending; its TTFTs and TPOTs need none.
    options = ReadOptions(draw_arrivals=1 if program.environment == "sglang" else None)
    try:
        measured = measured_of(read_source(folder / program.results, None, options).requests)
    except InputError as error:
        return [program.name, str(error), "", "", "", ""]
    done = measured.finish_ns != NOT_YET_NS
    ttft_ns = (measured.first_token_ns - measured.arrival_ns)[done]
    tokens = measured.output_tokens[done]
    tpot_ns = (measured.finish_ns - measured.first_token_ns)[done] / (tokens - 1).clip(1)
    return [
        program.name,
        f"{done.sum()} of {NUM_REQUESTS}",
        f"{ttft_ns.mean() / 1e6:.1f}",
        f"{simulated['mean_ttft_ms']:.1f}",
        f"{tpot_ns.mean() / 1e6:.2f}",
        f"{simulated['mean_tpot_ms']:.2f}",
    ]


def _client(program: ClientProgram, place: Place) -> str:
    """Run a client; returns what went wrong, or nothing."""
    program_name, *arguments = program.arguments(place)
    command = [str(ENVIRONMENTS / program.environment / "bin" / program_name), *arguments]
    environment = {**os.environ, "PYTHONPATH": ""}
    if program.offline:
        environment["HF_HUB_OFFLINE"] = "1"
    log = place.out / "client.log"
    with log.open("w", encoding="utf-8") as file, TemporaryDirectory() as cwd:
        try:
            code = subprocess.run(  # noqa: S603 - the clients of this module
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=cwd,
                timeout=_MOST_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return f"took more than {_MOST_S} s: {log}"
    return f"ended with {code}: {log}" if code else ""


if __name__ == "__main__":
    main()
