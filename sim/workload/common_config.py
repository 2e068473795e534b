"""Keys that every kind of traffic has."""

from sim.strict_model import StrictModel
from sim.workload.lengths import MaxNewTokens, PredictedOutput


class CommonConfig(StrictModel):
    """Keys that every kind of traffic has."""

    tenant: str = ""
    """Name of the tenant that sends the requests. Metrics are also given for each tenant."""
    max_new_tokens: MaxNewTokens | None = None
    """Each request's limit on its output. Without this key: the trace's limit, or the output length
    if the trace has no limits. Unit: tokens."""
    predicted_output: PredictedOutput | None = None
    """How each output length is guessed, for schedule policy `sjf`. Without it: no guess."""
