"""A server's settings with speculative decoding."""

from dataclasses import replace
from pathlib import Path

from sim.core.errors import InputError
from sim.engine.acceptance import Speculation
from sim.engine.server_config import ServerConfig
from sim.latency.config import num_stages
from sim.scenario.schema import Scenario
from sim.server_section import Drafts


def speculating(
    scenario: Scenario, config: ServerConfig, drafts: Drafts, base_dir: Path
) -> ServerConfig:
    """The settings, with speculative decoding."""
    if num_stages(scenario.latency) > 1:
        raise InputError("above 1 does not go with speculative decoding", key=("latency", "pp"))
    if scenario.acceptance is None:
        raise InputError("acceptance is required with speculative decoding", key=("scheduler",))
    acceptance = scenario.acceptance.load(
        drafts.num_tokens, base_dir, looks_up=drafts.drafter == "nothing"
    )
    speculation = Speculation(drafts.method, drafts.num_tokens, acceptance, *drafts.lookup)
    with_drafts: ServerConfig = replace(config, speculation=speculation)  # type: ignore[type-var]
    return with_drafts
