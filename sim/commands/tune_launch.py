"""How the winner of a search is launched."""

from collections.abc import Sequence
from dataclasses import replace

from sim.engine.launch_command import Launch
from sim.sglang.launch_flags import sglang_launch
from sim.sweep.plan import canonical
from sim.sweep.tune import Trial
from sim.sweep.tune_plan import TunePlan
from sim.sweep.tune_results import TuneResults
from sim.vllm.launch_flags import vllm_launch
from sim.vllm.section import VllmSection

# The section whose keys a server may have flags for.
_SCHEDULER = "scheduler"


def launch_of(plan: TunePlan, trials: Sequence[Trial], results: TuneResults) -> Launch | None:
    """How the winner is launched; settings outside of the scheduler's section have no flag."""
    if results.winner is None:
        return None
    settings = trials[results.winner.trial].settings
    scheduler = plan.plan.vary(settings).scenario.scheduler
    parts = {key: key.partition(".") for key in plan.space.axes}
    searched = [rest for top, _, rest in parts.values() if top == _SCHEDULER]
    if isinstance(scheduler, VllmSection):
        launch = vllm_launch(scheduler, searched)
    else:
        launch = sglang_launch(scheduler, searched)
    elsewhere = [
        f"{key}={canonical(results.winner.settings[key])}"
        for key, (top, _, _) in parts.items()
        if top != _SCHEDULER
    ]
    return replace(launch, apart=(*launch.apart, *elsewhere))
