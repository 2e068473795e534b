"""Engines that are installed here decide in the simulator as the families do.

They are looked for where `make oracle` and `make oracle-vllm` put them, or in the folders that the
environment names.
"""

import os
from pathlib import Path
from random import Random

import pytest

from oracle.sglang.draw_plain import draw_config, draw_workload
from oracle.vllm.generate import write_cases
from sim.des.run import RunOptions
from tests.conftest import REPOSITORY
from tests.support.conformance import scenario_of, serve_scenario, trace_row
from tests.support.vllm_conformance import read_vllm_case, vllm_scenario_of

VLLM = Path(os.environ.get("SERVETWIN_VLLM", REPOSITORY / ".oracle-vllm-0.33.0"))
SGLANG = Path(os.environ.get("SERVETWIN_SGLANG", REPOSITORY / ".oracle-sglang-0.5.23"))


def both_logs(scenario, rows, engine, num_stages=1):
    """What the family decides, and what the engine does."""
    asking = scenario | {"scheduler": scenario["scheduler"] | {"engine": str(engine)}}
    return [
        serve_scenario(each, rows, RunOptions(check=True), num_stages=num_stages)
        for each in (scenario, asking)
    ]


def takes_out(log):
    """Whether some request was preempted or retracted."""
    return any(line.get("preempted") or line.get("retracted") for line in log)


@pytest.mark.skipif(not VLLM.is_dir(), reason=f"no vLLM at {VLLM} (make oracle-vllm)")
@pytest.mark.parametrize(
    "parts",
    [(), ("groups",), ("drafts", "stages")],
    ids=["plain", "groups of layers", "drafts"],
)
def test_installed_vllm_decides_random_cases_as_the_family_does(tmp_path, parts):
    """The whole logs are equal, also of asynchronous servers, of pipelines, and with preemption."""
    write_cases(tmp_path, 12, 77, "0.33.0", parts)
    seen = set()
    for path in sorted(tmp_path.glob("*.json")):
        case = read_vllm_case(path)
        stages = case.config["stages"]
        scenario = vllm_scenario_of(case.config)
        ours, theirs = both_logs(scenario, case.workload, VLLM, num_stages=stages)
        assert theirs == ours, path.stem
        seen |= {(case.config["async_scheduling"], stages > 1), takes_out(ours) and "takes out"}
    assert {(True, True), (True, False), (False, True), (False, False), "takes out"} <= seen


@pytest.mark.skipif(not SGLANG.is_dir(), reason=f"no SGLang at {SGLANG} (make oracle)")
def test_installed_sglang_decides_random_cases_as_the_family_does():
    """The whole logs are equal, with and without overlap, some of servers that retract."""
    seen = set()
    for number in (6, 8, 11, 13, 26, 28):
        rng = Random(f"1/{number}")
        config = draw_config(rng)
        rows = [
            trace_row({"ignore_eos": bool(config["ignore_eos"]), **row})
            for row in draw_workload(rng, config)
        ]
        ours, theirs = both_logs(scenario_of(config), rows, SGLANG)
        assert theirs == ours, number
        seen |= {config["enable_overlap"], takes_out(ours) and "takes out"}
    assert {True, False, "takes out"} <= seen
