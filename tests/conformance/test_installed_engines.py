"""Engines that are installed here decide in the simulator as the families do.

They are looked for where `make oracle` and `make oracle-vllm` put them, or in the folders that the
environment names.
"""

import os
from pathlib import Path
from random import Random

import pytest

from oracle.sglang.draw_plain import draw_config, draw_workload
from oracle.sglang.generate import draw_case
from oracle.vllm.generate import write_cases
from sim.des.run import RunOptions
from tests.conftest import REPOSITORY
from tests.support.conformance import scenario_of, serve_scenario, trace_row
from tests.support.vllm_conformance import read_vllm_case, vllm_scenario_of

VLLM = Path(os.environ.get("SERVETWIN_VLLM", REPOSITORY / ".oracle-vllm-0.33.0"))
SGLANG = Path(os.environ.get("SERVETWIN_SGLANG", REPOSITORY / ".oracle-sglang-0.5.23"))


def both_logs(scenario, rows, engine, **numbers):
    """What the family decides, and what the engine does."""
    asking = scenario | {"scheduler": scenario["scheduler"] | {"engine": str(engine)}}
    return [
        serve_scenario(each, rows, RunOptions(check=True), **numbers) for each in (scenario, asking)
    ]


def drawn_sglang(parts, name):
    """The settings and the load of a server with one stage."""
    if parts:
        return draw_case(parts, name)
    rng = Random(name)
    config = draw_config(rng)
    return config, draw_workload(rng, config)


def takes_out(log):
    """Whether some request was preempted or retracted."""
    return any(line.get("preempted") or line.get("retracted") for line in log)


@pytest.mark.skipif(not VLLM.is_dir(), reason=f"no vLLM at {VLLM} (make oracle-vllm)")
@pytest.mark.parametrize(
    "parts",
    [(), ("groups",), ("drafts", "stages"), ("ranks",)],
    ids=["plain", "groups of layers", "drafts", "ranks"],
)
def test_installed_vllm_decides_random_cases_as_the_family_does(tmp_path, parts):
    """The whole logs are equal, also of asynchronous servers, of pipelines, and with preemption."""
    write_cases(tmp_path, 12, 77, "0.33.0", parts)
    seen = set()
    for path in sorted(tmp_path.glob("*.json")):
        case = read_vllm_case(path)
        stages, ranks = case.config["stages"], case.config.get("ranks", 1)
        scenario = vllm_scenario_of(case.config)
        rows = [{name: row[name] for name in row if name != "rank"} for row in case.workload]
        ours, theirs = both_logs(scenario, rows, VLLM, num_stages=stages, num_ranks=ranks)
        assert theirs == ours, path.stem
        is_async = case.config["async_scheduling"]
        seen |= {is_async and "async", not is_async and "sync", stages > 1 and "stages",
                 takes_out(ours) and "takes out"}  # fmt: skip
    assert {"async", "sync", "takes out"} <= seen
    assert ("stages" in seen) == ("ranks" not in parts)


@pytest.mark.skipif(not SGLANG.is_dir(), reason=f"no SGLang at {SGLANG} (make oracle)")
@pytest.mark.parametrize(
    ("parts", "numbers"),
    [
        (set(), (6, 8, 11, 13, 26, 28)),
        ({"window"}, range(4)),
        ({"states"}, range(4)),
    ],
    ids=["plain", "windows", "states"],
)
def test_installed_sglang_decides_random_cases_as_the_family_does(parts, numbers):
    """The whole logs are equal, with and without overlap, some of servers that retract."""
    seen = set()
    for number in numbers:
        config, rows = drawn_sglang(parts, f"1/{number}")
        rows = [trace_row({"ignore_eos": bool(config["ignore_eos"]), **row}) for row in rows]
        ours, theirs = both_logs(scenario_of(config), rows, SGLANG)
        assert theirs == ours, number
        seen |= {config["enable_overlap"], takes_out(ours) and "takes out"}
    assert {True, False, "takes out"} <= seen
