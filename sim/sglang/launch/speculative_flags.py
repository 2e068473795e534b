"""Speculative decoding as launch flags of SGLang, both ways.

SGLang drafts trees unless it is told otherwise: for Llama models, and for n-grams. So the flags
that make the drafts a chain are always given, and a command without them is refused.
"""

from typing import Any, Final

from sim.core.errors import InputError
from sim.sglang.drafting import mixes
from sim.sglang.section.keys import SglangKeys
from sim.sglang.section.speculation import KEY, speculative_settings

OPTIONS: Final = (
    KEY,
    "speculative_num_steps",
    "speculative_num_draft_tokens",
    "speculative_eagle_topk",
    "speculative_draft_model_path",
)
BREADTH: Final = "speculative-ngram-max-bfs-breadth"
IGNORED: Final = ("speculative-draft-model-revision",)
_NEEDS_MODEL = ("EAGLE", "EAGLE3", "STANDALONE")


def speculative_flags(section: SglangKeys) -> list[str]:
    """The flags of a section; none without speculative decoding."""
    settings = speculative_settings(section)
    if not settings:
        return []
    flags = [f"--{key.replace('_', '-')} {value}" for key, value in settings.items()]
    if section.speculative_algorithm == "NGRAM":
        return [*flags, f"--{BREADTH} 1"]
    flags.append("--speculative-eagle-topk 1")
    model = section.speculative_draft_model_path
    if model is None and section.speculative_algorithm in _NEEDS_MODEL:
        model = '"$DRAFT_MODEL"'
    return flags if model is None else [*flags, f"--speculative-draft-model-path {model}"]


def take_speculative(values: dict[str, Any], where: str) -> tuple[dict[str, Any], list[str]]:
    """Take the flags out of the values of a command.

    Returns:
        The section's keys, and notes for the user.

    Raises:
        InputError: the drafts are trees.
    """
    given = {key: values.pop(key) for key in (*OPTIONS, BREADTH) if key in values}
    breadth = given.pop(BREADTH, "10")
    if KEY not in given:
        return {}, []
    algorithm = given[KEY] = str(given[KEY]).upper()
    if algorithm == "NGRAM":
        given.pop("speculative_eagle_topk", None)
        if breadth != "1":
            raise InputError(f"{where}: --{BREADTH} {breadth}: only chains of drafts are simulated")
    topk = given.get("speculative_eagle_topk", "1")
    if topk != "1":
        raise InputError(
            f"{where}: --speculative-eagle-topk {topk}: only chains of drafts are simulated"
        )
    notes = ["--speculative-algorithm: set acceptance to how many draft tokens the model accepts"]
    if algorithm != "NGRAM" and "speculative_num_steps" not in given:
        notes.append("--speculative-num-steps: SGLang chooses it by the model; here it is 3")
    if values.get("enable_mixed_chunk") and not mixes(algorithm):
        del values["enable_mixed_chunk"]
        notes.append(f"--enable-mixed-chunk: SGLang turns it off with {algorithm}")
    return given, notes
