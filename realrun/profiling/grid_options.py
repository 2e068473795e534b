"""The options of a profile: what is measured."""

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True, slots=True, kw_only=True)
class GridOptions:
    """What to measure."""

    page_size: Annotated[int, typer.Option(help="tokens of a page, 1 to 128")] = 16
    max_context: Annotated[
        int | None,
        typer.Option(min=1, help="longest context; default: the model's longest, on a CPU 1024"),
    ] = None
    max_rows: Annotated[
        int | None,
        typer.Option(min=1, help="largest number of rows of a step; default: 512, on a CPU 16"),
    ] = None
    repeats: Annotated[int, typer.Option(min=1, help="measured steps of each point")] = 5
    seed: Annotated[int, typer.Option(min=0, help="seed of weights, tokens, pages and order")] = 0
