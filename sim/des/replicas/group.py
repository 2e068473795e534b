"""A group of ranks that step together: a replica with attention data parallelism.

Each rank has an engine of its own, and all ranks decide at the same times. A step starts when the
slowest host has prepared it, and ends when the slowest device has computed it, but not before the
slowest host has launched its kernels. A rank that launches nothing runs along, and nothing is
logged of it.
"""

from collections.abc import Sequence

import numpy as np

from sim.core.arrays import Int64
from sim.core.batch import Batch, ForwardMode
from sim.des.clock import Clock
from sim.des.replicas.group_rank import GroupRank, slowest_run
from sim.des.replicas.replica import Replica, ServerOptions
from sim.des.replicas.timeline import Stages, UpcomingSteps, upcoming_steps
from sim.des.traffic import SimulationLog
from sim.engine.core import EngineCore
from sim.engine.parts import MANY_STEPS
from sim.engine.ranks import Meeting, RankRules
from sim.engine.records import StepState
from sim.engine.scheduler import NEVER_AGES_NS
from sim.latency.features import StepFeatures, step_features
from sim.runlog.builder import StepRun
from sim.workload.workload import ScriptedRequest

_NO_WORK = Batch(ForwardMode.DECODE, (), (), 0, 0)
_NO_STATE = StepState(0, 0, 0, 0, 0, 0, False, 0.0, None, (), (), (), None)
# What a rank has of a step, and how long its device computes that.
_Part = tuple[StepFeatures, int]


class GroupRun(StepRun):
    """A step of a group, and the fast-forwarded decode steps that followed it.

    Its times are those of the group. Batches and states are in `of_rank`.

    Attributes:
        of_rank: the run of each rank; None: it runs along.
    """

    of_rank: list[StepRun | None]


class Group(Replica):
    """A replica whose ranks step together."""

    def __init__(
        self,
        env: Clock,
        number: int,
        *,
        ranks: list[GroupRank],
        rules: RankRules,
        reports: SimulationLog,
        options: ServerOptions,
    ) -> None:
        first = ranks[0]
        stages = Stages(first.latency) if first.engine.num_places > 1 else None
        super().__init__(env, number, options, stages)
        self._ranks = ranks
        self._rules = rules
        self._reports = reports
        self._num_in_flight = 0
        # Of `RankRules.idles_between`: such a step comes next, and when the device has ended it.
        self._idles_next = False
        self._idled_ns = 0
        self._has_work_in_flight = False
        # When the results of the steps that are passed in one go are known.
        self._known_ns: Int64 = np.zeros(0, dtype=np.int64)
        self._meeting = Meeting(self.engines)
        self._polls_at_steps = all(rank.engine.role.polls_at_steps for rank in ranks)

    @property
    def engines(self) -> Sequence[EngineCore]:
        return [rank.engine for rank in self._ranks]

    @property
    def num_unfinished(self) -> int:
        return sum([len(rank.engine.requests) for rank in self._ranks])

    @property
    def _has_arrivals(self) -> bool:
        return any(not rank.engine.input_queue.is_empty for rank in self._ranks)

    @property
    def _num_waiting(self) -> int:
        return sum([rank.engine.num_waiting for rank in self._ranks])

    def submit(self, request: ScriptedRequest, front_end: int = 0) -> None:
        """Deal the request to a rank; one that can never be served counts as the first rank's."""
        spec, now_ns = request.spec, self.env.now_ns
        rejection = self._ranks[0].engine.rejection(spec, self.engines)
        if rejection is not None:
            self._reports.submitted(spec, self._ranks[0].number)
            self._reports.over([rejection], now_ns)
            return
        if self._wait is not None:
            # An arrival comes before the results of its time, unless one of them has caused it.
            before_ns = now_ns + self.env.is_past(self._end_priority)
            num_known = int(self._known_ns.searchsorted(before_ns))
            self._rules.passed(self._known_ns[:num_known])
        chosen = self._rules.choose(len(spec.prompt), now_ns, front_end, spec.rid)
        self._rules.sent(chosen, spec.rid, front_end)
        rank = self._ranks[chosen]
        self._reports.submitted(spec, rank.number)
        rank.executor.add(spec.rid, request.script, ignore_eos=spec.ignore_eos)
        self._end_wait_at_poll(rank.engine)
        rank.engine.submit(spec)
        self._wake()
        self._expect_end(spec)

    # ---- one step ------------------------------------------------------------------------------

    def begin(self, device_free_ns: int) -> StepRun | None:
        now_ns = self.env.now_ns
        self._waited_ns = 0
        if self._polls_at_steps and self._num_in_flight and not self._has_work_in_flight:
            return None
        if self._idles_next and not self._num_in_flight:
            self._idles_next = False
            self._idle_between(device_free_ns)
        device_free_ns = max(device_free_ns, self._idled_ns)
        batches: list[Batch | None] = []
        states: list[StepState | None] = []
        runs = False
        for rank in self._ranks:
            rank.engine.scheduler.device_free_ns = device_free_ns
        for decided in self._meeting.decide(now_ns, in_flight=self._num_in_flight > 0):
            self._waited_ns = max(self._waited_ns, decided.waited_ns)
            if decided.over:
                self._reports.over(decided.over, now_ns)
            batches.append(decided.batch)
            states.append(decided.state)
            runs = runs or decided.batch is not None
        if runs:
            step = self._launch(batches, states, device_free_ns)
            self._has_work_in_flight = True
        elif self._num_in_flight:
            self._hold_up(now_ns)
            # Ranks that have stopped while the step was in flight do not idle behind it.
            may_idle = self._rules.idles_between and self._rules.idle(now_ns)
            self._idles_next = may_idle and self._has_work_in_flight
            return None
        elif not self._runs_without_work(now_ns):
            self._hold_up(now_ns)
            return None
        else:
            step = self._launch_without_work(device_free_ns)
            self._has_work_in_flight = False
        if self._overlaps and not self._num_in_flight:
            self._rules.decided(now_ns)
        self._num_in_flight += 1
        return step

    def _hold_up(self, now_ns: int) -> None:
        """A decision that launches nothing waits for copies, if the ranks' loops do."""
        if self.engines[0].role.waits_without_step:
            self._held_ns = now_ns + self._waited_ns

    def _idle_between(self, device_free_ns: int) -> None:
        """Run a step without work whose end nobody waits for."""
        now_ns = self.env.now_ns
        if self._rules.idle(now_ns):
            self._idled_ns = self._launch_without_work(device_free_ns).end_ns
            self.num_steps += 1
            self._rules.processing([None] * len(self._ranks))
            self._rules.processed(now_ns, 1)

    def _runs_without_work(self, now_ns: int) -> bool:
        """Whether the ranks run a step although none has work; if not, sets when to wake."""
        at_ns: list[int] = []
        for rank in self._ranks:
            wakes_ns = rank.engine.idle(now_ns)
            if wakes_ns is not None:
                at_ns.append(wakes_ns)
            elif rank.engine.num_waiting:  # It decides again at once, and so do all.
                at_ns.append(now_ns)
        self._wakes_ns = min(at_ns) if at_ns else None
        if self._has_arrivals or (self._num_waiting and not self._polls_at_steps):
            return False
        return self._rules.idle(now_ns)

    def _launch(
        self,
        batches: list[Batch | None],
        states: list[StepState | None],
        device_free_ns: int,
    ) -> GroupRun:
        num_tokens = most = 0
        prefills = False
        for number, batch in enumerate(batches):
            step = self._ranks[number].features = None if batch is None else step_features(batch)
            num_new = self._rules.idle_tokens
            if step is not None:
                num_new = step.num_tokens
                prefills = prefills or step.num_prefill_rows > 0
            num_tokens += num_new
            most = max(most, num_new)
        parts: list[_Part] = []
        launch_ns = host_ns = 0
        for rank in self._ranks:
            step = rank.features
            if step is not None:
                step.join_group(num_tokens, most, prefills=prefills)
                time = rank.latency.step_ns(step)
                launch_ns = max(launch_ns, rank.launch_ns(step))
                rank.latency.consume(step, 1)
                parts.append((step, time.device_ns))
                host_ns = max(host_ns, time.host_ns)
        host_ns += self._waited_ns
        return self._run(batches, states, parts, (host_ns, launch_ns), device_free_ns)

    def _launch_without_work(self, device_free_ns: int) -> GroupRun:
        """A step of `idle_tokens` on each rank."""
        rows = self._rules.idle_tokens
        num_ranks = len(self._ranks)
        features = StepFeatures(ForwardMode.DECODE, 0, 0, 0, rows, rows, rows)
        known = features.in_group(rows * num_ranks, rows, prefills=False)
        for rank in self._ranks:
            rank.features = None
        first = self._ranks[0]
        time, launch_ns = first.latency.step_ns(known), first.launch_ns(known)
        part = (known, time.device_ns)
        of_host_ns = time.host_ns + self._waited_ns, launch_ns
        return self._run([None] * num_ranks, [None] * num_ranks, [part], of_host_ns, device_free_ns)

    def _run(
        self,
        batches: list[Batch | None],
        states: list[StepState | None],
        parts: Sequence[_Part],
        of_host_ns: tuple[int, int],
        device_free_ns: int,
    ) -> GroupRun:
        """The step as it will run, for the group and for each rank.

        `parts` are those of the ranks; `of_host_ns`: to prepare the step, and to launch it.
        """
        decided_ns, (host_ns, launch_ns) = self.env.now_ns, of_host_ns
        ready_ns = decided_ns + host_ns
        if self._stages is None:
            start_ns, device_ns = max(ready_ns, device_free_ns), 0
            for _, of_rank_ns in parts:
                device_ns = max(device_ns, of_rank_ns)
            end_ns = max(start_ns + device_ns, ready_ns + launch_ns)
        else:
            launched = [batch for batch in batches if batch is not None]
            start_ns, end_ns = self._stages.take(ready_ns, parts, launched)
        group_run = GroupRun(
            0,
            _NO_WORK,
            _NO_STATE,
            decided_ns=decided_ns,
            host_ns=host_ns,
            start_ns=start_ns,
            first_end_ns=end_ns,
            launch_ns=launch_ns,
        )
        group_run.of_rank = []
        for number, rank in enumerate(self._ranks):
            rank.engine.role.step_ends(end_ns)
            run, batch, state = None, batches[number], states[number]
            if batch is not None and state is not None:
                run = StepRun(
                    rank.number,
                    batch,
                    state,
                    decided_ns=decided_ns,
                    host_ns=host_ns,
                    start_ns=start_ns,
                    first_end_ns=end_ns,
                    launch_ns=launch_ns,
                )
            group_run.of_rank.append(run)
        return group_run

    def finish(self, step: StepRun) -> None:
        assert isinstance(step, GroupRun)  # noqa: S101 - what `begin` makes
        now_ns = self.env.now_ns
        number = self.num_steps
        self.num_steps += step.num_steps
        self._num_in_flight -= 1
        self.env.note_step_end(self._end_priority)
        self._rules.processing([None if run is None else run.batch.mode for run in step.of_rank])
        for index, run in enumerate(step.of_rank):
            if run is not None:
                rank = self._ranks[index]
                run.first_step = number
                self._reports.stepped(run)
                output = rank.executor.execute(run.batch)
                records = rank.engine.end_step(run.batch, output, now_ns)
                if records:
                    self._rules.ended(index, [record.spec.rid for record in records])
                    self._reports.over(records, now_ns)
        self._rules.processed(now_ns, step.num_steps)
        if self._check is not None:
            for rank in self._ranks:
                self._check(rank.engine)

    # ---- fast-forward --------------------------------------------------------------------------

    def _upcoming(self, step: StepRun, next_decision_ns: int) -> UpcomingSteps | None:
        assert isinstance(step, GroupRun)  # noqa: S101 - what `begin` makes
        num_steps = self._horizon(step)
        if num_steps <= 0:
            return None
        launch_ns, next_aging_ns = 0, NEVER_AGES_NS
        for rank in self._ranks:
            next_aging_ns = min(next_aging_ns, rank.engine.next_aging_ns)
            if rank.features is not None:
                rank.features = rank.features.next_decode()
                launch_ns = max(launch_ns, rank.launch_ns(rank.features))
        times = slowest_run(self._ranks, num_steps)
        steps = upcoming_steps(
            next_decision_ns, step.end_ns, times, launch_ns, overlaps=self._overlaps
        )
        if steps is None:
            return None
        steps_left = steps.decided_before(next_aging_ns)
        if steps_left is not None:
            steps_left = self._before_events(steps_left)
        if steps_left is not None:
            self._known_ns = steps_left.known_ns
        return steps_left

    def _horizon(self, step: GroupRun) -> int:
        """How many steps after `step`, the only one in flight, repeat it on every rank."""
        if self._has_arrivals and not self._overlaps:
            # They would wait before the result that comes first, of which ranks may tell others.
            return 0
        num_steps, num_decoding = MANY_STEPS, 0
        for index, rank in enumerate(self._ranks):
            if step.of_rank[index] is None:
                horizon = rank.engine.idle_horizon()
            else:
                num_decoding += 1
                horizon = rank.engine.decode_horizon()
                if horizon:
                    horizon = min(horizon, rank.executor.steps_to_finish() - 1)
            num_steps = min(num_steps, horizon)
            if num_steps <= 0:
                return 0
        return num_steps if num_decoding else 0

    def _take(self, step: StepRun, steps: UpcomingSteps, num_steps: int) -> None:
        assert isinstance(step, GroupRun)  # noqa: S101 - what `begin` makes
        steps = steps.first(num_steps)
        self._rules.passed(steps.known_ns)
        end_ns = int(steps.ends_ns[-1])
        for index, rank in enumerate(self._ranks):
            run = step.of_rank[index]
            rank.engine.role.step_ends(end_ns)
            if run is None or rank.features is None:
                rank.engine.input_queue.pass_decisions(num_steps)
                continue
            state = rank.engine.state()
            taken = rank.engine.fast_forward(steps.known_ns)
            rank.executor.execute(run.batch, num_steps)
            rank.latency.consume(rank.features, num_steps)
            step.further = run.further = steps.logged(taken, state)
