"""`realrun serve`: a real model behind OpenAI's interface."""

from pathlib import Path
from typing import Annotated

import typer

from realrun.commands.options import AttentionChoice, AttentionOption, Device, DType, Graphs
from sim.api.address import Address
from sim.command_line import Scenario, Set, command, out_option
from sim.core.errors import InputError
from sim.extras import how_to_install


@command(user_code=True)
def serve(
    *,
    file: Scenario,
    set_: Set = None,
    address: Address,
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
    attention: AttentionOption = AttentionChoice.AUTO,
    graphs: Graphs = True,
) -> None:
    """Serve OpenAI's interface with a real model, until Ctrl-C."""
    from realrun.runner.warm_runner import RunnerOptions

    try:
        from realrun.live.serve_model import ServeOptions, serve_model
    except ImportError as missing:
        reason = f"realrun serve needs the package {missing.name}: {how_to_install('serve')}"
        raise InputError(reason) from None

    serve_model(
        file,
        overrides=set_ or (),
        runner=RunnerOptions(device=device, dtype=dtype, attention=attention.value, graphs=graphs),
        options=ServeOptions(
            address=address, tokenizer=tokenizer, out=out, max_requests=max_requests
        ),
    )
