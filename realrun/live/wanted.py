"""What a client wants of its answer, with the model's defaults for what it does not say."""

from typing import NamedTuple

from realrun.live.served_tokens import Wanted
from realrun.model import PagedModel
from realrun.sampling import random_tokens
from sim.api.sampling import Sampling


class Defaults(NamedTuple):
    """What holds for clients that do not say otherwise.

    Attributes:
        temperature, top_p, top_k, min_p: see `sim.api.sampling.Sampling`.
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


def wanted(sampling: Sampling, defaults: Defaults, number: int) -> Wanted:
    """What the client of the request with this number wants."""
    said = (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p)
    chosen = [
        default if value is None else value
        for value, default in zip(said, defaults[:4], strict=True)
    ]
    seed = (defaults.seed << 32) + number if sampling.seed is None else sampling.seed
    temperature, top_p, top_k, min_p = chosen
    random = random_tokens(temperature, top_p, int(top_k), min_p, seed)
    return Wanted(random, sampling.stop, frozenset(sampling.stop_token_ids))
