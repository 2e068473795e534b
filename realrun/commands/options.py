"""Options that several commands have."""

from enum import StrEnum
from typing import Annotated

import typer


class Attention(StrEnum):
    """Attention backends. `flashinfer` chooses a prefill kernel for each batch."""

    AUTO = "auto"
    REFERENCE = "reference"
    FLASHINFER = "flashinfer"
    FLASHINFER_FA2 = "flashinfer-fa2"
    FLASHINFER_FA3 = "flashinfer-fa3"


Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:N, or auto: a GPU if there is one")]
DType = Annotated[
    str, typer.Option(help="float32, bfloat16, float16, or auto: bfloat16 on a GPU, else float32")
]
AttentionOption = Annotated[Attention, typer.Option(help="attention backend")]
Graphs = Annotated[
    bool, typer.Option("--graphs/--no-graphs", help="replay decode steps as CUDA graphs")
]
Model = Annotated[
    str, typer.Option(help="a packaged model (random weights), or a checkpoint's folder")
]
PageSize = Annotated[int, typer.Option(help="tokens of a page, 1 to 128")]
BudgetS = Annotated[
    float | None, typer.Option(min=0, help="time limit in seconds, loading included")
]
