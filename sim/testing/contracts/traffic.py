"""What every router and every workload must do."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.core.request import RequestSpec
from sim.core.tokens import ArrayPrompt, stream_token_ids
from sim.des.routers.router import Router
from sim.des.routers.table import ROUTER, GuardedRouter
from sim.testing.contracts.contract import Contract
from sim.user.objects import UserObject
from sim.workload.context import BuildContext
from sim.workload.rng import RandomStreams, TokenStreams
from sim.workload.user_workload import WORKLOAD, Traffic, user_workload
from sim.workload.workload import ScriptedRequest, Workload, every_request

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

    def guarded(self, user: UserObject) -> Router:
        return GuardedRouter(user)

    def test_choose_any_request_goes_to_one_of_the_replicas(self, make_router: MakeRouter) -> None:
        """Among one, a few or many replicas, idle or busy."""
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

    def context(self) -> tuple[object, ...]:
        streams = RandomStreams(1), TokenStreams()
        return (Traffic(BuildContext(("workload",), Path(), *streams)),)

    def guarded(self, user: UserObject) -> Workload:
        return user_workload(user)

    def test_workload_every_iteration_yields_the_same(self, make_workload: MakeWorkload) -> None:
        """As does another workload made with the same seed."""
        workload = make_workload()
        first = list(map(_facts, every_request(workload)))
        assert list(map(_facts, every_request(workload))) == first
        assert list(map(_facts, every_request(make_workload()))) == first

    def test_workload_requests_are_counted_and_in_order(self, make_workload: MakeWorkload) -> None:
        """Open-loop requests come by arrival; their ids, and those of all others, are unique."""
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
