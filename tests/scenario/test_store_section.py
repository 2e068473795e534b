"""The sections store and scheduler.host_cache.storage: settings, presets, errors."""

import json

import pytest

from sim.core.errors import InputError
from sim.engine.store import StoreSettings
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from tests.support.scheduler_settings import build_scheduler_config

SPEEDS = {"read_tokens_per_s": 1e6, "write_tokens_per_s": 5e5}
HOST = {"load_tokens_per_s": 1e6, "storage": {}}


def loaded(valid_text, store, *overrides, host=HOST):
    sections = [f"store={json.dumps(store)}", f"scheduler.host_cache={json.dumps(host)}"]
    return load_scenario_text(valid_text, [*sections, *overrides])


def storage_of(valid_text, store, *overrides, **keys):
    found = loaded(valid_text, store, *overrides, host={**HOST, "storage": keys})
    return build_scheduler_config(found.scenario).host_cache.storage


def error_line(valid_text, store, *overrides, host=HOST):
    text = f"{valid_text}  host_cache: {json.dumps(host)}\nstore: {json.dumps(store)}\n"
    with pytest.raises(InputError) as caught:
        build(load_scenario_text(text, overrides))
    return str(caught.value)


def test_store_settings_are_those_of_its_pages(valid_text):
    """Pages of 16 tokens at 1,000 and 2,000 ns a token."""
    store = {**SPEEDS, "capacity_tokens": 1000, "lookup_s": 1e-3, "pages_at_once": 1}
    assert storage_of(valid_text, store).store == StoreSettings(
        capacity_pages=62,
        lookup_ns=1e6,
        read_ns_per_page=16_000.0,
        write_ns_per_page=32_000.0,
        pages_at_once=1,
    )


def test_storage_times_out_after_sglangs_times(valid_text):
    """A second, and a quarter of one for 1,024 tokens; or what is given."""
    usual = storage_of(valid_text, SPEEDS)
    assert (usual.prefetch_policy, usual.prefetch_threshold) == ("timeout", 256)
    assert (usual.timeout_ns, usual.timeout_ns_per_page * 64) == (1e9, 0.25e9)
    given = storage_of(valid_text, SPEEDS, prefetch_timeout_base=2, prefetch_retry_max_attempts=3)
    assert (given.timeout_ns, given.most_lookups) == (2e9, 3)


def test_store_preset_takes_the_bytes_of_the_model(valid_text):
    """llama-3.1-8b has 131,072 bytes a token; keys replace a preset's, also in tokens."""
    model = "model=llama-3.1-8b"
    store = storage_of(valid_text, "nvme", model).store
    assert store.read_ns_per_page == pytest.approx(16 * 131_072 / 6.8)
    assert store.write_ns_per_page == pytest.approx(16 * 131_072 / 5.6)
    replaced = storage_of(valid_text, {"preset": "dram-pool", **SPEEDS, "capacity_gb": 1}, model)
    assert replaced.store.read_ns_per_page == 16_000.0
    assert replaced.store.capacity_pages == int(1e9 / 131_072) // 16


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        ({}, "store: needs read_bandwidth_gb_s or read_tokens_per_s, or a preset"),
        ("nvm", "store: unknown store preset 'nvm' (did you mean nvme?)"),
        ("nvme", "store.read_bandwidth_gb_s: needs a model whose shape is known"),
        (SPEEDS | {"capacity_tokens": 8},
         "store.capacity_tokens: makes room for 8 tokens, less than a page's 16"),
        (SPEEDS | {"capacity_tokens": 100, "capacity_gb": 1},
         "store: capacity_gb and capacity_tokens set the same size: give one of them, not both"),
        (SPEEDS | {"read_bandwidth_gb_s": 3},
         ("store: read_bandwidth_gb_s and read_tokens_per_s set the same speed: give one of them,"
          " not both")),
        (SPEEDS | {"failed_read_share": 2}, "store.failed_read_share: must be at most 1, got 2"),
        (SPEEDS | {"looks_s": 2}, "store.looks_s: unknown key (did you mean lookup_s?)"),
    ],
)  # fmt: skip
def test_store_bad_section_is_one_line(valid_text, store, reason):
    message = error_line(valid_text, store)
    assert message.endswith(reason)
    assert "\n" not in message


def test_storage_is_for_servers_of_each_role(valid_text):
    """A pool without storage has no use for the store, and may be beside one that has."""
    text = f"{valid_text}store: {json.dumps(SPEEDS)}\ntransfer: {{bandwidth_gb_s: 50}}\n"

    def built(using):
        pools = {name: {"role": name, "replicas": 1} for name in ("prefill", "decode")}
        keys = {"host_cache": HOST, "disaggregation_decode_enable_radix_cache": True}
        pools[using]["scheduler"] = keys
        transfer = ["transfer.bytes_per_token=1000"]
        return build(load_scenario_text(f"{text}pools: {json.dumps(pools)}\n", transfer))

    for role, other in (("prefill", "decode"), ("decode", "prefill")):
        pools = built(role).pools
        assert pools[role].scheduler.host_cache.storage is not None
        assert pools[other].scheduler.host_cache is None


@pytest.mark.parametrize(
    ("store", "host"),
    [(None, HOST), (SPEEDS, {"load_tokens_per_s": 1e6})],
)
def test_store_and_storage_need_each_other(valid_text, store, host):
    message = error_line(valid_text, store, host=host)
    assert message.endswith("store and scheduler.host_cache.storage need each other")
