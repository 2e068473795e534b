"""The options of `simulate plan` that stand for a scenario file."""

from typing import Annotated

import typer

Model = Annotated[
    str | None, typer.Option(metavar="ID", help="without FILE: the model, such as Qwen/Qwen3-32B")
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT",
        help="without FILE: format of the weights, such as fp8 or nvfp4; default: the model's",
    ),
]
HardwareNames = Annotated[
    list[str] | None,
    typer.Option(
        "--hardware",
        metavar="GPU[=PRICE]",
        help="without FILE: a GPU to try, such as h100_sxm, and its price per hour; repeatable",
    ),
]
TensorParallel = Annotated[
    list[int] | None,
    typer.Option(
        "--tp",
        metavar="N",
        help="without FILE: GPUs of a replica (tensor parallel); repeatable; default: 1, 2, 4, 8",
    ),
]
Server = Annotated[
    list[str] | None,
    typer.Option(
        "--server", metavar="FAMILY", help="without FILE: sglang or vllm; default: try both"
    ),
]
RateRps = Annotated[float | None, typer.Option(help="without FILE: requests/s of all users")]
PromptTokens = Annotated[
    int | None, typer.Option(min=1, help="without FILE: mean length of prompts")
]
OutputTokens = Annotated[
    int | None, typer.Option(min=1, help="without FILE: mean length of answers")
]
TtftMs = Annotated[
    float | None, typer.Option(help="without FILE: limit on the time to the first token")
]
TpotMs = Annotated[
    float | None, typer.Option(help="without FILE: limit on the time of each further token")
]
Percentile = Annotated[
    float | None,
    typer.Option(
        min=1,
        max=100,
        help="without FILE: percentage of requests that must keep both limits; default: 99",
    ),
]
