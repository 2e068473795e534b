"""Drives SGLang's prefill server or its decode server alone; needs SGLang's environment.

SGLang's own classes hold the queues and decide. `partner` stands in for the other server and the
transfers. The order within a loop is that of `event_loop_normal_disagg_prefill`,
`event_loop_overlap_disagg_prefill` (disaggregation/prefill.py), `event_loop_normal_disagg_decode`
and `event_loop_overlap_disagg_decode` (disaggregation/decode.py). An idle server makes passes until
one has looked at all transfers and changed nothing; then it waits for what happens next.
"""

from collections import deque
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from oracle.sglang.host import keep_host_memory
from oracle.sglang.live import add_server_args, gives_up_s
from oracle.sglang.partner import Partner, Receiver, Sender

# `handle_pd_disaggregation` of arg_groups/pd_disaggregation_hook.py: servers of more running
# requests have no extra rows for requests in transfer.
_SMALL_BATCH = 32
_PASSED_ON = ("num_reserved_decode_tokens", "disaggregation_decode_polling_interval")


class ForwardEnd:
    """Stands in for `torch.cuda.Event`: the end of the forward that runs when it is recorded."""

    forward_free_s = 0.0

    def __init__(self, **_: Any) -> None:
        self.time_s = 0.0

    def record(self, *_: Any) -> None:
        self.time_s = self.forward_free_s


class Quiet:
    """Accepts any call."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None


def use_apart(harness: ModuleType, config: dict[str, Any]) -> None:
    """Make `build_scheduler` of the harness build a server of the config's `disaggregation_mode`.

    Keys of the configuration, for a decode server: `num_reserved_decode_tokens`,
    `disaggregation_decode_polling_interval`, `disaggregation_decode_retraction_backup`,
    `disaggregation_decode_extra_slots` and, with a host pool, `hicache_ratio` (null: SGLang's
    default). Its radix cache is on unless `disable_radix_cache`.
    """
    role, build = config["disaggregation_mode"], harness.build_scheduler
    cached = role == "decode" and not config["disable_radix_cache"]
    settings = {
        "disaggregation_mode": role,
        "disaggregation_transfer_backend": "mooncake",
        "disaggregation_decode_enable_radix_cache": cached,
        "disaggregation_decode_retraction_backup": config.get(
            "disaggregation_decode_retraction_backup", "cpu_tensor"
        ),
    }
    add_server_args(settings | {key: config[key] for key in _PASSED_ON if key in config})
    if settings["disaggregation_decode_retraction_backup"] == "host_pool":
        _use_host_pool(harness, config)
        build = harness.build_scheduler
    _one_process()

    def build_apart(given: dict[str, Any]) -> Any:
        from sglang.srt.disaggregation import decode, prefill
        from sglang.srt.disaggregation.decode import DecodeReqToTokenPool
        from sglang.srt.disaggregation.utils import DisaggregationMode, KVClassType
        from sglang.srt.mem_cache import memory_pool

        def rows(*, size: int, **more: Any) -> Any:
            return DecodeReqToTokenPool(size=size, pre_alloc_size=extra_slots(config), **more)

        pool = rows if role == "decode" else memory_pool.ReqToTokenPool
        with patch.object(memory_pool, "ReqToTokenPool", pool):
            scheduler = build(given)
        partner = scheduler.partner = Partner(None)
        ends = {KVClassType.SENDER: Sender, KVClassType.RECEIVER: Receiver}
        for module, queue in (
            (decode, decode.DecodePreallocQueue),
            (prefill, prefill.PrefillBootstrapQueue),
        ):
            module.get_kv_class = lambda _, kind: ends[kind]
            queue._init_kv_manager = lambda _: partner
        decode.CLIP_MAX_NEW_TOKEN = config["clip_max_new_tokens"]
        _add_parts(scheduler)
        scheduler.init_disaggregation()
        streamer = scheduler.output_streamer = SimpleNamespace(stream_output=None)
        scheduler.batch_result_processor = replace(
            scheduler.batch_result_processor,
            disaggregation_mode=DisaggregationMode(role),
            output_streamer=streamer,
        )
        partner.metadata = scheduler.disagg_metadata_buffers
        return scheduler

    harness.build_scheduler = build_apart


def _use_host_pool(harness: ModuleType, config: dict[str, Any]) -> None:
    """Give the tree host memory for retracted KV, as large as SGLang's own rule says."""
    add_server_args(
        {
            "enable_hierarchical_cache": False,
            "hicache_ratio": config["hicache_ratio"],
            "hicache_size": 0,
            "hicache_write_policy": "write_through",
            "hicache_io_backend": "direct",
            "hicache_mem_layout": "layer_first",
            "disaggregation_decode_host_receive_threshold": 1,
        }
    )

    def resolve(params: Any) -> None:
        from sglang.srt.mem_cache.kv_cache_builder import resolve_decode_retraction_backup

        pools = params.req_to_token_pool, params.token_to_kv_pool_allocator
        resolve_decode_retraction_backup(
            tp_worker=SimpleNamespace(get_memory_pool=lambda: pools, is_hybrid_swa=False)
        )

    keep_host_memory(harness, config, resolve)


def extra_slots(config: dict[str, Any]) -> int:
    """Rows for requests in transfer beside those of the running requests."""
    given = config.get("disaggregation_decode_extra_slots")
    most = config["max_running_requests"]
    return given if given is not None else (2 * most if most <= _SMALL_BATCH else 0)


def _one_process() -> None:
    import torch.distributed as dist
    from sglang.srt.runtime_context import get_parallel

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    group = SimpleNamespace(cpu_group=dist.group.WORLD)
    get_parallel().override_permanently(pp_rank=0, attn_tp_group=group, attn_cp_group=group)


def _add_parts(scheduler: Any) -> None:
    """Make what a server has, and the harness leaves out because nothing else needs it."""
    import torch
    import torch.distributed as dist

    torch.cuda.Event = ForwardEnd
    scheduler.attn_tp_cpu_group = scheduler.attn_cp_cpu_group = dist.group.WORLD
    scheduler.random_seed = 0
    scheduler.enable_decode_hicache = False
    scheduler.server_args = SimpleNamespace(sampling_mask_max_tokens=0)
    scheduler.model_config.hf_config = SimpleNamespace(architectures=None)
    scheduler.future_map = scheduler.schedule_stream = scheduler.forward_stream = Quiet()
    scheduler.tp_worker.is_hybrid_swa = False
    runner = scheduler.tp_worker.model_runner
    runner.effective_logical_max_total_num_tokens = scheduler.max_total_num_tokens


def apart_oracle(driver: type) -> type:
    """The driver of `live`, for cases with `disaggregation_mode`."""

    def make(config: dict[str, Any], workload: list[dict[str, Any]]) -> Any:
        role = {"prefill": PrefillDriver, "decode": DecodeDriver}[config["disaggregation_mode"]]
        return type("ApartOracle", (role, ApartDriver, driver), {})(config, workload)

    return make


class ApartDriver:
    """The loops, for the driver of `live`. The classes below go before it."""

    def __init__(self, config: dict[str, Any], workload: list[dict[str, Any]]) -> None:
        super().__init__(config, workload)
        self.partner = self.s.partner
        self.partner.clock = self.clock
        self.partner.first_token = self.first_token
        self.rids: dict[int, str] = {}
        self.s.output_streamer.stream_output = self.note_output
        self.num_outputs = 0
        self.seen: Any = None

    def make_request(self, number: int, row: dict[str, Any]) -> Any:
        request = super().make_request(number, row)
        self.rids[number + 1] = request.rid
        return self.partner.knows(request, row, number + 1)

    def first_token(self, room: int) -> int:
        request = self.live[self.rids[room]]
        return int(self.next_token(request, len(request.origin_input_ids)))

    def note_output(self, requests: list[Any], *_: Any) -> None:
        """SGLang sends what these requests have so far to their clients."""
        from sglang.srt.managers.schedule_batch import FINISH_ABORT

        now_s = self.clock.now_s
        for request in requests:
            self.num_outputs += 1
            info = self.info[request.rid]
            if request.output_ids and info["ttft"] is None:
                info["ttft"] = round(now_s - info["arrival"], 9)
            if not request.finished() or info["status"] != "live":
                continue
            reason = request.finished_reason
            info |= {"reason": type(reason).__name__, "output_tokens": len(request.output_ids)}
            self.live.pop(request.rid, None)
            if isinstance(reason, FINISH_ABORT):
                info["status"] = "rejected" if reason.status_code == 400 else "failed"
            else:
                info |= {"status": "finished", "finish": round(now_s, 9)}

    # ---- what differs between the two roles ----

    def take_in(self) -> None:
        """What a pass does before its decision."""

    def end_pass(self) -> None:
        """What a pass does after the result of a step."""

    def looks(self) -> bool:
        """Whether the last pass has looked at all transfers."""
        return True

    def queues(self) -> dict[str, int]:
        """Lengths of the role's own queues."""
        raise NotImplementedError

    # ---- the loops ----

    def begin_schedule(self) -> Any:
        self.take_in()
        return super().begin_schedule()

    def describe(self, batch: Any, t0: float, queue_before: int) -> Any:
        row, end_s = super().describe(batch, t0, queue_before)
        end_s = row["t_end"] = round(end_s, 9)
        return row | self.queues(), end_s

    def run_normal(self) -> None:
        scheduler, now_s = self.s, 0.0
        while self.step < self.cfg["max_steps"]:
            self.ingest(now_s)
            batch, queue_before = self.begin_schedule()
            if batch:
                result = self.launch(batch)
                row, now_s = self.describe(batch, now_s, queue_before)
                self.rows.append(row)
                self.step += 1
                self.clock.now_s = now_s
                self.absorb(batch, result, now_s)
                self.seen = None
            else:
                self.idle()
            self.end_pass()
            scheduler.last_batch = batch
            if not batch:
                following_s = self.wait(now_s)
                if following_s is None:
                    break
                now_s = following_s

    def run_overlap(self) -> None:
        scheduler, now_s, free_s = self.s, 0.0, 0.0
        scheduler.result_queue = deque()
        ends: deque[float] = deque()
        while self.step < self.cfg["max_steps"]:
            self.ingest(now_s)
            batch, queue_before = self.begin_schedule()
            if batch:
                ForwardEnd.forward_free_s = free_s
                result = self.launch(batch)
                row, free_s = self.describe(batch, max(now_s, free_s), queue_before)
                row["t_sched"] = now_s
                self.rows.append(row)
                self.step += 1
                scheduler.result_queue.append((batch.copy(), result))
                ends.append(free_s)
                self.seen = None
            is_idle = not batch and not scheduler.last_batch
            if scheduler.last_batch:
                now_s = max(now_s, ends.popleft())
                self.clock.now_s = now_s
                self.absorb(*scheduler.result_queue.popleft(), now_s)
                self.seen = None
            elif not batch:
                self.idle()
            self.end_pass()
            scheduler.last_batch = batch
            if is_idle:
                following_s = self.wait(now_s)
                if following_s is None:
                    break
                now_s = following_s

    def wait(self, now_s: float) -> float | None:
        """When an idle server makes its next pass; None: nothing more will happen."""
        state = (
            self.queues(), len(self.s.waiting_queue), len(self.s.running_batch.reqs),
            int(self.s.token_to_kv_pool_allocator.available_size()), self.num_outputs,
            self.s.req_to_token_pool.available_size(), self.s.chunked_req is None, len(self.live),
        )  # fmt: skip
        seen, self.seen = self.seen, state
        if state != seen or not self.looks():
            return now_s
        self.seen = None
        times = [self.partner.next_after(now_s)]
        times.append(self.pending[0][1]["arrival"] if self.pending else None)
        times.append(gives_up_s(self) if self.impatient else None)
        return min((max(time_s, now_s) for time_s in times if time_s is not None), default=None)

    def run(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        rows, requests = super().run()
        for room, rid in self.rids.items():
            self.info[rid]["sent"] = self.partner.sent.get(room, [])
            self.info[rid]["room"] = self.partner.room.get(room)
        return rows, requests


class PrefillDriver:
    """A prefill server: `event_loop_normal_disagg_prefill`, `event_loop_overlap_disagg_prefill`."""

    def __init__(self, config: dict[str, Any], workload: list[dict[str, Any]]) -> None:
        super().__init__(config, workload)
        self.s.get_next_batch_to_run = self.s.get_next_disagg_prefill_batch_to_run
        from sglang.srt.managers.schedule_policy import WAITING_PREFIX_REFRESH_INTERVAL

        self.passes_per_refresh = WAITING_PREFIX_REFRESH_INTERVAL
        self.num_refreshes = 0

    def take_in(self) -> None:
        self.s.waiting_queue.extend(self.s.disagg_prefill_bootstrap_queue.pop_bootstrapped())

    def launch(self, batch: Any) -> Any:
        for request in batch.reqs:
            self.s.maybe_send_cached_prefix_chunk(request)
        return super().launch(batch)

    def end_pass(self) -> None:
        self.s.process_disagg_prefill_inflight_queue()

    def looks(self) -> bool:
        """An idle server soon makes the pass that marks prefixes of waiting requests as used."""
        num_before, self.num_refreshes = self.num_refreshes, self._num_refreshes()
        is_refreshed = self.num_refreshes % self.passes_per_refresh == 1
        return is_refreshed or self.num_refreshes == num_before

    def _num_refreshes(self) -> int:
        return int(self.s.policy._waiting_prefix_refresh_calls)

    def queues(self) -> dict[str, int]:
        return {
            "bootstrapping": len(self.s.disagg_prefill_bootstrap_queue.queue),
            "inflight": len(self.s.disagg_prefill_inflight_queue),
        }


class DecodeDriver:
    """A decode server: `event_loop_normal_disagg_decode`, `event_loop_overlap_disagg_decode`."""

    def __init__(self, config: dict[str, Any], workload: list[dict[str, Any]]) -> None:
        super().__init__(config, workload)
        decide = self.s.get_next_disagg_decode_batch_to_run
        self.s.get_next_batch_to_run = lambda running_batch, **_: decide(running_batch)

    def take_in(self) -> None:
        before = {request.rid for request in self.s.waiting_queue}
        retracted = {request.rid for request in self.s.disagg_decode_prealloc_queue.retracted_queue}
        self.s.process_decode_queue()
        for request in self.s.waiting_queue:
            if request.rid not in before:
                name = "resumed" if request.rid in retracted else "received"
                times = self.info[request.rid].setdefault(name, [])
                times.append(self.clock.now_s)

    def looks(self) -> bool:
        queue = self.s.disagg_decode_prealloc_queue
        return bool(queue.retracted_queue) or self.s.polling_count == 0

    def idle(self) -> None:
        """The harness's check counts no extra rows."""
        if not self.s.is_fully_idle():
            return
        pool, rows = self.s.token_to_kv_pool_allocator, self.s.req_to_token_pool
        left = int(pool.available_size()) + int(self.s.tree_cache.evictable_size())
        if left != self.s.max_total_num_tokens or rows.available_size() != rows._alloc_size - 1:
            raise RuntimeError(f"leak at idle: {left} of {self.s.max_total_num_tokens} tokens")
        self.s.new_token_ratio_tracker.reset()

    def queues(self) -> dict[str, int]:
        queue = self.s.disagg_decode_prealloc_queue
        return {
            "preallocating": len(queue.queue),
            "transferring": len(self.s.disagg_decode_transfer_queue.queue),
            "offloaded": len(queue.retracted_queue),
        }
