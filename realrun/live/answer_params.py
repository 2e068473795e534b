"""How a client wants its answer to be sampled, with the model's defaults for what it leaves out."""

from realrun.live.served_tokens import AnswerParams
from realrun.model.paged_model import PagedModel
from realrun.tokens.sampling import SamplingParams
from sim.api.answer import Asked


def model_defaults(model: PagedModel, seed: int) -> SamplingParams:
    """The parameters in the model's generation_config.json, which SGLang and vLLM take, too."""
    said = model.model.generation_config.to_diff_dict()
    keys = ("temperature", "top_p", "top_k", "min_p")
    known = {key: said[key] for key in keys if isinstance(said.get(key), int | float)}
    return SamplingParams(**{"temperature": 1.0, **known}, seed=seed)


def answer_params(
    asked: Asked, defaults: SamplingParams, end_ids: frozenset[int], number: int
) -> AnswerParams:
    """The parameters of an answer.

    Args:
        asked: what the client asks for.
        defaults: the values of parameters that it does not give. A request without a seed gets
            one that is made of the default seed and of its number.
        end_ids: the model's end tokens.
        number: how many requests came before this one.
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
