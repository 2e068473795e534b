"""Which scenarios a real server can serve, and which parts of them it does not use."""

from collections.abc import Iterator
from contextlib import contextmanager

from realrun.model.kv_tensors import SettingError, check_page_size
from sim.core.errors import say
from sim.latency.config import parallelism
from sim.scenario.build import located_errors
from sim.scenario.load import LoadedScenario, refuse_pools
from sim.workload.kinds.build import build_workload
from sim.workload.workload import Workload

_UNUSED = {
    "host": "which takes the time of this machine's own host",
    "warmup": "whose summary is about all of it",
    "cooldown": "whose summary is about all of it",
}


def say_unused(*variants: LoadedScenario) -> None:
    """Print a line on stderr for each such section of a scenario, or of any variant of it."""
    for key, why in _UNUSED.items():
        found = next((loaded for loaded in variants if getattr(loaded.scenario, key)), None)
        if found is not None:
            reason = f"is not used by a real run, {why}"
            say(f"realrun: {found.locations.message((key,), reason)}")


def servable_workload(loaded: LoadedScenario) -> Workload:
    """The scenario's workload; refuses scenarios that a real server cannot serve.

    Raises:
        InputError: see `check_servable`; or the workload cannot be built.
    """
    check_servable(loaded)
    with located_errors(loaded):
        return build_workload(
            loaded.scenario.workload, seed=loaded.scenario.seed, base_dir=loaded.base_dir
        )


def check_servable(loaded: LoadedScenario) -> None:
    """Refuse scenarios that a real server cannot serve.

    Raises:
        InputError: the scenario names no model, has several replicas, server pools, a pipeline or
            host memory, or a page size that the runner does not support.
    """
    refuse_pools(loaded, "a real run, which has one server")
    scenario = loaded.scenario
    if scenario.model is None:
        raise loaded.error(("model",), "is required to run for real")
    if scenario.replicas != 1:
        raise loaded.error(("replicas",), f"must be 1 in a real run, not {scenario.replicas}")
    if scenario.autoscale is not None:
        raise loaded.error(("autoscale",), "does not go with a real run, which has one server")
    if parallelism(scenario.latency).pp > 1:
        raise loaded.error(("latency", "pp"), "must be 1 in a real run, which uses one GPU")
    if (obstacle := scenario.scheduler.check_real_run()) is not None:
        key, reason = obstacle
        raise loaded.error(("scheduler", key), reason)
    with errors_about(loaded, scenario.scheduler.page_key):
        check_page_size(scenario.scheduler.page_size)


def check_same_runner(first: LoadedScenario, other: LoadedScenario) -> None:
    """Raises InputError unless a runner that was made for `first` can also serve `other`."""
    if other.scenario.model != first.scenario.model:
        reason = f"is {other.scenario.model}, but the loaded model is {first.scenario.model}"
        raise other.error(("model",), reason)
    if other.scenario.scheduler.family != first.scenario.scheduler.family:
        raise other.error(("scheduler", "family"), "differs from the warm runner's")
    for key in first.scenario.scheduler.runner_keys:
        known, value = (getattr(of.scenario.scheduler, key) for of in (first, other))
        if value != known:
            reason = f"is {value}, but the warm runner was made for {known}"
            raise other.error(("scheduler", key), reason)


@contextmanager
def errors_about(loaded: LoadedScenario, key: str) -> Iterator[None]:
    """A context that turns a SettingError into an error about this key of `scheduler`."""
    try:
        yield
    except SettingError as error:
        raise loaded.error(("scheduler", key), error.reason) from None
