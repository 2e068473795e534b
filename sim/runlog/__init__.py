"""The log of a run, simulated or real: meta data, steps and requests."""

from sim.runlog.columns import NOT_YET_NS, RequestColumns, RunLog, StepColumns, TokenGaps

__all__ = ["NOT_YET_NS", "RequestColumns", "RunLog", "StepColumns", "TokenGaps"]
