"""A validation against a measured run as plain JSON values."""

from dataclasses import asdict
from typing import Any

from calibrate.measured.compare import ComparedValue, LatencyErrors, rounded
from calibrate.measured.pairs import MeasuredPairs
from calibrate.measured.validate import MeasuredValidation
from sim.core.units import NS_PER_S


def document(validation: MeasuredValidation) -> dict[str, Any]:
    """The document that docs/how-to/measured.md describes; equal input gives an equal document."""
    comparison, over_time = validation.comparison, validation.over_time
    arrivals = comparison.arrivals
    return {
        "scenario": validation.scenario,
        "scenario_hash": validation.scenario_hash,
        "judged": asdict(validation.selection),
        "requests": {
            "measured": validation.num_measured,
            "simulated": validation.num_simulated,
            **_requests(comparison.pairs),
        },
        "arrivals": {
            "shift_s": arrivals.shift_ns / NS_PER_S,
            "spread_ms": rounded(arrivals.spread_ms),
        },
        "latencies": {name: _latency(e) for name, e in comparison.latencies.items()},
        "makespan_s": _compared(comparison.makespan_s),
        "output_throughput": _compared(comparison.output_throughput),
        "over_time": None
        if over_time is None
        else {
            "samples": len(over_time.measured.t_s),
            "left_out": over_time.num_left_out,
            **{
                name: {key: rounded(value) for key, value in asdict(errors).items()}
                for name, errors in over_time.errors.items()
            },
        },
        "remarks": list(validation.remarks),
    }


def _requests(pairs: MeasuredPairs) -> dict[str, Any]:
    return {
        "judged": pairs.num_judged,
        "compared": len(pairs),
        "only_measured": pairs.only_measured,
        "only_simulated": pairs.only_simulated,
        "failed_measured": pairs.failed_measured,
        "failed_simulated": dict(pairs.failed_simulated),
        **{
            f"{name}_differ": {rid: list(counts) for rid, counts in pairs.differing(name).items()}
            for name in ("prompt_tokens", "output_tokens")
        },
    }


def _latency(errors: LatencyErrors) -> dict[str, Any]:
    return {
        "requests": errors.num_requests,
        **{f"{name}_ms": _compared(value) for name, value in errors.values.items()},
        "request_error_pct": rounded(errors.request_error_pct),
        "request_error_left_out": errors.num_left_out,
    }


def _compared(value: ComparedValue) -> dict[str, float | None]:
    return {key: rounded(number) for key, number in asdict(value).items()}
