"""What a drafter takes of the memory beside the model: its weights, and KV for its layers.

vLLM loads it before it measures what is left, and its layers are among those that the pool has KV
for (0.33.0: `load_model` and `get_kv_cache_spec` of v1/worker/gpu_model_runner.py).
"""

from dataclasses import replace
from pathlib import Path

from sim.core.errors import InputError
from sim.family.section import Drafts
from sim.latency.model_key import find_model, shape_of
from sim.latency.shapes import Matrices, ModelShape

# Without a name, the layers that draft are in the model's own checkpoint.
_OWN_LAYERS = ("mtp", "NEXTN")


def drafter_of(drafts: Drafts | None, model: ModelShape, base_dir: Path) -> ModelShape | None:
    """The drafter, as far as its sizes are known; None: it takes no memory, or is not known.

    A small model is counted whole. Layers that draft use the model's embedding and output head.
    Without a name, those of methods `mtp` and `NEXTN` are the model's own: one layer more, like its
    last one.

    Raises:
        InputError: the drafter is a file that cannot be read, or describes no model.
    """
    if drafts is None or drafts.drafter == "nothing":
        return None
    if drafts.model is not None:
        named = _named(drafts.model, base_dir, drafts.model_key)
        if named is None:
            return None
        named = replace(named, kv_element_bytes=model.kv_element_bytes)
        return named if drafts.drafter == "model" else _layers_only(named)
    if drafts.method not in _OWN_LAYERS:
        return None
    last = model.layers[-1]
    projection = Matrices(2 * model.hidden_size**2)
    layer = replace(last, count=1, matrices=(*last.matrices, projection))
    return replace(_layers_only(model), layers=(layer,))


def with_drafter(model: ModelShape, drafter: ModelShape | None) -> ModelShape:
    """A model that takes as much memory as both: its layers are those of both."""
    if drafter is None:
        return model
    tables = drafter.vocab_size * drafter.hidden_size * (2 - drafter.tie_word_embeddings)
    return replace(
        model,
        layers=(*model.layers, *drafter.layers),
        num_other_parameters=model.num_other_parameters + drafter.num_other_parameters + tables,
    )


def _layers_only(shape: ModelShape) -> ModelShape:
    return replace(shape, vocab_size=0, tie_word_embeddings=True, num_other_parameters=0)


def _named(key: str, base_dir: Path, model_key: tuple[str, ...]) -> ModelShape | None:
    """The shape of a drafter; None for an id that is not known here."""
    try:
        return shape_of(find_model(key, base_dir))
    except InputError as error:
        if key.endswith(".json") or key.startswith((".", "/")):
            raise InputError(error.reason if error.key else str(error), key=model_key) from None
        return None
