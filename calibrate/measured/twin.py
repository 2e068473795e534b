"""Simulates the scenario of a measured run, as it is or with changed values."""

from collections.abc import Sequence
from dataclasses import replace

from sim.commands.running.simulate import run_built, simulate_built
from sim.core.errors import InputError
from sim.des.run import RunOptions
from sim.runlog import RunLog
from sim.runlog.run_log_file import MeasuredRun
from sim.scenario.build import BuiltScenario, build
from sim.scenario.load import LoadedScenario, vary
from sim.scenario.overrides import Change
from sim.workers.executor import TraceCache
from sim.workload.workload import Workload, listed


class Twin:
    """Simulates a scenario's whole workload, any number of times.

    Args:
        loaded: the scenario; its sections sweep, tune and report are ignored.
        arrivals: a run whose arrival times replace the scenario's; None: the scenario's are used.
    """

    def __init__(self, loaded: LoadedScenario, arrivals: MeasuredRun | None = None) -> None:
        self.loaded = loaded
        self._arrivals = arrivals
        self._read_trace = TraceCache()

    def run(self) -> RunLog:
        """Simulate the scenario as it is, with progress on stderr.

        Raises:
            InputError: the scenario, or a file that it names, is bad.
        """
        return run_built(self.built(()))

    def run_with(self, changes: Sequence[Change]) -> RunLog:
        """Simulate the scenario with some values changed, without progress.

        Raises:
            InputError: as `run`, or a change is to a key that cannot be set.
        """
        return simulate_built(self.built(changes), RunOptions())

    def built(self, changes: Sequence[Change]) -> BuiltScenario:
        """The scenario with some values changed. Raises InputError as `run_with`."""
        built = build(vary(self.loaded, changes), read_trace=self._read_trace)
        if self._arrivals is None:
            return built
        return replace(built, workload=self._arrived(built.workload, self._arrivals))

    def _arrived(self, workload: Workload, measured: MeasuredRun) -> Workload:
        if workload.clients or workload.phases:
            raise InputError(
                f"{self.loaded.path}: workload: each client waits for an answer before it sends"
                " its next request, so --measured-arrivals cannot set the arrival times"
            )
        arrival_ns = dict(zip(measured.rid, measured.arrival_ns.tolist(), strict=True))
        requests = [
            request.sent_at(arrival_ns[rid]) if (rid := request.spec.rid) in arrival_ns else request
            for request in workload.arrivals()
        ]
        return listed(sorted(requests, key=lambda one: one.spec.arrival_ns))
