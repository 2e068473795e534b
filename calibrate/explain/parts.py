"""Where the TTFT of a run goes: which server a request waited for, and what computed or sent it."""

from collections.abc import Mapping

import numpy as np

from sim.metrics.latencies import finished_mask, request_latencies
from sim.metrics.pools import phases
from sim.runlog import RunLog


def ttft_parts_ms(log: RunLog) -> Mapping[str, float]:
    """The mean of each part, in the order in which a request passes them; they add up to the TTFT.

    They are those of `sim.metrics.registry.PHASES`. Without prefill and decode servers there are
    two: the wait for the first step that has a part of the prompt, and the time from there on.
    """
    counts = finished_mask(log.requests) & (log.requests.warm_up == 0)
    if (found := phases(log)) is not None:
        parts = {name.removesuffix("_ms"): values for name, values in found._asdict().items()}
    else:
        latencies = request_latencies(log.requests)
        queue_ms = latencies.queue_time_ms
        parts = {"prefill_queue": queue_ms, "prefill": latencies.ttft_ms - queue_ms}
    of_counted = {name: values[counts] for name, values in parts.items()}
    known = {name: values[~np.isnan(values)] for name, values in of_counted.items()}
    return {name: float(values.mean()) for name, values in known.items() if len(values)}
