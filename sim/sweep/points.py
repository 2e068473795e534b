"""What it means to run a point of a sweep: a scenario in, a summary out."""

from sim.metrics.summary import Summary
from sim.scenario.load import LoadedScenario
from sim.workers.executor import Runner, TaskOutcome

# Runs one point; a module-level function, so that workers can import it.
PointRunner = Runner[LoadedScenario, Summary]
# How a point ended; its result is its metrics, as JSON values.
PointOutcome = TaskOutcome[Summary]
