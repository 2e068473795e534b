"""The command line `realrun`. Commands import their modules when they run, so help is quick."""

import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from realrun.suite import UNFINISHED
from sim.command_line import (
    OutputFormat,
    Scenario,
    Set,
    Version,
    may_run_user_code,
    new_app,
    out_option,
    run_app,
)
from sim.core.errors import InputError
from sim.extras import how_to_install

app = new_app("Serve scenarios on a real paged-attention runner, with the simulator's scheduler.")


class Attention(StrEnum):
    """Attention backends. `flashinfer` chooses a prefill kernel for each batch."""

    AUTO = "auto"
    REFERENCE = "reference"
    FLASHINFER = "flashinfer"
    FLASHINFER_FA2 = "flashinfer-fa2"
    FLASHINFER_FA3 = "flashinfer-fa3"


class Sampling(StrEnum):
    """Where output tokens come from."""

    FORCED = "forced"
    GREEDY = "greedy"


@app.callback()
def need_torch(context: typer.Context, _version: Version = False) -> None:
    """Refuse to start without torch, which every command needs but `replay`."""
    if context.invoked_subcommand == "replay":
        return
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise InputError(f"needs {' and '.join(missing)}: {how_to_install('torch')}")


Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:N, or auto: a GPU if there is one")]
DType = Annotated[
    str, typer.Option(help="float32, bfloat16, float16, or auto: bfloat16 on a GPU, else float32")
]
AttentionOption = Annotated[Attention, typer.Option(help="attention backend")]
Graphs = Annotated[
    bool, typer.Option("--graphs/--no-graphs", help="replay decode steps as CUDA graphs")
]


@app.command("run")
@may_run_user_code
def run_command(
    file: Scenario,
    set_: Set = None,
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="file of the run log (.jsonl or .jsonl.gz)"),
    ] = None,
    format_: Annotated[
        OutputFormat, typer.Option("--format", help="format of the summary")
    ] = OutputFormat.TABLE,
    sampling: Annotated[
        Sampling, typer.Option(help="forced: the workload's scripted outputs; greedy: the model's")
    ] = Sampling.FORCED,
    device: Device = "auto",
    dtype: DType = "auto",
    attention: AttentionOption = Attention.AUTO,
    graphs: Graphs = True,
) -> None:
    """Serve one scenario in real time and print its summary."""
    from realrun.commands.run import run
    from realrun.warm_runner import RunnerOptions

    run(
        file,
        overrides=set_ or (),
        options=RunnerOptions(device=device, dtype=dtype, attention=attention.value, graphs=graphs),
        sampling=sampling.value,
        log=log,
        json=format_ is OutputFormat.JSON,
    )


@app.command("replay")
@may_run_user_code
def replay_command(
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
    from realrun.commands.replay import replay_scenario

    replay_scenario(
        file,
        overrides=set_ or (),
        url=url,
        model=model,
        vocab_size=vocab_size,
        token_timeout_s=token_timeout_s,
        out=out,
    )


@app.command("check")
def check_command(
    model: Annotated[
        str, typer.Option(help="a packaged model (random weights), or a checkpoint's folder")
    ] = "tiny",
    device: Device = "auto",
    dtype: DType = "auto",
    attention: AttentionOption = Attention.AUTO,
    page_size: Annotated[int, typer.Option(help="tokens of a page, 1 to 128")] = 16,
    seed: Annotated[int, typer.Option(help="seed of random weights")] = 0,
    format_: Annotated[
        OutputFormat, typer.Option("--format", help="format of the comparisons")
    ] = OutputFormat.TABLE,
) -> None:
    """Compare paged logits with plain transformers'; exit code 1 if any differ too much."""
    from realrun.commands.check import check
    from realrun.warm_runner import RunnerOptions

    agrees = check(
        model,
        options=RunnerOptions(device=device, dtype=dtype, attention=attention.value, seed=seed),
        page_size=page_size,
        as_json=format_ is OutputFormat.JSON,
    )
    if not agrees:
        raise typer.Exit(1)


@app.command("kernels")
def kernels_command(
    model: Annotated[
        list[str], typer.Option(help="a model whose kernels are needed; may be repeated")
    ],
    device: Device = "auto",
    dtype: DType = "auto",
    attention: AttentionOption = Attention.AUTO,
) -> None:
    """Load the kernels of models; those that are not compiled yet take minutes each."""
    from realrun.commands.kernels import kernels
    from realrun.warm_runner import RunnerOptions

    kernels(model, RunnerOptions(device=device, dtype=dtype, attention=attention.value))


@app.command("profile")
def profile_command(
    model: Annotated[
        str, typer.Option(help="a packaged model (random weights), or a checkpoint's folder")
    ],
    out: Annotated[Path, out_option("file of the run log (.jsonl or .jsonl.gz)", "FILE")],
    budget_s: Annotated[
        float | None, typer.Option(min=0, help="time limit in seconds, loading included")
    ] = None,
    device: Device = "auto",
    dtype: DType = "auto",
    attention: AttentionOption = Attention.AUTO,
    graphs: Graphs = True,
    page_size: Annotated[int, typer.Option(help="tokens of a page, 1 to 128")] = 16,
    max_context: Annotated[
        int | None,
        typer.Option(min=1, help="longest context; default: the model's longest, on a CPU 1024"),
    ] = None,
    max_rows: Annotated[
        int | None,
        typer.Option(min=1, help="largest number of rows of a step; default: 512, on a CPU 16"),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="measured steps of each point")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="seed of weights, tokens, pages and order")] = 0,
) -> None:
    """Measure steps of many compositions; exit code 3 if points remain: repeat the command."""
    # The budget includes the time that loading torch takes.
    began_s = time.monotonic()
    from realrun.budget import Budget
    from realrun.commands.profile import GridOptions, profile
    from realrun.warm_runner import RunnerOptions

    is_complete = profile(
        model,
        out,
        options=RunnerOptions(
            device=device, dtype=dtype, attention=attention.value, graphs=graphs, seed=seed
        ),
        points=GridOptions(
            page_size=page_size,
            max_context=max_context,
            max_rows=max_rows,
            repeats=repeats,
            seed=seed,
        ),
        budget=Budget(budget_s, began_s=began_s),
    )
    if not is_complete:
        raise typer.Exit(UNFINISHED)


@app.command("runs")
@may_run_user_code
def runs_command(
    file: Scenario,
    out: Annotated[Path, out_option("file of the run logs (.tar)", "FILE")],
    variant: Annotated[
        list[str],
        typer.Option(
            metavar="'NAME KEY.PATH=VALUE...'",
            help="a variant to serve: its name and its changed keys; may be repeated",
        ),
    ],
    set_: Set = None,
    repeats: Annotated[int, typer.Option(min=1, help="runs of each variant")] = 2,
    budget_s: Annotated[
        float | None, typer.Option(min=0, help="time limit in seconds, loading included")
    ] = None,
    max_mib: Annotated[
        float | None, typer.Option(min=0, help="largest size of the file, in MiB")
    ] = None,
    device: Device = "auto",
    dtype: DType = "auto",
    attention: AttentionOption = Attention.AUTO,
    graphs: Graphs = True,
) -> None:
    """Serve variants of a scenario; exit code 3 if runs remain: repeat the command to continue."""
    # The budget includes the time that loading torch takes.
    began_s = time.monotonic()
    from realrun.budget import Budget
    from realrun.commands.runs import runs
    from realrun.variants import variant_runs
    from realrun.warm_runner import RunnerOptions

    done = runs(
        variant_runs(file, variant, overrides=set_ or (), repeats=repeats),
        out,
        options=RunnerOptions(device=device, dtype=dtype, attention=attention.value, graphs=graphs),
        budget=Budget(budget_s, began_s=began_s),
        max_bytes=None if max_mib is None else int(max_mib * (1 << 20)),
    )
    if not done:
        raise typer.Exit(UNFINISHED)


@app.command("serve")
@may_run_user_code
def serve_command(
    file: Scenario,
    set_: Set = None,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="port; 0: any free one")] = 8000,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="tokenizer.json, or a folder with a tokenizer; default: that of the model",
        ),
    ] = None,
    out: Annotated[
        Path | None, out_option("folder of the run log, the traffic and a scenario")
    ] = None,
    max_requests: Annotated[
        int, typer.Option(min=1, help="most requests under way; a further one gets status 503")
    ] = 1024,
    device: Device = "auto",
    dtype: DType = "auto",
    attention: AttentionOption = Attention.AUTO,
    graphs: Graphs = True,
) -> None:
    """Serve OpenAI's interface with a real model, until Ctrl-C."""
    from realrun.commands.serve import ServeOptions, serve
    from realrun.warm_runner import RunnerOptions

    serve(
        file,
        overrides=set_ or (),
        runner=RunnerOptions(device=device, dtype=dtype, attention=attention.value, graphs=graphs),
        options=ServeOptions(
            host=host, port=port, tokenizer=tokenizer, out=out, max_requests=max_requests
        ),
    )


@app.command("suite")
def suite_command(
    out: Annotated[Path, out_option("folder of the results")],
    budget_s: Annotated[float, typer.Option(min=0, help="time limit in seconds, loading included")],
    device: Device = "auto",
    model: Annotated[
        str | None, typer.Option(help="tiny: a few small stages, to try the suite on a CPU")
    ] = None,
) -> None:
    """Check, profile and serve for real on a GPU, in stages; a second call continues."""
    began_s = time.monotonic()
    from realrun.budget import Budget
    from realrun.commands.suite import suite

    budget = Budget(budget_s, began_s=began_s)
    if not suite(out, budget=budget, device=device, model=model, main=main):
        raise typer.Exit(1)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "realrun", argv)


if __name__ == "__main__":
    sys.exit(main())
