"""KV in CPU memory: what the workers of vLLM's OffloadingConnector do, in virtual time.

`OffloadingConnector`, its manager and its policies are vLLM's own. The worker that copies between
the GPU and CPU memory is replaced: each direction makes one copy at a time, each as long as its
blocks take (`copy_ns_per_block` of the case). A copy waits for the steps that were launched before
it. Stores are given to the GPU when the next step begins, loads when their own step is launched.
"""

from collections import deque
from types import SimpleNamespace
from typing import Any

from vllm.v1.outputs import KVConnectorOutput

from oracle.vllm.load import has_limits
from oracle.vllm.simple import is_simple, simple_config
from sim.installed.inside.vllm.groups import cache_groups

Config = dict[str, Any]

_PAGE = 4096
_DETECTOR = "vllm.v1.kv_offload.tiering.backpressure.EMABackpressureDetector"
_POLICY = "vllm.v1.kv_offload.tiering.backpressure."
_POLICIES = {"throttle": "ThrottledDropPolicy", "drop": "DropStorePolicy"}


def offload_config(config: Config) -> Config:
    """Settings of vLLM's connector, with room for the case's number of chunks."""
    offload = config["offload"]
    if is_simple(config):
        return simple_config(config)
    if not has_limits(config["version"]):
        return _old_config(config)
    # As vLLM adds them up where it knows no tensors.
    groups = cache_groups(config)["kv_cache_groups"]
    num_bytes = sum(group.kv_cache_spec.page_size_bytes for group in groups)
    # As vLLM rounds them down, for each group.
    token_bytes = sum(
        group.kv_cache_spec.page_size_bytes // group.kv_cache_spec.block_size for group in groups
    )
    chunk_bytes = -(-num_bytes * offload["blocks_per_chunk"] // _PAGE) * _PAGE
    names = "eviction_policy", "blocks_per_chunk", "store_threshold", "offload_prompt_only"
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "cpu_bytes_to_use": offload["num_chunks"] * chunk_bytes,
            "sync_load_budget_bytes": offload.get("sync_load_tokens", 0) * token_bytes,
            **{name: offload[name] for name in names},
            **_tier_config(config),
        },
    }


def tiers_in(config: Config) -> list[Config]:
    """The tiers of a case, in the order in which vLLM asks them."""
    offload = config["offload"]
    return [offload["tier"], *offload.get("more_tiers", ())]


def _tier_config(config: Config) -> Config:
    """What `kv_connector_extra_config` says of tiers, whose directories are in `root_dir`."""
    if "tier" not in config["offload"]:
        return {}
    root_dir = config["root_dir"]
    tiers = [_one_tier(tier, f"{root_dir}/{i}") for i, tier in enumerate(tiers_in(config))]
    return {"spec_name": "TieringOffloadingSpec", "secondary_tiers": tiers}


def _one_tier(tier: Config, root_dir: str) -> Config:
    found = {"type": tier["type"]}
    if tier["type"] == "fs":
        found["root_dir"] = root_dir
        found |= {name: tier[name] for name in ("n_read_threads", "n_write_threads")}
    else:
        found["store_config"] = {"bucket": "here", "endpoint_override": "here"}
    if tier.get("locality"):
        found["locality"] = tier["locality"]
    if tier.get("backpressure") is not None:
        given = {
            name: value if isinstance(value, int) else float(value)
            for name, value in tier["backpressure"].items()
            if name != "policy"
        }
        policy = _POLICY + _POLICIES[tier["backpressure"]["policy"]]
        found["backpressure"] = {"backpressure_cls": _DETECTOR, "policy_cls": policy, **given}
    return found


def tiers_of(config: Config, engine: Any, disks: Any = None) -> Any:
    """The tiers of a case's server, or of a rank of it; None: it has none.

    `disks`: those of the ranks before.
    """
    if "tier" not in config.get("offload", {}):
        return None
    from oracle.vllm.tiers import Tiers

    return Tiers(config, engine, disks)


def _old_config(config: Config) -> Config:
    """The same for versions before 0.33.0."""
    offload, block_size = config["offload"], config["block_size"]
    spec = cache_groups(config)["kv_cache_groups"][0].kv_cache_spec
    chunk_bytes = spec.page_size_bytes * offload["blocks_per_chunk"]
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "cpu_bytes_to_use": offload["num_chunks"] * chunk_bytes,
            "block_size": offload["blocks_per_chunk"] * block_size,
            "eviction_policy": offload["eviction_policy"],
            "store_threshold": offload["store_threshold"],
        },
    }


def add_settings(config: Config, whole: Any) -> None:
    """What the connector reads of the engine's settings besides: one GPU, with nothing special."""
    cache = whole.cache_config
    cache.prefix_match_unit = cache.kv_cache_layout = cache.simple_cpu_offload_num_blocks = None
    cache.prefix_cache_retention_interval = config.get("prefix_cache_retention_interval", 0)
    cache.cache_dtype = "auto"
    whole.scheduler_config.disable_hybrid_kv_cache_manager = True
    whole.attention_config = SimpleNamespace(hisparse_config=None)
    model, parallel = whole.model_config, whole.parallel_config
    model.model, model.dtype, model.use_mla = "model", "float32", False
    model.get_total_num_kv_heads = lambda: 1
    parallel.rank = parallel.data_parallel_rank_local = 0
    parallel.world_size = parallel.nnodes_within_dp = 1
    parallel.distributed_executor_backend = "uni"


def keep_order(scheduler: Any) -> None:
    """Let requests that have ended be seen in the order of their ends; vLLM has a set of them."""
    ended: list[str] = []
    finish, build = scheduler._connector_finished, scheduler._build_kv_connector_meta

    def finish_and_note(request: Any) -> Any:
        ended.append(request.request_id)
        return finish(request)

    def build_in_order(connector: Any, decided: Any) -> Any:
        decided.finished_req_ids = [rid for rid in ended if rid in decided.finished_req_ids]
        ended.clear()
        return build(connector, decided)

    scheduler._connector_finished = finish_and_note
    scheduler._build_kv_connector_meta = build_in_order


class _Link:
    """One direction: copies with their end times, in order."""

    def __init__(self, ns_per_block: float) -> None:
        self._ns_per_block = ns_per_block
        self.jobs: deque[tuple[int, int]] = deque()
        self._free_ns = 0

    def submit(self, job_id: int, num_blocks: int, after_ns: int) -> None:
        begin_ns = max(after_ns, self._free_ns)
        self._free_ns = begin_ns + round(num_blocks * self._ns_per_block)
        self.jobs.append((self._free_ns, job_id))


class OffloadWorkers:
    """Stands in for the worker of one server."""

    def __init__(self, config: Config) -> None:
        self.role: str | None = None
        ns_per_block = float(config["offload"]["copy_ns_per_block"])
        self._stores, self._loads = _Link(ns_per_block), _Link(ns_per_block)
        self._sync_loads = _Link(ns_per_block)
        self._unsubmitted: list[tuple[int, int]] = []
        # Of each load, by its job.
        self._rid_of: dict[int, str] = {}

    @property
    def next_ns(self) -> int | None:
        """When the next copy ends."""
        links = self._stores, self._loads, self._sync_loads
        return min([link.jobs[0][0] for link in links if link.jobs], default=None)

    def begin(self, decided: Any, _scripts: object, now_ns: int, device_free_ns: int) -> int:
        """`handle_preemptions`: returns when the worker launches the step."""
        meta = decided.kv_connector_metadata
        for job_id in meta.jobs_to_flush or ():
            entry = meta.store_jobs.pop(job_id, None)
            if entry is not None:
                self._unsubmitted.append((job_id, len(entry.src_spec.block_ids)))
        for job_id, num_blocks in self._unsubmitted:
            self._stores.submit(job_id, num_blocks, max(now_ns, device_free_ns))
        self._unsubmitted = []
        awaited = meta.jobs_to_flush or ()
        ends = [end_ns for end_ns, job_id in self._stores.jobs if job_id in awaited]
        return self._load_first(meta, max([now_ns, *ends]), device_free_ns)

    def _load_first(self, meta: Any, now_ns: int, device_free_ns: int) -> int:
        """`_start_load_kv` of `pre_forward`: with loads that the step waits for, all begin."""
        jobs = list(meta.load_jobs.items())
        if not any(job.sync for _, job in jobs):
            return now_ns
        after_ns = max(now_ns, device_free_ns)
        for job_id, job in jobs:
            link = self._sync_loads if job.sync else self._loads
            link.submit(job_id, len(job.dst_spec.block_ids), after_ns)
            if not job.sync:
                self._rid_of[job_id] = job.req_id
        return self._sync_loads.jobs[-1][0]

    def launched(self, decided: Any, now_ns: int, device_free_ns: int) -> bool:
        """`start_kv_transfers` and `prepare_store_kv`, when the step is launched.

        Returns whether the next step, or one without work, has something to do for it.
        """
        meta = decided.kv_connector_metadata
        is_loading = any(job.sync for job in meta.load_jobs.values())
        for job_id, job in () if is_loading else meta.load_jobs.items():
            self._rid_of[job_id] = job.req_id
            num_blocks = len(job.dst_spec.block_ids)
            self._loads.submit(job_id, num_blocks, max(now_ns, device_free_ns))
        for job_id, job in meta.store_jobs.items():
            self._unsubmitted.append((job_id, len(job.src_spec.block_ids)))
        return bool(meta.load_jobs or self._unsubmitted)

    def report(self, now_ns: int) -> KVConnectorOutput | None:
        """What has ended until now; reported once. Lists, not sets, as in `handover.py`."""
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
            OffloadingWorkerMetadata,
        )

        meta, loaded = OffloadingWorkerMetadata(), []
        for link in (self._stores, self._loads, self._sync_loads):
            while link.jobs and link.jobs[0][0] <= now_ns:
                _, job_id = link.jobs.popleft()
                meta.mark_completed(job_id)
                if job_id in self._rid_of:
                    loaded.append(self._rid_of.pop(job_id))
        if not meta.completed_jobs:
            return None
        return KVConnectorOutput(finished_recving=loaded, kv_connector_worker_meta=meta)
