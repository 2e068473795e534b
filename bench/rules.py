"""Comparisons that remove, one by one, the rules that servetwin and Dynamo's replay do not share.

servetwin follows SGLang, from which Dynamo's SGLang engine differs in some rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

# More tokens than all prompts that may wait together.
_UNSPLIT = 1_024_000
_NO_OVERLAP = "scheduler.disable_overlap_schedule=true"
_DECODE_FIRST = "scheduler.decode_first=true"
_UNSPLIT_OURS = (
    f"scheduler.chunked_prefill_size={_UNSPLIT}",
    f"scheduler.max_prefill_tokens={_UNSPLIT}",
)
_UNSPLIT_THEIRS = {"chunked_prefill_size": _UNSPLIT, "max_prefill_tokens": _UNSPLIT}


@dataclass(frozen=True, slots=True)
class SimulatorComparison:
    """One run of each simulator on the same requests.

    Attributes:
        label: its name in the table.
        ours: overrides of bench/scenarios/agreement.yaml.
        theirs: settings of Dynamo's SGLang engine.
        shared_blocks: prompts share at most this number of first blocks of 512 tokens; None: what
            they share in the trace.
    """

    label: str
    ours: tuple[str, ...] = ()
    theirs: Mapping[str, object] = field(default_factory=dict)
    shared_blocks: int | None = None


def comparisons() -> list[SimulatorComparison]:
    """All comparisons, from the default rules of both simulators to the same rules.

    Each changes one more rule than the one before, with two exceptions. The second only limits
    sharing to the first 8,192 tokens. The last splits prompts again, and still shares nothing.
    """
    passes = (_NO_OVERLAP, _DECODE_FIRST)
    unsplit = (*passes, *_UNSPLIT_OURS)
    return [
        SimulatorComparison("as they are"),
        SimulatorComparison(
            "as they are; prompts share their first 8,192 tokens at most", shared_blocks=16
        ),
        SimulatorComparison("servetwin without overlap", (_NO_OVERLAP,)),
        SimulatorComparison("and decodes after each prefill", passes),
        SimulatorComparison("and neither splits prompts", unsplit, _UNSPLIT_THEIRS),
        SimulatorComparison(
            "and no two prompts share anything", unsplit, _UNSPLIT_THEIRS, shared_blocks=0
        ),
        SimulatorComparison("the same, but prompts are split again", passes, shared_blocks=0),
    ]
