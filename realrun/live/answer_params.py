"""What a client wants of its answer, with the model's defaults for what it does not say."""

from typing import NamedTuple

from realrun.live.served_tokens import AnswerParams
from realrun.model.paged_model import PagedModel
from realrun.tokens.sampling import SamplingParams
from sim.api.answer import Asked


class Defaults(NamedTuple):
    """What holds for clients that do not say otherwise.

    Attributes:
        temperature, top_p, top_k, min_p: see `sim.api.answer.Sampling`.
        seed: the seeds of requests without one follow from it, and from their number.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0


def model_defaults(model: PagedModel, seed: int) -> Defaults:
    """Those of the model's generation_config.json, as SGLang and vLLM take them from there."""
    said = model.model.generation_config.to_diff_dict()
    keys = ("temperature", "top_p", "top_k", "min_p")
    known = {key: said[key] for key in keys if isinstance(said.get(key), int | float)}
    return Defaults(**known, seed=seed)


def answer_params(
    asked: Asked, defaults: Defaults, end_ids: frozenset[int], number: int
) -> AnswerParams:
    """What the client of the request with this number wants.

    Args:
        asked: what it asks for.
        defaults: what it gets if it does not say.
        end_ids: the model's end tokens.
        number: how many requests were before.
    """
    sampling = asked.sampling
    said = (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p)
    temperature, top_p, top_k, min_p = (
        default if value is None else value
        for value, default in zip(said, defaults[:4], strict=True)
    )
    seed = (defaults.seed << 32) + number if sampling.seed is None else sampling.seed
    params = SamplingParams.of(temperature, top_p, int(top_k), min_p, seed)
    stop_ids = frozenset(sampling.stop_token_ids)
    if asked.min_tokens:
        banned = stop_ids if asked.ignore_eos else stop_ids | end_ids
        params = params._replace(
            banned=tuple(sorted(banned)), banned_before=len(asked.prompt) + asked.min_tokens
        )
    return AnswerParams(params, sampling.stop, stop_ids)
