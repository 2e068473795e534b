"""A validation as plain JSON values."""

from dataclasses import asdict
from typing import Any

from calibrate.errors import METRICS
from calibrate.validate import STAGES, Case, Validation
from calibrate.verdict import verdict


def document(validation: Validation) -> dict[str, Any]:
    """The document of docs/how-to/validation.md; equal validations give equal documents."""
    left = validation.left_range
    return {
        "profile": validation.profile,
        "remarks": list(validation.remarks),
        "steps": {
            mode: {"device": errors.device.model_dump(), "host": errors.host.model_dump()}
            for mode, errors in validation.steps.items()
        },
        "range": {"num_steps": left.num_steps, "num_outside": left.num_outside},
        "cases": [_case(case) for case in validation.cases],
        "rankings": [asdict(ranking) for ranking in validation.rankings],
        "verdict": verdict(validation),
    }


def _case(case: Case) -> dict[str, Any]:
    return {
        "label": case.label,
        "scenario_hash": case.runs[0].scenario_hash,
        "runs": [
            {"log": run.name, "steps": len(run.recorded.steps), "replay": "identical"}
            for run in case.runs
        ],
        "real": {
            "mean": dict(case.real.mean),
            "spread_pct": {metric: case.real.spread_pct(metric) for metric in METRICS},
            "margin_pct": {metric: case.real.margin_pct(metric) for metric in METRICS},
            "request_spread_pct": dict(case.real.request_spread_pct),
        },
        **{stage: _stage(case, stage) for stage in STAGES},
    }


def _stage(case: Case, stage: str) -> dict[str, Any]:
    return {
        **asdict(case.errors[stage]),
        "runs": [
            {"parted_at": run.parted_at, "same_steps_pct": run.same_steps_pct}
            for run in case.simulated[stage]
        ],
    }
