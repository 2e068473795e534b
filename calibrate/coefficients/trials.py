"""Simulations with different coefficients, and how far each is from the measured times."""

from collections.abc import Sequence

import numpy as np

from calibrate.coefficients.coefficient import Coefficient
from calibrate.coefficients.frozen import frozen_times
from calibrate.coefficients.minimise import size
from calibrate.coefficients.runs import FitRun
from calibrate.coefficients.stamps import Stamps, rows_of, stamps_of
from calibrate.measured.pairs import MeasuredPairs
from sim.core.arrays import Float64
from sim.core.errors import InputError
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.runlog import RunLog


class Trials:
    """Simulates all runs with given amounts of the coefficients (see `Coefficient`).

    A residual is log(simulated / measured), of each element of a run's vector of times
    (`calibrate.coefficients.stamps`). A request arrives at any moment of a step, so its times are
    known to about a step: a mean step is added to both times.

    Args:
        runs: measured runs of one server.
        coefficients: what is fitted.
        step_s: duration of a mean step.

    Attributes:
        coefficients: those that are still fitted.
        rows: what each residual belongs to.
        start: the amounts to begin with.
        num_requests: requests that the fit sees and that finish in the first simulation.
        num_simulations: simulations of one run that were made so far.
    """

    def __init__(
        self, runs: Sequence[FitRun], coefficients: Sequence[Coefficient], step_s: float
    ) -> None:
        self._runs = runs
        self.coefficients = list(coefficients)
        self._held: dict[str, float] = {}
        self._tied: list[tuple[Coefficient, str]] = []
        self._residuals: dict[tuple[float, ...], Float64] = {}
        self.num_simulations = 0
        guesses = np.array([each.guesses for each in coefficients]).T
        first = self._simulate(self.values(guesses[0]))
        pairs = [run.seen(log) for run, log in zip(runs, first, strict=True)]
        self._stamps = [stamps_of(run.name, each) for run, each in zip(runs, pairs, strict=True)]
        step_ms = step_s * NS_PER_S / NS_PER_MS
        self._offset = np.concatenate([each.offset(step_ms) for each in self._stamps])
        self._measured = self._offset + np.concatenate([each.measured() for each in self._stamps])
        self.rows = rows_of(self._stamps)
        self.num_requests = sum(len(each.rid) for each in self._stamps)
        self.start = min(guesses, key=lambda guess: size(self.residuals(guess), self.rows.count))

    def hold(self, index: int, tied_to: str | None = None) -> None:
        """Fit a coefficient no longer: it keeps its value `held`.

        Args:
            index: of the coefficient.
            tied_to: the key of one that has the same effect in these results: as long as that one
                is fitted, both have equal amounts.
        """
        coefficient = self.coefficients.pop(index)
        self._held[coefficient.key] = coefficient.held
        if tied_to is not None:
            self._tied.append((coefficient, tied_to))

    def values(self, amounts: Float64) -> dict[str, float]:
        """The value of every coefficient, by key."""
        amount_of = {
            each.key: amount
            for each, amount in zip(self.coefficients, amounts.tolist(), strict=True)
        }
        values = {each.key: each.value(amount_of[each.key]) for each in self.coefficients}
        tied = {
            each.key: each.value(amount_of[other])
            for each, other in self._tied
            if other in amount_of
        }
        return values | self._held | tied

    def _simulate(self, values: dict[str, float]) -> list[RunLog]:
        self.num_simulations += len(self._runs)
        return [run.simulate(values) for run in self._runs]

    def residuals(self, amounts: Float64) -> Float64:
        """The residuals of all runs; equal values are simulated once.

        Raises:
            InputError: other requests finish than in the first simulation.
        """
        values = self.values(amounts)
        key = tuple(values[name] for name in sorted(values))
        if key not in self._residuals:
            times = [
                self._times(run, stamps, run.seen(log))
                for run, stamps, log in zip(
                    self._runs, self._stamps, self._simulate(values), strict=True
                )
            ]
            self._residuals[key] = np.log((np.concatenate(times) + self._offset) / self._measured)
        return self._residuals[key]

    def frozen_slopes(self, amounts: Float64, widths: Float64) -> Float64:
        """How residuals change with the amounts if all decisions stay the same.

        One simulation times its steps with several values (`calibrate.coefficients.frozen`).

        Args:
            amounts: where slopes are taken.
            widths: by how much each amount is changed.

        Returns:
            Shape [num_residuals, num_amounts].
        """
        values = self.values(amounts)
        changed = [self.values(amounts + step) for step in np.diag(widths)]
        times, added = [], []
        for run, stamps in zip(self._runs, self._stamps, strict=True):
            self.num_simulations += 1
            others = [run.changes(each) for each in changed]
            frozen = frozen_times(run.twin, run.changes(values), others)
            times.append(self._times(run, stamps, run.seen(frozen.log)))
            row_of = {rid: row for row, rid in enumerate(frozen.log.requests.rid)}
            rows = [row_of[rid] for rid in stamps.rid]
            pairs = zip(frozen.ttft_ms[rows].T, frozen.decode_ms[rows].T, strict=True)
            added.append(np.column_stack([stamps.vector(*each) for each in pairs]))
        whole = (np.concatenate(times) + self._offset)[:, None]
        slopes: Float64 = np.concatenate(added) / whole / widths
        return slopes

    def _times(self, run: FitRun, stamps: Stamps, pairs: MeasuredPairs) -> Float64:
        if pairs.rid != stamps.rid:
            raise InputError(
                f"{run.name}: the requests that finish in the simulation change with the step"
                f" times: {len(stamps.rid)} at first, then {len(pairs)}"
            )
        simulated = pairs.simulated
        return stamps.vector(simulated.latencies_ms()["ttft"], simulated.decode_ms())
