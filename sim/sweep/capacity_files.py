"""The results of `simulate plan` on disk: results.csv has a row each, results.json has all."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sim.core.files import json_text, write_text
from sim.family.launch_command import LaunchCommand
from sim.sweep.capacity_plan import CapacityPlan
from sim.sweep.deployments import ATTAINMENT, TriedDeployment
from sim.tables.table import csv_table

# The metrics that are shown for each deployment.
DEPLOYMENT_METRICS = (ATTAINMENT, "mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms")


def plan_json(
    plan: CapacityPlan, deployments: Sequence[TriedDeployment], launches: Sequence[LaunchCommand]
) -> str:
    """The text of results.json; equal results give equal text.

    Args:
        plan: the search.
        deployments: what it found, the best first.
        launches: the launch commands of the best one, of each pool and perhaps of their router;
            none if no deployment meets the SLO.
    """
    commands = [{**asdict(launch), "command": launch.command} for launch in launches]
    content = {
        "name": plan.plan.base.scenario.name,
        "min_slo_attainment": plan.section.min_slo_attainment,
        "seeds": plan.seeds,
        "launch": commands[0] if commands else None,
        **({"launches": commands} if len(commands) > 1 else {}),
        "deployments": [
            {**_row(plan, one), "settings": settings_of(plan, one), "metrics": _metrics(one)}
            for one in deployments
        ],
    }
    return json_text(content, indent=1)


def write_plan_results(
    plan: CapacityPlan,
    deployments: Sequence[TriedDeployment],
    launches: Sequence[LaunchCommand],
    folder: Path,
) -> None:
    """Write both files; results.json comes last, so if it exists, results.csv is complete.

    Raises:
        InputError: writing failed.
    """
    csv_table([_row(plan, one) for one in deployments]).write_csv(folder / "results.csv")
    write_text(folder / "results.json", plan_json(plan, deployments, launches))


def tried_keys(plan: CapacityPlan) -> tuple[str, ...]:
    """All key paths that any server's grid has."""
    return tuple(dict.fromkeys(key for one in plan.candidates for key in one.tried))


def settings_of(plan: CapacityPlan, deployment: TriedDeployment) -> dict[str, Any]:
    """The settings with which `simulate run` runs the deployment, without the seed."""
    return dict(
        plan.settings(deployment.candidate, deployment.size or deployment.candidate.smallest)
    )


def _row(plan: CapacityPlan, deployment: TriedDeployment) -> dict[str, Any]:
    candidate = deployment.candidate
    return {
        "gpu": candidate.gpu,
        **{name: candidate.degrees.get(name) for name in ("tp", "dp", "moe_ep")},
        "family": candidate.family,
        **{key: candidate.tried.get(key) for key in tried_keys(plan)},
        "verdict": deployment.verdict,
        "replicas": deployment.replicas,
        **(_apart(deployment) if plan.section.apart is not None else {}),
        "num_gpus": deployment.num_gpus,
        "cost": deployment.cost,
        "headroom": deployment.headroom,
        "is_headroom_open": deployment.is_headroom_open,
        **{name: deployment.interval(name).mean for name in DEPLOYMENT_METRICS},
        f"{ATTAINMENT}_half_width": deployment.interval(ATTAINMENT).half_width,
        "reason": deployment.reason,
    }


def _apart(deployment: TriedDeployment) -> dict[str, Any]:
    """The numbers of both sorts of servers, and the degrees of decode servers."""
    decoders, size = deployment.candidate.decoders, deployment.size
    num_prefill, num_decode = size if decoders is not None and size is not None else (None, None)
    degrees = {} if decoders is None else decoders.degrees
    return {
        "prefill": num_prefill,
        "decode": num_decode,
        **{f"decode_{name}": degrees.get(name) for name in ("tp", "dp", "moe_ep")},
        "goodput_per_gpu": deployment.goodput_per_gpu,
    }


def _metrics(deployment: TriedDeployment) -> dict[str, Any]:
    judged = deployment.judged
    return {
        name: {
            **asdict(deployment.interval(name)),
            "by_seed": [] if judged is None else judged.by_seed(name),
        }
        for name in DEPLOYMENT_METRICS
    }
