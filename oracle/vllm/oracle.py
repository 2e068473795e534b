"""Drives vLLM's scheduler step by step, like the engine's loop, but on a virtual clock."""

from collections import deque
from functools import partial
from heapq import heappop, heappush
from typing import Any

from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

from oracle.draws import num_accepted, num_proposed
from oracle.vllm.engine import QUEUE_LIMITS, Engine, refuses
from oracle.vllm.handover import is_sent, transfer_config, transfer_params
from oracle.vllm.offload import add_settings, keep_order, tiers_of
from oracle.vllm.simple import note_scans
from oracle.vllm.together import host_state, transfer_times_ns, workers_of
from sim.installed.inside.vllm.scheduler import (
    END_TOKEN,
    build_scheduler,
    note_preemptions,
    request_maker,
    waiting_requests,
)

Line = dict[str, Any]

_NS_PER_S = 1_000_000_000
_FIRST_OUTPUT_SEED = 1 << 20
_UINT64 = (1 << 64) - 1
# If this many decisions in a row give no token, requests preempt each other forever: give up.
MAX_IDLE_DECISIONS = 3_000


def stream_token_ids(seed: int, num_tokens: int) -> list[int]:
    """The first tokens of stream `seed`: `1000 + (splitmix64(seed << 32 | k) >> 34)`."""
    return [1000 + (_splitmix64(seed << 32 | k) >> 34) for k in range(num_tokens)]


def _splitmix64(counter: int) -> int:
    x = (counter + 0x9E3779B97F4A7C15) & _UINT64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _UINT64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _UINT64
    return x ^ x >> 31


class Script:
    """One request of the workload: its prompt, its output, and its times and state."""

    def __init__(self, number: int, row: Line, *, role: str | None = None) -> None:
        self.rid = str(row.get("rid", number))
        self.arrival_ns = round(row["arrival"] * _NS_PER_S)
        if "segments" in row:
            self.prompt = [i for seed, n in row["segments"] for i in stream_token_ids(seed, n)]
        else:
            self.prompt = list(row["input_ids"])
        num_tokens = row["output_len"]
        # A router asks a prefill server for a single token.
        self.max_tokens = 1 if role == "prefill" else row.get("max_new_tokens", num_tokens)
        self.ignore_eos = row.get("ignore_eos", False)
        self.priority = row.get("priority") or 0
        seed = self.seed = row.get("output_seed", _FIRST_OUTPUT_SEED + number)
        self.outputs = stream_token_ids(seed, self.max_tokens)
        if not self.ignore_eos and num_tokens <= self.max_tokens:
            self.outputs[num_tokens - 1] = END_TOKEN
        patience_s = row.get("gives_up_after")
        self.gives_up_ns = None
        if patience_s is not None:
            self.gives_up_ns = self.arrival_ns + round(patience_s * _NS_PER_S)
        self.has_given_up = False
        self.handover: Line = row.get("handover", {})
        # On a decode server: when its blocks were allocated, and for how many KV was wanted.
        self.load: list[int] | None = None
        self.request: Any = None
        self.num_cached: int | None = None
        self.status = "stuck"
        self.reason: str | None = None
        self.first_token_ns: int | None = None
        self.finish_ns: int | None = None

    @property
    def is_live(self) -> bool:
        """It was let in and is not over, for the front end."""
        return self.request is not None and self.finish_ns is None and not self.has_given_up

    def line(self) -> Line:
        request = self.request
        first_ns = self.first_token_ns
        return {
            "kind": "req",
            "rid": self.rid,
            "arrival_ns": self.arrival_ns,
            "ttft_ns": None if first_ns is None else first_ns - self.arrival_ns,
            "finish_ns": self.finish_ns,
            "cached_at_admit": self.num_cached or 0,
            "preemptions": request.num_preemptions if request else 0,
            "output_tokens": request.num_output_tokens if request else 0,
            "status": self.status,
            "reason": self.reason,
            **({} if self.load is None else {"load": self.load}),
        }


class Flight:
    """A batch that was decided, and the future of its result."""

    def __init__(self, oracle: "Oracle", decided: Any, sampling: list[str], end_ns: int) -> None:
        self.decided = decided
        # Rows with drafts; others may have padding in their place.
        self.decoding = oracle.decoding & set(sampling)
        self.sampling = sampling
        # Workers look for finished transfers when they have launched the batch's kernels.
        self.report = oracle.workers.report(oracle.now_ns)
        oracle.made_progress |= self.report is not None
        self.end_ns = end_ns
        self._oracle = oracle

    def done(self) -> bool:
        return self.end_ns <= self._oracle.now_ns

    def result(self) -> ModelRunnerOutput:
        """Wait for the end of the batch; its sampled tokens."""
        return self._oracle.end(self)


class Oracle:
    """vLLM's scheduler and its engine's loop on a virtual clock. It is the engine's executor."""

    def __init__(self, config: Line, rows: list[Line], disks: Any = None) -> None:
        """`disks`: what the ranks before have below their CPU memory; None: there are none."""
        self.config = config
        role = config.get("role")
        scripts = [Script(number, row, role=role) for number, row in enumerate(rows)]
        self.scripts = {script.rid: script for script in scripts}
        self.to_come = sorted(self.scripts.values(), key=lambda script: script.arrival_ns)
        # Clients who may give up, by time.
        self.impatient: list[tuple[int, int, Script]] = []
        # What the front end has sent to the scheduler: requests, and rids to abort.
        self.sent: list[Any] = []
        self.now_ns = 0
        self.steps: list[Line] = []
        self.preempted: list[str] = []
        self.preempted_idle: list[str] = []
        self.decoding: set[str] = set()
        self.num_idle_decisions = 0
        # When each stage has ended its last step; one stage without a pipeline.
        self.stage_free_ns = [0] * config.get("stages", 1)
        # When the tokens of the last decisions are known, one for each stage; 0: it has none.
        self.tokens_known_ns = deque([0] * len(self.stage_free_ns))
        offloads = "offload" in config
        self.tiers = tiers_of(config, self, disks)
        self.scheduler = build_scheduler(
            config, transfer_config(config), partial(add_settings, config) if offloads else None
        )
        if offloads:
            keep_order(self.scheduler)
        note_scans(config, self)
        if self.tiers is not None:
            self.tiers.attach(self.scheduler)
        note_preemptions(self.scheduler, lambda _by, victim: self.preempted.append(victim))
        self.new_request = request_maker(config, self.scheduler)
        self.engine = Engine(self.scheduler, self, config)
        self.limits_front_end = any(name in config for name in QUEUE_LIMITS)
        self.latest: Flight | None = None
        self.num_flying = 0
        self.made_progress = False
        # Until when the loop was held up by the latest launch.
        self.held_ns = 0
        self.workers = workers_of(config)

    def run(self) -> list[Line]:
        """Every step, then every request."""
        while self.num_idle_decisions <= MAX_IDLE_DECISIONS:
            self._add_arrivals()
            self.made_progress = False
            self.preempted.clear()
            for outputs in self.engine.next_outputs().values():
                for result in outputs.outputs:
                    self._note(self.scripts[result.request_id], result)
            is_busy = self.made_progress or self.num_flying or self.engine.has_reports
            if not (is_busy or self._wait()):
                break
        return [*self.steps, *(script.line() for script in self.scripts.values())]

    # ---- the executor --------------------------------------------------------------------------

    def execute_model(self, decided: Any, non_block: bool = False) -> Flight:
        for rid, drafts in decided.scheduled_spec_decode_tokens.items():
            if decided.num_scheduled_tokens[rid] <= len(drafts):
                # `prepare_inputs` of v1/worker/gpu/model_runner.py asserts it.
                raise AssertionError(f"a worker cannot verify {len(drafts)} drafts of {rid}")
        self.latest = self._launch(decided)
        self.tokens_known_ns.popleft()
        self.tokens_known_ns.append(self.latest.end_ns if self.latest.sampling else 0)
        return self.latest

    def sample_tokens(self, grammar: None, non_block: bool = False) -> Flight | None:
        return self.latest

    def end(self, flight: Flight) -> ModelRunnerOutput:
        """Move the clock to the end of a batch; its sampled tokens."""
        self._let_in(max(flight.end_ns, self.held_ns))
        self.now_ns = max(self.now_ns, flight.end_ns)
        rids = list(flight.decided.num_scheduled_tokens)
        self.num_flying -= bool(rids)
        self.made_progress |= bool(rids) or flight.report is not None
        return ModelRunnerOutput(
            kv_connector_output=flight.report,
            req_ids=rids,
            req_id_to_index={rid: i for i, rid in enumerate(rids)},
            sampled_token_ids=[self._sampled(rid, flight) for rid in rids],
        )

    # ---- the clock -----------------------------------------------------------------------------

    def _end_ns(self, start_ns: int, step_ns: int) -> int:
        """When a step ends. In a pipeline each stage has an equal part of it."""
        stages = self.stage_free_ns
        end_ns, done_ns = start_ns, 0
        for stage in range(len(stages)):
            part_ns = step_ns * (stage + 1) // len(stages) - done_ns
            done_ns += part_ns
            end_ns = stages[stage] = max(end_ns, stages[stage]) + part_ns
        return end_ns

    def _let_in(self, until_ns: int) -> None:
        """What vLLM's front end does with what happens until a time: some requests it rejects."""
        while self.to_come and self.to_come[0].arrival_ns <= until_ns:
            script = self.to_come.pop(0)
            self._abort(script.arrival_ns)
            if len(script.prompt) >= self.config["max_model_len"] or self._is_full():
                script.status = "rejected"
            else:
                script.request = self._request_of(script)
                self.sent.append(script.request)
                if script.gives_up_ns is not None:
                    heappush(self.impatient, (script.gives_up_ns, -len(self.to_come), script))
        self._abort(until_ns)

    def _request_of(self, script: Script) -> Any:
        return self.new_request(
            script.rid,
            # A prefill server may shorten it.
            list(script.prompt),
            max_tokens=script.max_tokens,
            ignore_eos=script.ignore_eos,
            priority=script.priority,
            arrival_ns=script.arrival_ns,
            transfer=transfer_params(self.config, script.rid),
        )

    def _abort(self, until_ns: int) -> None:
        """Tell the engine of clients that have given up, as its thread for input does: twice."""
        while self.impatient and self.impatient[0][0] <= until_ns:
            script = heappop(self.impatient)[2]
            if script.is_live:
                script.has_given_up, script.status, script.reason = True, "aborted", "abort"
                self.engine.aborts_queue.put([script.rid])
                self.sent.append(script.rid)

    def _add_arrivals(self) -> bool:
        """Hand over to the scheduler what the front end has sent; returns whether requests came."""
        self._let_in(self.now_ns)
        has_arrivals = any(not isinstance(sent, str) for sent in self.sent)
        for sent in self.sent:
            if isinstance(sent, str):
                self.engine.abort_requests([sent])
            else:
                self.scheduler.add_request(sent)
        self.sent.clear()
        return has_arrivals

    def _is_full(self) -> bool:
        """Whether vLLM's front end refuses a request now, because of those that are there."""
        if not self.limits_front_end:
            return False
        live = [script for script in self.scripts.values() if script.is_live]
        waiting = [script for script in live if script.first_token_ns is None]
        return refuses(self.config, len(live), sum(len(script.prompt) for script in waiting))

    def _wait(self) -> bool:
        """Move the clock to what comes next, but not after a preemption; False ends the run."""
        if self.preempted:
            return True
        times_ns = [script.arrival_ns for script in self.to_come[:1]]
        times_ns += [entry[0] for entry in self.impatient[:1]]
        times_ns += transfer_times_ns(self.scheduler, self.workers, self.tiers)
        if not times_ns:
            return False
        self.now_ns = max(self.now_ns, min(times_ns))
        return True

    def _launch(self, decided: Any) -> Flight:
        self.decoding.difference_update(self.preempted)
        self.num_idle_decisions += 1
        device_free_ns = self.stage_free_ns[-1]
        self.held_ns = self.workers.begin(decided, self.scripts, self.now_ns, device_free_ns)
        self.now_ns = self.held_ns
        if not decided.num_scheduled_tokens:
            self.preempted_idle += self.preempted
            self._launched(decided)
            return Flight(self, decided, [], self.now_ns)
        requests = self.scheduler.requests
        rows = [
            [rid, requests[rid].num_computed_tokens - num_new, num_new]
            for rid, num_new in decided.num_scheduled_tokens.items()
        ]
        for rid, num_computed, _ in rows:
            if self.scripts[rid].num_cached is None:
                self.scripts[rid].num_cached = num_computed
        start_ns = max(self.now_ns, self.stage_free_ns[0], self.tokens_known_ns[0])
        end_ns = self._end_ns(start_ns, self._step_ns(rows))
        self.steps.append(
            {
                "kind": "step",
                "step": len(self.steps),
                "t_start_ns": start_ns,
                "t_end_ns": end_ns,
                "scheduled": rows,
                "prefill": [rid for rid, _, _ in rows if rid not in self.decoding],
                "preempted": list(self.preempted),
                "preempted_idle": self.preempted_idle,
                **self._state(),
            }
        )
        self.preempted_idle = []
        sampling = [rid for rid, _, _ in rows if not requests[rid].is_prefill_chunk]
        self._launched(decided)
        flight = Flight(self, decided, sampling, end_ns)
        self.decoding.update(sampling)
        self.num_flying += 1
        self.made_progress = True
        return flight

    def _launched(self, decided: Any) -> None:
        self.made_progress |= self.workers.launched(decided, self.now_ns, self.stage_free_ns[-1])

    def _state(self) -> Line:
        scheduler = self.scheduler
        pool = scheduler.kv_cache_manager.block_pool
        return {
            "waiting": [request.request_id for request in waiting_requests(scheduler)],
            "running": [request.request_id for request in scheduler.running],
            "free_blocks": pool.get_num_free_blocks(),
            "cached_blocks": sum(block.block_hash is not None for block in pool.blocks),
            **host_state(self.config, scheduler, self.tiers),
        }

    def _step_ns(self, rows: list[list[Any]]) -> int:
        """The time of a step. A row is a decode row if an earlier step finished its prompt."""
        num_prefill_tokens = num_decode_rows = num_context_tokens = 0
        for rid, num_computed, num_new in rows:
            num_context_tokens += num_computed + num_new
            if rid in self.decoding:
                num_decode_rows += 1
            else:
                num_prefill_tokens += num_new
        latency = self.config["latency"]
        seconds = (
            float(latency["a"])
            + float(latency["b"]) * num_prefill_tokens
            + float(latency["c"]) * num_decode_rows
            + float(latency["d"]) * num_context_tokens
        )
        return round(seconds * _NS_PER_S) or 1

    def _sampled(self, rid: str, flight: Flight) -> list[int]:
        """The next tokens; none before the prompt is finished, `END_TOKEN` after the output."""
        if rid not in flight.sampling:
            return []
        script = self.scripts[rid]
        place, num_tokens = script.request.num_output_tokens, 1
        drafts = flight.decided.scheduled_spec_decode_tokens.get(rid)
        if drafts and rid in flight.decoding:
            # Places for drafts that were not found hold tokens that are rejected.
            most = min(len(drafts), num_proposed(self.config, script.seed, place))
            num_tokens += num_accepted(self.config, script.seed, place, most)
        sampled = script.outputs[place : place + num_tokens]
        return sampled + [END_TOKEN] * (num_tokens - len(sampled))

    def take_draft_token_ids(self) -> DraftTokenIds:
        """Drafts for every row of the latest batch."""
        rids = list(self.latest.decided.num_scheduled_tokens) if self.latest else []
        scripts = [self.scripts[rid] for rid in rids]
        counts = [num_proposed(self.config, s.seed, s.request.num_output_tokens) for s in scripts]
        return DraftTokenIds(rids, [[0] * count for count in counts])

    def _note(self, script: Script, result: Any) -> None:
        if script.has_given_up:
            return
        if result.new_token_ids:
            self.num_idle_decisions = 0
            if script.first_token_ns is None:
                script.first_token_ns = self.now_ns
        if result.finish_reason is not None:
            script.status, script.reason = "finished", str(result.finish_reason)
            script.finish_ns = self.now_ns
            if script.reason == "error":
                script.status = "failed"
            elif script.rid in self.scheduler.requests and is_sent(result):
                self.workers.ended(script, self.now_ns)
