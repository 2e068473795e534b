"""What every latency model, every router and every workload must do: a suite for each."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.core.batch import ForwardMode
from sim.core.request import RequestSpec
from sim.core.tokens import ArrayPrompt, stream_token_ids
from sim.des.routers.router import Router
from sim.des.routers.table import ROUTER, GuardedRouter
from sim.latency.features import StepFeatures
from sim.latency.kinds.build import LATENCY, GuardedLatency, LatencySetting, ServedBy
from sim.latency.model import LatencyModel, Ranged
from sim.testing.user_classes import Contract
from sim.workload.kinds.context import BuildContext
from sim.workload.kinds.user_workload import WORKLOAD, Traffic, user_workload
from sim.workload.rng import RandomStreams, TokenStreams
from sim.workload.workload import ScriptedRequest, Workload, every_request


def _decode_step(rows: int, context: int, longest: int = 0, shortest: int = 0) -> StepFeatures:
    return StepFeatures(ForwardMode.DECODE, 0, 0, 0, rows, context, context, 0, longest, shortest)


# The contexts of the longest and the shortest row are known, or one of them, or neither.
_DECODE_STEPS = tuple(
    _decode_step(rows, rows * context)
    for rows in (1, 3, 64, 257)
    for context in (1, 17, 1_000, 99_999)
) + tuple(
    _decode_step(rows, rows * 800, longest, shortest)
    for rows in (2, 64)
    for longest, shortest in ((1_010, 0), (5_000, 200), (801, 799), (0, 1), (800, 800))
)
_OTHER_STEPS = (
    StepFeatures(ForwardMode.EXTEND, 1, 1, 1, 0, 0, 1),
    StepFeatures(ForwardMode.EXTEND, 8_192, 8_192 * 8_192, 4, 0, 0, 8_192),
    StepFeatures(ForwardMode.MIXED, 500, 500 * 700, 1, 30, 40_000, 40_600),
    StepFeatures(ForwardMode.MIXED, 500, 500 * 700, 1, 30, 40_000, 40_600, 0, 9_000, 20),
)


MakeModel = Callable[[], LatencyModel]


class LatencyModelContract(Contract):
    """Fixture `make_model: Callable[[], LatencyModel]`.

    A model that has recorded steps, as kind `recorded` does, needs 40 of them or more.
    """

    fixture = "make_model"
    kind = LATENCY
    guard = GuardedLatency
    num_steps = 37

    def context(self) -> tuple[object, ...]:
        return (LatencySetting(None, None, Path(), ServedBy()),)

    def test_latency_decode_run_equals_its_steps(self, make_model: MakeModel) -> None:
        """Element i of a run of decode steps is what `step_ns` says of step i, to the bit."""
        for first in _DECODE_STEPS:
            device_ns, host_ns = make_model().decode_run_ns(first, self.num_steps)
            assert device_ns.dtype == host_ns.dtype == np.int64
            assert 1 <= len(device_ns) == len(host_ns) <= self.num_steps
            model, step = make_model(), first
            for i in range(len(device_ns)):
                assert model.step_ns(step) == (int(device_ns[i]), int(host_ns[i]))
                model.consume(step, 1)
                step = step.next_decode()

    def test_latency_any_step_takes_whole_positive_time(self, make_model: MakeModel) -> None:
        """Device time is an int of at least 1 ns, host time one of at least 0."""
        for step in _DECODE_STEPS + _OTHER_STEPS:
            device_ns, host_ns = make_model().step_ns(step)
            assert type(device_ns) is type(host_ns) is int
            assert device_ns >= 1
            assert host_ns >= 0

    def test_latency_asking_changes_nothing(self, make_model: MakeModel) -> None:
        """A second call gives the same answer, even if the caller changed a run's arrays.

        Arrays that are not writeable may be the same ones.
        """
        model = make_model()
        for step in _DECODE_STEPS + _OTHER_STEPS:
            assert model.step_ns(step) == model.step_ns(step)
        for first in _DECODE_STEPS:
            run = model.decode_run_ns(first, self.num_steps)
            before = [times.tolist() for times in run]
            for times in run:
                if times.flags.writeable:
                    times[:] = -1
            again = model.decode_run_ns(first, self.num_steps)
            assert [times.tolist() for times in again] == before

    def test_latency_no_answer_depends_on_what_was_asked(self, make_model: MakeModel) -> None:
        """Only consumed steps change later answers; asking for other steps does not."""
        asked, silent = make_model(), make_model()
        for first in _DECODE_STEPS[:3]:
            for step in _OTHER_STEPS:
                asked.step_ns(step)
            asked.decode_run_ns(_DECODE_STEPS[-1], self.num_steps)
            for model in (asked, silent):
                model.consume(first, 5)
            ranges = [m.left_range() if isinstance(m, Ranged) else None for m in (asked, silent)]
            assert ranges[0] == ranges[1]
            assert asked.step_ns(first) == silent.step_ns(first)


MakeRouter = Callable[[], Router]


@dataclass
class FakeReplica:
    """A stand-in for a server that has nothing but a load."""

    num_unfinished: int = 0


def arriving(
    row: int, *segments: tuple[int, int], session: str = "", tenant: str = "", arrival_ns: int = 0
) -> RequestSpec:
    """A request with a prompt of these `(seed, num_tokens)` segments."""
    ids = np.concatenate([stream_token_ids(seed, 0, length) for seed, length in segments])
    return RequestSpec(f"r{row}", arrival_ns, ArrayPrompt(ids), 10, session=session, tenant=tenant)


def _varied_requests(seed: int, num_requests: int = 60) -> Iterator[RequestSpec]:
    """Requests that share a prefix, a session, a tenant or nothing; some of them short."""
    rng = np.random.default_rng(seed)
    for row in range(num_requests):
        yield arriving(
            row,
            (int(rng.integers(0, 4)), int(rng.integers(1, 200))),
            (100 + row, int(rng.integers(1, 100))),
            session=("", "a", "b", "c")[int(rng.integers(0, 4))],
            tenant=("", "x", "y")[int(rng.integers(0, 3))],
            arrival_ns=row * 10**9,
        )


def _serve(router: Router, requests: Iterator[RequestSpec], loads: Sequence[int]) -> list[int]:
    """The router's choices; loads grow with each choice and shrink now and then."""
    replicas = [FakeReplica(load) for load in loads]
    choices = []
    for row, spec in enumerate(requests):
        chosen = router.choose(spec, replicas)
        choices.append(chosen)
        replicas[chosen].num_unfinished += 1
        done = replicas[row % len(replicas)]
        done.num_unfinished = max(0, done.num_unfinished - row % 3)
    return choices


class RouterContract(Contract):
    """Fixture `make_router: Callable[[], Router]`."""

    fixture = "make_router"
    kind = ROUTER
    guard = GuardedRouter

    def test_choose_any_request_goes_to_one_of_the_replicas(self, make_router: MakeRouter) -> None:
        """The choice is the index of one of 1, 2, 3 or 64 replicas, idle or busy."""
        for num_replicas in (1, 2, 3, 64):
            loads = [replica % 5 for replica in range(num_replicas)]
            choices = _serve(make_router(), _varied_requests(num_replicas), loads)
            assert set(choices) <= set(range(num_replicas))

    def test_choose_same_calls_give_the_same_choices(self, make_router: MakeRouter) -> None:
        """Two equal routers make equal choices for all requests."""
        for seed in range(5):
            one, other = (
                _serve(make_router(), _varied_requests(seed), [3, 0, 1, 2]) for _ in range(2)
            )
            assert one == other

    def test_choose_changes_neither_request_nor_replicas(self, make_router: MakeRouter) -> None:
        """A router changes neither loads, which only servers change, nor prompts."""
        router, replicas = make_router(), [FakeReplica(load) for load in (4, 0, 7)]
        for spec in _varied_requests(1):
            before = spec.prompt.token_ids().copy()
            router.choose(spec, replicas)
            assert np.array_equal(spec.prompt.token_ids(), before)
            assert [replica.num_unfinished for replica in replicas] == [4, 0, 7]

    def test_choose_unrelated_requests_are_spread_evenly(self, make_router: MakeRouter) -> None:
        """Requests with nothing in common go to all replicas about equally often."""
        router, replicas = make_router(), [FakeReplica() for _ in range(5)]
        for row in range(500):
            spec = arriving(row, (row, 80), session=f"s{row}", tenant=f"t{row}")
            replicas[router.choose(spec, replicas)].num_unfinished += 1
        assert all(60 <= replica.num_unfinished <= 140 for replica in replicas)


MakeWorkload = Callable[[], Workload]


def _facts(request: ScriptedRequest) -> list[object]:
    spec = request.spec
    script = request.script
    return [
        *(spec.rid, spec.arrival_ns, spec.max_new_tokens, spec.priority, spec.ignore_eos),
        *(spec.predicted_output_tokens, spec.tenant, spec.session, spec.warm_up),
        *(spec.prompt.token_ids().tolist(), script.num_tokens, script.seed),
    ]


class WorkloadContract(Contract):
    """Fixture `make_workload: Callable[[], Workload]`, of at most some hundred requests."""

    fixture = "make_workload"
    kind = WORKLOAD
    guard = staticmethod(user_workload)

    def context(self) -> tuple[object, ...]:
        streams = RandomStreams(1), TokenStreams()
        return (Traffic(BuildContext(("workload",), Path(), *streams)),)

    def test_workload_every_iteration_yields_the_same(self, make_workload: MakeWorkload) -> None:
        """As does every other workload that the fixture makes."""
        workload = make_workload()
        first = list(map(_facts, every_request(workload)))
        assert list(map(_facts, every_request(workload))) == first
        assert list(map(_facts, every_request(make_workload()))) == first

    def test_workload_requests_are_counted_and_in_order(self, make_workload: MakeWorkload) -> None:
        """Open-loop requests come in order of arrival; the ids of all requests are unique."""
        workload = make_workload()
        rids = [request.spec.rid for request in every_request(workload)]
        assert len(rids) == len(set(rids)) == workload.num_requests > 0
        arrivals_ns = [request.spec.arrival_ns for request in workload.arrivals()]
        assert arrivals_ns == sorted(arrivals_ns)
        assert all(time_ns >= 0 for time_ns in arrivals_ns)

    def test_workload_requests_can_be_served(self, make_workload: MakeWorkload) -> None:
        """Each has a prompt and an output of at least one token."""
        for request in every_request(make_workload()):
            spec = request.spec
            assert len(spec.prompt) == len(spec.prompt.token_ids()) >= 1
            assert request.script.num_tokens >= 1
            assert spec.max_new_tokens >= 1
