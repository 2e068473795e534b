"""What every workload promises."""

from collections.abc import Callable
from pathlib import Path

from sim.testing.contracts.contract import Contract
from sim.user.objects import UserObject
from sim.workload.context import BuildContext
from sim.workload.rng import RandomStreams, TokenStreams
from sim.workload.user_workload import WORKLOAD, Traffic, UserWorkload
from sim.workload.workload import ScriptedRequest, Workload, every_request

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
        return UserWorkload(user)

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
