"""Rules in which SGLang's versions differ (docs/explanation/sglang.md, "Older versions")."""

from dataclasses import dataclass, replace
from typing import Final

from sim.core.declared import entry_for

NEWEST: Final = "0.5.23"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRules:
    """The rules of one version; the defaults are those of the newest.

    Attributes:
        leaves_out_finishing: a row that reaches its limit with the token in flight does not decode
            once more.
        drops_finished_first: finished rows leave before the prefill pass, not before the next
            decode step.
        reserves_known_outputs: a running request that ignores end tokens reserves all that it has
            left, not the share that the new-token ratio says.
        looks_at_budget_first: a pass ends before a candidate if the step's tokens are used up. In
            versions without it the candidate is tried, and refused with NO_TOKEN if it does not
            fit into the memory, either.
        needs_page: a candidate must have room for one page more than its tokens.
        charges_page: an admitted row is charged one page more than its tokens.
        limits_input_of_chunks: `max_prefill_tokens` refuses a candidate that exceeds what is left
            of it, also if prompts may be split.
        chunk_needs_room: the next chunk of a prompt is made smaller if memory is short.
        marks_waiting_prefixes: every 32nd pass, the prefixes of waiting requests count as used.
        retracts_for_steps: requests are retracted until `retract_decode_steps` tokens are free for
            each row, not until the next step fits.
    """

    leaves_out_finishing: bool = True
    drops_finished_first: bool = True
    reserves_known_outputs: bool = True
    looks_at_budget_first: bool = True
    needs_page: bool = True
    charges_page: bool = True
    limits_input_of_chunks: bool = False
    chunk_needs_room: bool = True
    marks_waiting_prefixes: bool = True
    retracts_for_steps: bool = False


_RULES_0_5_10 = VersionRules(
    leaves_out_finishing=False,
    drops_finished_first=False,
    reserves_known_outputs=False,
    looks_at_budget_first=False,
    needs_page=False,
    limits_input_of_chunks=True,
    marks_waiting_prefixes=False,
)
_RULES_0_5_17 = replace(_RULES_0_5_10, needs_page=True, limits_input_of_chunks=False)
_RULES_0_5_9 = replace(_RULES_0_5_10, charges_page=False)
_RULES_0_5_1 = replace(_RULES_0_5_9, chunk_needs_room=False, retracts_for_steps=True)
VERSIONS = {
    NEWEST: VersionRules(),
    "0.5.22": VersionRules(drops_finished_first=False, looks_at_budget_first=False),
    "0.5.17": _RULES_0_5_17,
    "0.5.10": _RULES_0_5_10,
    "0.5.9": _RULES_0_5_9,
    "0.5.1": _RULES_0_5_1,
}
# By the first version of which it is known. Of 0.5.11 to 0.5.13, 0.5.12.post1 alone was looked at:
# it needs a page as 0.5.17 does, and limits the input of chunks as 0.5.10 does.
_SINCE = {
    "0.5.1": "0.5.1",
    "0.5.3": "0.5.9",
    "0.5.10": "0.5.10",
    "0.5.14": "0.5.17",
    "0.5.22": "0.5.22",
    "0.5.23": NEWEST,
}


def version_with_rules_of(version: str) -> str | None:
    """The key of VERSIONS for a server of this version; None for what is not a version."""
    return entry_for(version, _SINCE)
