"""Servers that only prefill, or only decode, by hand: blocks of 16 tokens, steps of 1 ms."""

import pytest

from sim.core.errors import InputError
from sim.core.request import Status
from sim.scenario.load import load_scenario_text
from sim.vllm.version_rules import VERSIONS


class Partner:
    """Notes what a server says."""

    def __init__(self):
        self.allocations, self.computed_rids = [], []

    def allocated(self, rid, num_cached_tokens):
        self.allocations.append((rid, num_cached_tokens))

    def computed(self, rid, num_tokens, *, is_last, from_ns=0):
        assert is_last
        self.computed_rids.append((rid, num_tokens))


@pytest.fixture
def make(make_server):
    def made(role, num_blocks=8, **settings):
        server = make_server(role=role, num_gpu_blocks=num_blocks + 1, block_size=16, **settings)
        server.partner = server.engine.role.partner = Partner()
        return server

    return made


# ---- prefill -------------------------------------------------------------------------------------


def test_prefill_blocks_stay_until_they_have_left(make):
    """The request's record comes when they have; it has one token."""
    server = make("prefill")
    server.add("a", 40)
    assert server.step() == {"a": 40}
    assert server.partner.computed_rids == [("a", 40)]
    assert server.num_free_blocks == 5
    assert not server.records
    server.engine.role.sent("a")
    (record,) = server.engine.begin_step(2_000_000).over
    assert (record.output_tokens, record.status) == (1, Status.FINISHED)
    assert server.num_free_blocks == 8
    assert not server.engine.requests


def test_prefill_request_waits_for_blocks_that_are_being_sent(make):
    server = make("prefill")
    server.add("a", 100)
    server.add("b", 60)
    assert server.step() == {"a": 100}
    assert server.step() == {}
    assert server.engine.num_waiting == 0  # nothing to decide before something happens
    server.engine.role.sent("a")
    assert server.step() == {}  # the workers look
    assert server.step() == {"b": 60}


def test_prefill_seat_is_free_while_blocks_are_sent(make):
    server = make("prefill", max_num_seqs=1)
    server.add("a", 20)
    server.add("b", 20)
    assert server.step() == {"a": 20}
    assert server.step() == {"b": 20}


def test_prefill_prefix_is_found_while_its_blocks_are_sent(make):
    server = make("prefill")
    server.add("a", (1, 32), 8)
    server.add("b", (1, 32), 9)
    server.step()
    server.engine.role.sent("a")
    server.step()
    assert server.cached("b") == 32


def test_prefill_lost_kv_stays_for_30_s(make):
    """Its lease; the decode server cannot say that it does not want it."""
    server = make("prefill")
    server.add("a", 40)
    server.step()
    server.engine.role.transfer_failed("a")
    server.step()
    assert server.decide() == {}
    assert server.decided.wakes_ns == 30_001_000_000
    server.engine.role.dismiss("a")
    assert server.decide() == {}
    assert server.num_free_blocks == 5
    server.engine.begin_step(30_001_000_000)
    assert server.num_free_blocks == 8


def test_prefill_dismissed_request_gives_its_blocks_back(make):
    server = make("prefill")
    server.add("a", 40)
    server.step()
    server.engine.role.dismiss("a")
    server.step()
    assert server.num_free_blocks == 8


def test_prefill_client_that_gives_up_leaves_blocks_to_the_decode_server(make):
    server = make("prefill")
    server.add("a", 40)
    server.step()
    server.engine.give_up("a")
    server.step()
    assert server.num_free_blocks == 5


@pytest.mark.parametrize(("version", "ended"), [("0.19.0", ["b"]), ("0.33.0", [])])
def test_prefill_victim_ends_with_its_token_in_flight_in_0_19(make, version, ended):
    """Its KV is gone: the other server hears of nothing. 0.33.0 computes the prompt again."""
    server = make(
        "prefill", num_blocks=3, max_model_len=48, version=version, async_scheduling=True,
        long_prefill_token_threshold=32, scheduler_reserve_full_isl=False,
        max_num_batched_tokens=64,
    )  # fmt: skip
    server.add("a", 47)
    server.add("b", 16)
    assert server.step_ahead() == {"a": 32, "b": 16}
    assert server.step_ahead() == {"a": 15}
    assert server.preempted == [("a", "b")]
    assert list(server.records) == ended
    assert all(record.output_tokens == 1 for record in server.records.values())
    assert not server.partner.computed_rids


# ---- decode --------------------------------------------------------------------------------------


def test_decode_whole_prompt_has_blocks_before_any_step(make):
    server = make("decode")
    server.add("a", 40, output=3)
    assert server.step() == {}
    assert server.partner.allocations == [("a", 0)]
    assert server.num_free_blocks == 5
    assert server.engine.num_waiting == 0
    server.engine.role.received("a")
    server.step()
    assert [server.step() for _ in range(3)] == [{"a": 1}, {"a": 1}, {"a": 1}]
    assert server.records["a"].output_tokens == 3
    assert server.num_free_blocks == 8


def test_decode_cached_blocks_are_not_fetched(make):
    server = make("decode")
    server.add("a", (1, 32), 8, output=1)
    server.step()
    server.engine.role.received("a")
    server.finish()
    server.add("b", (1, 32), 9, output=1)
    server.step()
    assert server.partner.allocations == [("a", 0), ("b", 32)]


def test_decode_blocks_are_found_when_their_kv_is_there(make):
    """Not before: b, which comes while a's KV is on its way, finds nothing."""
    server = make("decode")
    for rid in "ab":
        server.add(rid, (1, 32), 8, output=9)
        server.step()
    assert server.partner.allocations == [("a", 0), ("b", 0)]
    server.engine.role.received("a")
    server.step()
    server.step()
    server.add("c", (1, 32), 8, output=9)
    server.step()
    assert server.partner.allocations[-1] == ("c", 32)


def test_decode_kv_that_comes_during_a_step_waits_for_the_next_result(make):
    """The workers look when a step is launched; its result says what they saw."""
    server = make("decode")
    for rid in "ab":
        server.add(rid, 10, output=9)
    server.step()
    server.engine.role.received("a")
    server.step()
    assert server.decide() == {"a": 1}
    server.engine.role.received("b")
    server.land()
    assert server.step() == {"a": 1}
    assert server.step() == {"b": 1, "a": 1}


def test_decode_blocks_of_a_request_that_is_gone_stay_until_its_transfer_ends(make):
    server = make("decode")
    server.add("a", 40)
    server.step()
    server.engine.give_up("a")
    server.step()
    assert not server.engine.requests
    assert server.num_free_blocks == 5
    assert server.engine.knows("a")
    server.engine.role.received("a")
    server.step()
    assert server.num_free_blocks == 8
    assert not server.engine.knows("a")


def test_decode_lost_kv_ends_the_request(make):
    server = make("decode")
    server.add("a", 40)
    server.step()
    server.engine.role.transfer_failed("a")
    (record,) = server.engine.begin_step(1_000_000).over
    assert record.status is Status.ABORTED
    assert server.num_free_blocks == 8


def test_decode_lost_kv_is_computed_here(make):
    server = make("decode", kv_load_failure_policy="recompute")
    server.add("a", 40, output=2)
    server.step()
    server.engine.role.transfer_failed("a")
    server.step()
    assert [server.step() for _ in range(2)] == [{"a": 40}, {"a": 1}]
    assert server.partner.allocations == [("a", 0)]


def test_decode_victim_is_computed_here(make):
    """Its prompt and what it had generated; the prefill server has long forgotten it."""
    server = make("decode", num_blocks=4, max_model_len=64, enable_prefix_caching=False)
    for rid in "ab":
        server.add(rid, 31, output=20)
    server.step()
    for rid in "ab":
        server.engine.role.received(rid)
    server.step()
    assert [server.step() for _ in range(2)] == [{"a": 1, "b": 1}] * 2
    assert server.step() == {"a": 1}
    assert server.preempted == [("a", "b")]
    while "b" not in (row := server.step()):
        pass
    assert row == {"b": 33}
    assert server.partner.allocations == [("a", 0), ("b", 0)]


def test_decode_row_in_flight_is_not_preempted(make):
    """Under async scheduling: rows without a place rest until their step has ended."""
    settings = {"num_blocks": 4, "max_model_len": 64, "enable_prefix_caching": False}
    server = make("decode", async_scheduling=True, **settings)
    for rid in "ab":
        server.add(rid, 31, output=20)
    server.step()
    for rid in "ab":
        server.engine.role.received(rid)
    rows = []
    while not server.engine.scheduler.admitted or not server.preempted:
        rows.append(server.step_ahead())
    # With token 33 a lacks a block. b is in the step in flight: neither gets a token.
    assert rows[-4:] == [{"a": 1, "b": 1}, {"a": 1, "b": 1}, {}, {"a": 1}]
    assert server.preempted == [("a", "b")]


def test_decode_load_leaves_room_for_prompts_in_progress(make):
    settings = {"num_blocks": 6, "max_num_batched_tokens": 16, "max_num_seqs": 4}
    server = make("decode", kv_load_failure_policy="recompute", **settings)
    server.add("a", 64, output=2)
    server.step()
    server.engine.role.transfer_failed("a")
    server.step()
    server.add("b", 48, output=2)
    assert server.step() == {"a": 16}  # three blocks of the five free ones are still a's
    assert server.partner.allocations == [("a", 0)]


def test_decode_request_without_blocks_does_not_block_one_that_has_some(make):
    """vLLM would wait for ever: a, whose KV was lost, does not fit beside b, which is behind it."""
    server = make(
        "decode", num_blocks=6, max_num_batched_tokens=64, kv_load_failure_policy="recompute",
        enable_chunked_prefill=False, max_model_len=64, max_num_seqs=2,
    )  # fmt: skip
    server.add("a", 60, output=2)
    server.add("b", 20, output=30)
    server.add("c", 10, output=2)
    server.step()
    server.engine.role.received("b")
    server.step()
    server.engine.role.transfer_failed("a")
    for _ in range(50):
        server.step()
        if ("c", 0) in server.partner.allocations and "c" in server.engine.requests:
            server.engine.role.received("c")
    assert sorted(server.records) == ["a", "b", "c"]


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            'version: "0.19.0", speculative_config: {method: ngram, num_speculative_tokens: 2}',
            (
                "scheduler.speculative_config: of vLLM 0.19.0 is not simulated on servers of role"
                " decode"
            ),
        ),
        (
            'version: "0.19.0", kv_cache_groups: [{kind: sliding_window, sliding_window: 64}]',
            (
                "scheduler.kv_cache_groups: vLLM 0.19.0 turns groups of layers off with a KV"
                " connector (disable_hybrid_kv_cache_manager, config/vllm.py)"
            ),
        ),
        (
            (
                "speculative_config: {method: eagle, num_speculative_tokens: 2}, kv_cache_groups:"
                " [{kind: chunked_local_attention, attention_chunk_size: 64}]"
            ),
            (
                "scheduler.kv_cache_groups: vLLM refuses kind chunked_local_attention with drafts"
                " of method eagle and a KV connector, unless another group has has_drafter:"
                " ChunkedLocalAttentionManager, v1/core/single_type_kv_cache_manager.py"
            ),
        ),
        (
            'version: "0.14.0"',
            "scheduler.version: vLLM 0.14.0 is not simulated on servers of role decode",
        ),
        (
            'version: "0.19.0", scheduling_policy: priority',
            (
                "scheduler.scheduling_policy: priority: decode servers of vLLM 0.19.0 can wait for"
                " ever with it"
            ),
        ),
    ],
)
def test_roles_settings_that_are_not_simulated_are_refused(keys, message):
    text = (
        "name: x\nlatency: {kind: linear, step_s: 0.01, per_prefill_token_s: 0,"
        " per_decode_request_s: 0, per_context_token_s: 0}\n"
        "workload: {kind: trace, format: servetwin, path: x}\n"
        f"scheduler: {{family: vllm, num_gpu_blocks_override: 99, {keys}}}\n"
    )
    text += "acceptance: {rate: 0.5}\n" if "speculative" in keys else ""
    section = load_scenario_text(text).scenario.scheduler
    with pytest.raises(InputError) as caught:
        section.with_role(section.config(98 * 16), "decode", None)
    assert str(caught.value) == message


def test_roles_versions_before_0_19_have_none():
    assert [name for name, rules in VERSIONS.items() if rules.hands_over] == ["0.33.0", "0.19.0"]
