"""Every driver ends with an account: what is left over of a request is an error (INV-22)."""

from dataclasses import replace

import pytest

from sim.commands.running.simulate import deployment_of
from sim.core.errors import AccountError
from sim.core.request import Status
from sim.des.live import LiveServers
from sim.des.part import PartFailedError, simulate_part
from sim.des.run import RunOptions, simulate
from sim.engine.account import Account
from sim.engine.page_pool import PageCounts
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from tests.support.disaggregated import DISAGGREGATED, TOGETHER
from tests.support.listener import SilentListener
from tests.support.workloads import scripted

ONE = TOGETHER.partition("pools:")[0]
AUTOSCALE = "autoscale={rule: {kind: queue, target: 1}, max_replicas: 3, startup_s: 0}"
PULLED = [
    "scheduler={family: vllm, num_gpu_blocks_override: 4000}",
    "pools={p: {role: prefill}, d: {role: decode}}",
]
# The drivers and deployments, each with the options that make it.
DEPLOYMENTS = {
    "one server": (ONE, []),
    "replicas": (ONE, ["replicas=3"]),
    "ranks": (ONE, ["latency.dp=2"]),
    "stages": (ONE, ["latency={kind: roofline, pp: 2}", "model=llama-3.1-8b", "hardware=h100-sxm"]),
    "a fleet": (ONE, [AUTOSCALE]),
    "pools": (TOGETHER, []),
    "prefill and decode": (DISAGGREGATED, []),
    "prefill and decode, vllm": (DISAGGREGATED, PULLED),
}


def built(name):
    text, options = DEPLOYMENTS[name]
    return build(load_scenario_text(text, ["workload.num_requests=12", *options]))


def pool_that_lost_a_page(num_pages, page_size):
    pool = PageCounts(num_pages, page_size)
    pool.reserve(1)
    return pool


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_request_that_does_not_come_is_an_error(name):
    each = built(name)
    simulate(each.workload, deployment_of(each))
    one_more = replace(each.workload, num_requests=each.workload.num_requests + 1)
    said = r"12 requests arrived \(1 did not\): 12 finished, 0 rejected, 0 aborted, 0 without an"
    with pytest.raises(AccountError, match=said):
        simulate(one_more, deployment_of(each))


# Family vllm has numbered blocks of its own.
@pytest.mark.parametrize("name", [name for name in DEPLOYMENTS if "vllm" not in name])
def test_a_page_that_stays_is_an_error(name):
    each = built(name)
    with pytest.raises(AccountError, match="holds 16 tokens of KV for requests that ended"):
        simulate(each.workload, deployment_of(each), RunOptions(pool=pool_that_lost_a_page))


def test_a_part_of_a_run_ends_with_an_account():
    each = built("replicas")
    options = RunOptions(pool=pool_that_lost_a_page)
    with pytest.raises(PartFailedError) as failed:
        simulate_part(each.workload, deployment_of(each), [0, 1], options)
    assert isinstance(failed.value.error, AccountError)


@pytest.mark.parametrize("name", [name for name in DEPLOYMENTS if name != "a fleet"])
def test_live_servers_end_with_an_account(name):
    """It fails while a request is under way, and not when that has ended."""
    live = LiveServers(deployment_of(built(name)), SilentListener(), keeps_log=False)
    live.submit(scripted("a", (1, 100), output=5))
    with pytest.raises(AccountError, match=r"1 without an end \(a\)"):
        live.close()
    while live.next_ns is not None:
        live.advance(live.next_ns)
    live.close()


def test_account_names_some_of_the_requests_that_have_not_ended():
    account = Account()
    for number in range(5):
        account.arrived(f"r{number}")
    account.over("r1", Status.ABORTED)
    said = r"5 requests arrived \(0 did not\): .* 1 aborted, 4 without an end \(r0, r2, r3, ...\)"
    with pytest.raises(AccountError, match=said):
        account.close([])


def test_account_of_a_request_that_ends_twice_is_an_error():
    account = Account()
    account.arrived("a")
    account.over("a", Status.FINISHED)
    with pytest.raises(AccountError, match="a ended without an arrival, or a second time"):
        account.over("a", Status.FINISHED)


def test_an_error_that_is_made_anew_says_the_same():
    """SimPy makes an error of a process anew, from its class and its arguments."""
    error = AccountError("server 3 still has 1 requests (r7)")
    assert str(AccountError(*error.args)) == str(error)
    assert str(error).count("does not add up") == 1
