"""What differs between vLLM's versions (docs/explanation/vllm.md, "Older versions")."""

from dataclasses import dataclass
from typing import Final

from sim.core.versions import entry_for

NEWEST: Final = "0.19.0"


@dataclass(frozen=True, slots=True)
class VersionRules:
    """Rules and defaults of one version.

    Attributes:
        leaves_out_finishing: under async scheduling, a row whose last token is in flight is passed
            over; otherwise it computes another token, for nothing.
        async_scheduling: the default of this setting.
        async_pipeline: whether async scheduling goes with pipeline parallelism.
        reserves_full_isl: whether there is a setting `scheduler_reserve_full_isl`, on by default.
        front_end_per_rank: by default there are as many API servers as ranks (0.16.0 to 0.18.0 have
            this, too: `entrypoints/cli/serve.py`); otherwise there is one.
        is_known_whole: rules for priorities and for whole prompts are those of 0.19.0, too.
    """

    leaves_out_finishing: bool = True
    async_scheduling: bool = True
    async_pipeline: bool = True
    reserves_full_isl: bool = True
    front_end_per_rank: bool = True
    is_known_whole: bool = True


VERSIONS = {
    NEWEST: VersionRules(),
    "0.14.0": VersionRules(async_pipeline=False, reserves_full_isl=False, front_end_per_rank=False),
    "0.11.2": VersionRules(
        async_scheduling=False,
        async_pipeline=False,
        reserves_full_isl=False,
        front_end_per_rank=False,
    ),
    "0.10.2": VersionRules(
        leaves_out_finishing=False,
        async_scheduling=False,
        async_pipeline=False,
        reserves_full_isl=False,
        front_end_per_rank=False,
        is_known_whole=False,
    ),
}


def version_with_rules_of(version: str) -> str | None:
    """The key of VERSIONS for a server of this version; None for what is not a version."""
    return entry_for(version, {name: name for name in reversed(VERSIONS)})
