"""The `realrun` command line. Commands import what they need when they run: help is quick."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from sim.command_line import new_app, run_app
from sim.core.errors import InputError

app = new_app("Serve scenarios on a real paged-attention runner, with the simulator's scheduler.")


class Format(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


class Attention(StrEnum):
    """Which attention backend."""

    AUTO = "auto"
    REFERENCE = "reference"
    FLASHINFER = "flashinfer"


class Sampling(StrEnum):
    """Where output tokens come from."""

    FORCED = "forced"
    GREEDY = "greedy"


@app.callback()
def need_torch() -> None:
    """Every command computes."""
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise InputError(f"needs {' and '.join(missing)}: pip install 'servetwin[torch]'")


Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:N, or auto: a GPU if there is one")]
DType = Annotated[
    str, typer.Option(help="float32, bfloat16, float16, or auto: bfloat16 on a GPU, else float32")
]
AttentionOption = Annotated[Attention, typer.Option(help="attention backend")]
Graphs = Annotated[
    bool, typer.Option("--graphs/--no-graphs", help="replay decode steps as CUDA graphs")
]


@app.command("run")
def run_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="scenario file (YAML)")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY.PATH=VALUE", help="override a key; may be repeated"),
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="write the run log there (.jsonl or .jsonl.gz)")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="of the summary")] = Format.TABLE,
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
    from realrun.rig import RunnerOptions

    run(
        file,
        overrides=set_ or (),
        options=RunnerOptions(device=device, dtype=dtype, attention=attention.value, graphs=graphs),
        sampling=sampling.value,
        log=log,
        json=format_ is Format.JSON,
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
    seed: Annotated[int, typer.Option(help="of random weights")] = 0,
    format_: Annotated[Format, typer.Option("--format", help="of the comparisons")] = Format.TABLE,
) -> None:
    """Compare paged logits with plain transformers'; exit code 1 if any differ too much."""
    from realrun.commands.check import check
    from realrun.rig import RunnerOptions

    agrees = check(
        model,
        options=RunnerOptions(device=device, dtype=dtype, attention=attention.value, seed=seed),
        page_size=page_size,
        as_json=format_ is Format.JSON,
    )
    if not agrees:
        raise typer.Exit(1)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "realrun", argv)


if __name__ == "__main__":
    sys.exit(main())
