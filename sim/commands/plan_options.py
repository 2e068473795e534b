"""The options of `simulate plan` that stand for a scenario file."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any

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


Apart = Annotated[
    float | None,
    typer.Option(
        "--apart",
        metavar="GB/S",
        help="without FILE: try prefill and decode servers apart, too; the network bandwidth of a"
        " GPU, such as 50 for 400 Gbit/s",
    ),
]


# By the names of the fields of `sim.commands.plan_question.Question`.
_OPTIONS: Mapping[str, Any] = {
    "model": Model,
    "weights": Weights,
    "hardware": HardwareNames,
    "tp": TensorParallel,
    "server": Server,
    "rate_rps": RateRps,
    "prompt_tokens": PromptTokens,
    "output_tokens": OutputTokens,
    "ttft_ms": TtftMs,
    "tpot_ms": TpotMs,
    "percentile": Percentile,
    "apart": Apart,
}


def with_question(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options, after its first argument; it gets them as `question`."""

    @wraps(command)
    def run(**kwargs: Any) -> None:
        from sim.commands.plan_question import Question

        given = {name: kwargs.pop(name) for name in _OPTIONS}
        known = {name: value for name, value in given.items() if value not in (None, [])}
        command(question=Question(**known), **kwargs)

    signature = inspect.signature(command)
    first, *others = (one for one in signature.parameters.values() if one.name != "question")
    kind = inspect.Parameter.KEYWORD_ONLY
    asked = [
        inspect.Parameter(name, kind, default=None, annotation=annotation)
        for name, annotation in _OPTIONS.items()
    ]
    parameters = [one.replace(kind=kind) for one in (first, *asked, *others)]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    own = {name: one for name, one in command.__annotations__.items() if name != "question"}
    run.__annotations__ = {**own, **_OPTIONS}
    return run
