"""servetwin from Python: runs, sweeps, searches and contests, and what was written of them.

    import servetwin as st

    result = st.run("scenarios/smoke.yaml", {"scheduler.schedule_policy": "fcfs"})
    result.summary["mean_ttft_ms"]
    result.requests.describe()

Everything that is loaded here is in `__all__`; a library is loaded when it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sim import __version__
from sim.core.garbage import rare_collections

if TYPE_CHECKING:
    from servetwin.comparison import Comparison, compare
    from servetwin.loading import load
    from servetwin.run_result import RunResult, run
    from servetwin.scenario import Scenario
    from servetwin.searches import (
        ContestResult,
        PlanResult,
        TuneResult,
        contest,
        plan,
        tune,
    )
    from servetwin.sweep_result import SweepResult, sweep
    from sim.core.errors import InputError

__all__ = [
    "Comparison",
    "ContestResult",
    "InputError",
    "PlanResult",
    "RunResult",
    "Scenario",
    "SweepResult",
    "TuneResult",
    "__version__",
    "compare",
    "contest",
    "load",
    "plan",
    "run",
    "sweep",
    "tune",
]

_PLACES = {
    "Comparison": "servetwin.comparison",
    "ContestResult": "servetwin.searches",
    "InputError": "sim.core.errors",
    "PlanResult": "servetwin.searches",
    "RunResult": "servetwin.run_result",
    "Scenario": "servetwin.scenario",
    "SweepResult": "servetwin.sweep_result",
    "TuneResult": "servetwin.searches",
    "compare": "servetwin.comparison",
    "contest": "servetwin.searches",
    "load": "servetwin.loading",
    "plan": "servetwin.searches",
    "run": "servetwin.run_result",
    "sweep": "servetwin.sweep_result",
    "tune": "servetwin.searches",
}


def __getattr__(name: str) -> Any:
    """Load a name of `__all__` when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module 'servetwin' has no attribute {name!r}")
    # Nearly all that is loaded stays, so the collector would look through it again and again.
    with rare_collections():
        found = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
