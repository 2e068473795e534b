"""Launch commands of server pools: one for each pool, and SGLang's router before them."""

from sim.scenario.load import load_scenario_text
from sim.sweep.result_files import launches_of
from tests.support.disaggregated import DISAGGREGATED, TOGETHER

VLLM = "scheduler={family: vllm, num_gpu_blocks_override: 999}"


def launches(*changes, text=DISAGGREGATED):
    return launches_of(load_scenario_text(text, changes), {"pools.west.replicas": 1})


def test_each_pool_has_its_command_and_the_router_knows_all_servers():
    """Ports are those that both programs have by default."""
    east, west, decode, router = launches("pools.decode.router=random")
    assert east.server == "SGLang 0.5.23, pool east, 2 servers"
    assert east.command.endswith(" --max-total-tokens 50000 --disaggregation-mode prefill")
    assert " --max-total-tokens 20000 --disaggregation-mode prefill" in west.command
    assert west.server == "SGLang 0.5.23, pool west, 1 server"
    assert west.without_flag == ()
    # Two ranks of attention, each with its share of GPUs.
    assert decode.command.endswith("--tp-size 2 --attn-dp-size 2 --disaggregation-mode decode")
    assert router.command == (
        "python -m sglang_router.launch_router --pd-disaggregation"
        " --prefill http://east-0:30000 8998 --prefill http://east-1:30000 8998"
        " --prefill http://west-0:30000 8998 --decode http://decode-0:30000"
        " --decode http://decode-1:30000 --decode-policy random"
    )
    # sglang_router has no such policy.
    assert router.without_flag == ("prefill router=least-loaded",)


def test_each_role_s_router_without_a_flag_is_named():
    """Both may have the same policy."""
    *_, router = launches("pools.decode.router=least-loaded")
    assert router.without_flag == ("prefill router=least-loaded", "decode router=least-loaded")


def test_settings_of_a_search_are_flags_of_their_pool_alone():
    searched = {"pools.west.scheduler.schedule_policy": "fcfs", "scheduler.page_size": 16,
                "pools.decode.replicas": 2}  # fmt: skip
    east, west, decode, _ = launches_of(load_scenario_text(DISAGGREGATED), searched)
    assert "--schedule-policy" not in east.command + decode.command
    assert " --schedule-policy fcfs " in west.command
    assert all(" --page-size 16 " in each.command for each in (east, west, decode))
    assert not any(each.without_flag for each in (east, west, decode))


def test_servers_that_compute_whole_requests_have_no_role():
    old, new, router = launches(text=TOGETHER)
    assert "--disaggregation-mode" not in old.command + new.command
    assert router.command == (
        "python -m sglang_router.launch_router --worker-urls http://old-0:30000"
        " http://old-1:30000 http://new-0:30000 --policy round_robin"
    )


def test_servers_of_vllm_get_its_connector():
    """vLLM ships no router: its documentation has an example of a proxy."""
    own = ("pools.west.scheduler=null", "pools.decode.scheduler=null")
    each = launches(VLLM, *own)
    connector = """--kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"%s"}'"""
    roles = ("kv_producer", "kv_producer", "kv_consumer")
    assert len(each) == 3
    for one, role in zip(each, roles, strict=True):
        assert one.command.endswith(connector % role)


def test_a_scenario_without_pools_has_one_command():
    text = DISAGGREGATED.partition("pools:")[0]
    (launch,) = launches_of(load_scenario_text(text), {})
    assert "disaggregation" not in launch.command
