"""What differs between vLLM's versions (docs/explanation/vllm-versions.md).

Each field is one change. Its comment names the modules of vLLM, below `vllm/`, where it was made.
"""

from dataclasses import dataclass, replace
from typing import Final

from sim.core.declared import entry_for

NEWEST: Final = "0.33.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmRules:
    """Rules and defaults of one version; the defaults here are those of the newest.

    Attributes:
        reuses_uncached_first: blocks without cached contents go to the front of the free queue when
            they are freed, so that cached ones last longer (`v1/core/block_pool.py`,
            `free_blocks`). Otherwise all go to its end.
        goes_on_after_self_preemption: under `priority`, the requests behind one that preempted
            itself are still scheduled, because it may have been less important than they are
            (`v1/core/sched/scheduler.py`, first loop). Otherwise the pass ends there.
        steps_back_for_any_victim: under `priority`, the pass moves its index back for every victim
            that stood before the request in need (the same loop). Otherwise only for one that had
            tokens, so that after another one a request is left out by mistake.
        spares_lone_request: `long_prefill_token_threshold` does not apply to the only request of a
            server, which nobody waits for (`schedule`, before its first loop).
        passes_over_victims_in_flight: a preempted request with a step in flight waits until the
            step has ended, and requests behind it may be admitted before it (`schedule`, second
            loop). Otherwise those behind it wait, too; see `sim.vllm.scheduler.waiting_pass`.
        async_draft_model: async scheduling is on by default with drafts of a small model, too
            (`config/vllm.py`). Otherwise it must be asked for.
        async_lookup: async scheduling goes with drafts of method `ngram`, which the second model
            runner looks up on the GPU (`config/vllm.py`, `VllmConfig.__post_init__`).
        speculates: speculative decoding and groups of layers are simulated.
        pads_new_rows: with speculative decoding, a request that lacks one token when it is admitted
            is padded to the length of rows with drafts (`schedule`, second loop).
        looks_ahead_at_admission: an admitted request gets places for the drafter's KV at once (the
            same loop). Otherwise with its next step.
        slots_by_row: a draft model takes a token of the budget for each row of a step (`schedule`).
            Otherwise `max_num_seqs` of each step (`config/vllm.py`).
        hashes_ahead: with EAGLE and MTP a block is found only if the token behind it is equal
            (`v1/core/kv_cache_utils.py`). Otherwise the last block found is computed again.
        caches_verified: blocks that a verified step fills are found as soon as its result is known
            (`update_from_output`). Otherwise only under async scheduling.
        keeps_blocks_in_flight: a block that a window has left is freed only when all steps in
            flight are done with it (`v1/core/kv_cache_manager.py`, `allocate_slots`). Otherwise
            they count as done.
        caps_admission: a request whose whole prompt must fit needs no more blocks for layers with
            windows than it ever holds at a time (`v1/core/single_type_kv_cache_manager.py`,
            `get_num_blocks_to_allocate`). Otherwise it needs them for the whole prompt.
        has_retention_interval: the setting `prefix_cache_retention_interval` exists, and is 0
            (`config/cache.py`). Otherwise blocks of layers with windows are all cached.
        retires_all_states: states that are not needed any more are freed wherever they are
            (`v1/core/single_type_kv_cache_manager.py`, `MambaManager`). Otherwise those before a
            gap stay until the request ends.
        takes_back_states: states are cached with drafts, too (`v1/core/
            single_type_kv_cache_manager.py`, `allocate_new_blocks` of `MambaManager`). Otherwise a
            server fails when drafts are rejected.
        stops_at_junctions: a chunk of a model with states ends where prompts were seen to part, and
            before the last token of the prompt (`_mamba_block_aligned_split` of `Scheduler`).
            Otherwise only at the ends of whole blocks.
        fills_batch_queue: in a pipeline, steps are decided until every place in the batch queue is
            taken, also behind a decision that scheduled nothing (`v1/engine/core.py`,
            `step_with_batch_queue`). Otherwise a result is taken in first then, or if the oldest
            step has ended.
        async_micro_batches: a pipeline has a micro-batch for each stage under async scheduling, too
            (`config/vllm.py`, `max_concurrent_batches`, with the second model runner). Otherwise
            all running requests are in every step then.
        ranks_by_requests: a rank is chosen by the requests that wait or run there, and by how full
            its pool is (`v1/engine/core_client.py`, `get_core_engine_for_request`). Otherwise by a
            sum in which a waiting request counts four times.
        steps_between_syncs: how often ranks ask each other whether any has work left
            (`config/parallel.py`, `dp_sync_interval`). Unit: steps.
        syncs_after_first_step: ranks ask each other after their first step, too, whether any has
            work left (`v1/engine/core.py`, `_has_global_unfinished_reqs`).
        limits_threshold: `long_prefill_token_threshold` may not exceed `max_model_len`
            (`config/scheduler.py`, `verify_max_model_len` and what follows it).
        hands_over: servers that only prefill, or only decode, are simulated.
        hands_over_parts: such servers are simulated with drafts, and have groups of layers.
        fences_blocks: under async scheduling, a decode server frees the blocks of a request only
            when the steps in flight with it have ended (`v1/core/sched/scheduler.py`,
            `_free_request_blocks`). Otherwise at once.
        reserves_for_loads: blocks for KV that is to be fetched leave room for what prompts in
            progress still need (`_inflight_prefill_reserved_blocks`). Otherwise they do not.
        holders_first: a decode server admits requests that have blocks before all others
            (`kv_holding_waiting`). Otherwise the policy `priority` orders both together, so that
            a request without blocks can keep one with blocks from running, for ever.
        looks_while_sending: a prefill server that has no other request looks for KV that has left
            (`has_requests`). Otherwise it does not before the next request.
        drops_victims_tokens: on a prefill server, a preempted request loses its token in flight,
            and its prompt is computed again (`requires_kv_delivery` of `distributed/kv_transfer/
            kv_connector/v1/base.py`). Otherwise the request ends with the token, without KV.
        kv_lease_s, kv_lease_extension_s: how long a prefill server keeps KV that nobody fetches,
            and how long a sign of life of the decode server extends this
            (`distributed/kv_transfer/kv_connector/v1/nixl/base_worker.py`). Unit: seconds.
        offloads: servers with KV in CPU memory are simulated.
        offloads_parts: groups of layers, tiers below CPU memory and the settings
            `offload_prompt_only` and `sync_load_budget_bytes` go with it
            (`distributed/kv_transfer/kv_connector/v1/offloading/config.py`).
        marks_drafters: a group of layers says that an EAGLE drafter's layers are in it
            (`v1/kv_cache_interface.py`, `is_eagle_group`). Otherwise all groups count as such.
        shares_latents: all GPUs of a server share one copy of a latent in CPU memory, and chunks
            fill whole pages there (`v1/kv_offload/cpu/spec.py`).
        ends_stores_by_copy: chunks are found in CPU memory when their copy has ended. What a
            request has computed last is stored after its end, when its blocks are free
            (`distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py`). Otherwise they are
            found when their request has ended, or is preempted, its last ones are not stored, and
            its blocks stay until all of its copies have ended.
        waits_for_stores: a waiting request waits for chunks that are being written, and for copies
            of its own (there, too). Otherwise such chunks are missing.
        offers_by_admission: requests offer chunks in order of admission, and all of them again
            after a preemption (there, too). Otherwise new ones first, and a chunk is offered once.
        counts_offers: `store_threshold` counts how often a chunk was offered (`v1/kv_offload/cpu/
            manager.py`). Otherwise how often it was looked up (`v1/kv_offload/reuse_manager.py`).
        ranks_by_request: which chunk leaves CPU memory depends on which requests used it
            (`v1/kv_offload/cpu/policies`). Otherwise on when any request did.
        loads_behind_steps: a copy from CPU memory waits for the step that was decided with it
            (`v1/worker/gpu/kv_connector.py`). Otherwise it begins with that step.
        gpu_memory_utilization: the default of this setting (`config/cache.py`).
        leaves_out_finishing: under async scheduling, a row whose last token is in flight is passed
            over; otherwise it computes another token, for nothing.
        async_scheduling: the default of this setting.
        async_pipeline: whether async scheduling goes with pipeline parallelism.
        reserves_full_isl: whether there is a setting `scheduler_reserve_full_isl`, on by default.
        front_end_per_rank: by default there are as many API servers as ranks (0.16.0 to 0.18.0 have
            this, too: `entrypoints/cli/serve.py`); otherwise there is one.
        is_known_whole: rules for priorities and for whole prompts are those of 0.19.0, too.
    """

    reuses_uncached_first: bool = True
    goes_on_after_self_preemption: bool = True
    steps_back_for_any_victim: bool = True
    spares_lone_request: bool = True
    passes_over_victims_in_flight: bool = True
    async_draft_model: bool = True
    async_lookup: bool = True
    speculates: bool = True
    pads_new_rows: bool = True
    looks_ahead_at_admission: bool = True
    slots_by_row: bool = True
    hashes_ahead: bool = True
    caches_verified: bool = True
    keeps_blocks_in_flight: bool = True
    caps_admission: bool = True
    has_retention_interval: bool = True
    retires_all_states: bool = True
    takes_back_states: bool = True
    stops_at_junctions: bool = True
    fills_batch_queue: bool = True
    async_micro_batches: bool = True
    ranks_by_requests: bool = True
    steps_between_syncs: int = 16
    syncs_after_first_step: bool = True
    limits_threshold: bool = True
    hands_over: bool = True
    hands_over_parts: bool = True
    fences_blocks: bool = True
    reserves_for_loads: bool = True
    holders_first: bool = True
    looks_while_sending: bool = True
    drops_victims_tokens: bool = True
    kv_lease_s: int = 30
    kv_lease_extension_s: int = 20
    offloads: bool = True
    offloads_parts: bool = True
    marks_drafters: bool = True
    shares_latents: bool = True
    ends_stores_by_copy: bool = True
    waits_for_stores: bool = True
    offers_by_admission: bool = True
    counts_offers: bool = True
    ranks_by_request: bool = True
    loads_behind_steps: bool = True
    gpu_memory_utilization: float = 0.92
    leaves_out_finishing: bool = True
    async_scheduling: bool = True
    async_pipeline: bool = True
    reserves_full_isl: bool = True
    front_end_per_rank: bool = True
    is_known_whole: bool = True


_RULES_0_19 = VllmRules(
    reuses_uncached_first=False,
    goes_on_after_self_preemption=False,
    steps_back_for_any_victim=False,
    spares_lone_request=False,
    passes_over_victims_in_flight=False,
    async_draft_model=False,
    async_lookup=False,
    pads_new_rows=False,
    looks_ahead_at_admission=False,
    slots_by_row=False,
    hashes_ahead=False,
    caches_verified=False,
    keeps_blocks_in_flight=False,
    caps_admission=False,
    has_retention_interval=False,
    retires_all_states=False,
    takes_back_states=False,
    stops_at_junctions=False,
    fills_batch_queue=False,
    async_micro_batches=False,
    ranks_by_requests=False,
    steps_between_syncs=32,
    syncs_after_first_step=False,
    limits_threshold=False,
    hands_over_parts=False,
    fences_blocks=False,
    reserves_for_loads=False,
    holders_first=False,
    looks_while_sending=False,
    drops_victims_tokens=False,
    kv_lease_s=480,
    kv_lease_extension_s=0,
    offloads_parts=False,
    marks_drafters=False,
    shares_latents=False,
    ends_stores_by_copy=False,
    waits_for_stores=False,
    offers_by_admission=False,
    counts_offers=False,
    ranks_by_request=False,
    loads_behind_steps=False,
    gpu_memory_utilization=0.9,
)
_RULES_0_14 = replace(
    _RULES_0_19,
    speculates=False,
    hands_over=False,
    offloads=False,
    async_pipeline=False,
    reserves_full_isl=False,
    front_end_per_rank=False,
)
_RULES_0_11 = replace(_RULES_0_14, async_scheduling=False)
_RULES_0_10 = replace(_RULES_0_11, leaves_out_finishing=False, is_known_whole=False)
VERSIONS = {
    NEWEST: VllmRules(),
    "0.19.0": _RULES_0_19,
    "0.14.0": _RULES_0_14,
    "0.11.2": _RULES_0_11,
    "0.10.2": _RULES_0_10,
}


def version_with_rules_of(version: str) -> str | None:
    """The key of VERSIONS for a server of this version; None for what is not a version."""
    return entry_for(version, {name: name for name in reversed(VERSIONS)})
