"""The servers that `make oracle` draws: any parts together that SGLang serves."""

from itertools import combinations

import pytest

from oracle.sglang.generate import draw_case, write_cases
from oracle.sglang.parts import PARTS, refusal
from sim.installed.inside.sglang.settings import DEFAULTS, server_arguments

SETS = [set(parts) for number in (1, 2, 3) for parts in combinations(PARTS, number)]
DRAWN = [parts for parts in SETS if refusal(parts) is None]


def name_of(parts):
    return "-".join(sorted(parts))


@pytest.mark.parametrize("parts", DRAWN, ids=name_of)
def test_drawn_server_has_its_parts_and_what_they_need(parts):
    """Ten cases of each: the parts are there, and SGLang's checks would let the server start."""
    for number in range(10):
        config, rows = draw_case(parts, f"1/{number}")
        config = DEFAULTS | config
        has = {
            "drafts": config["speculation"],
            "window": config["sliding_window"],
            "states": config["max_mamba_cache_size"],
            "host": config["hicache_write_policy"],
            "storage": config["hicache_storage_backend"],
            "prefill": config["disaggregation_mode"] == "prefill",
            "decode": config["disaggregation_mode"] == "decode",
            "stages": config["stages"] > 1,
            "ranks": config["ranks"] > 1,
        }
        assert {part for part, value in has.items() if value} == parts
        assert all(("partner" in row) == bool(parts & {"prefill", "decode"}) for row in rows)
        assert not (config["stages"] > 1 and config["enable_overlap"])
        assert not (config["hicache_write_policy"] and config["disable_radix_cache"])
        if parts >= {"decode", "drafts"} and not config["disable_radix_cache"]:
            assert config["speculation"]["algorithm"] in {"EAGLE", "EAGLE3", "NEXTN"}
        if parts >= {"ranks", "drafts"}:
            assert config["speculation"]["algorithm"] in {"EAGLE", "EAGLE3", "NEXTN"}
        if parts >= {"ranks", "storage"}:  # no transfer shares the bandwidth: it takes no time
            host_tokens = config["kv_pool_tokens"] * config["hicache_ratio"]
            assert host_tokens * config["store"]["read_s_per_token"] < 0.5e-9
        if config.get("mamba_radix_cache_strategy") == "no_buffer":
            assert (config["page_size"], config["enable_overlap"]) == (1, False)


def test_same_name_draws_the_same_case():
    """A case depends on its parts and its name alone; the order of the parts does not matter."""
    assert draw_case({"window", "host"}, "3/4") == draw_case({"host", "window"}, "3/4")
    assert draw_case({"window", "host"}, "3/4") != draw_case({"window", "host"}, "3/5")


def test_refused_servers_say_where_sglang_refuses_them():
    """A refusal names the parts and SGLang's function; an unknown part is named."""
    reason = refusal({"stages", "drafts"})
    assert reason is not None
    assert "drafts with stages" in reason
    assert "check_pipeline_parallel_compat" in reason
    assert refusal({"windows"}) == f"windows: not one of {', '.join(PARTS)}"


def test_arguments_of_a_server_are_those_of_its_parts():
    """Drafts and host memory on one server: both are among SGLang's arguments."""
    config, _ = draw_case({"host", "drafts"}, "1/0")
    arguments = server_arguments(DEFAULTS | config)
    assert arguments["speculative_algorithm"] == config["speculation"]["algorithm"]
    assert arguments["enable_hierarchical_cache"] is True
    assert "disaggregation_mode" not in arguments


def test_cases_are_written_as_two_files_each(tmp_path):
    """The configuration, and a line for each request."""
    write_cases({"prefill"}, tmp_path, 2, 1)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        f"{n:04d}.{kind}" for n in (0, 1) for kind in ("config.json", "workload.jsonl")
    ]
