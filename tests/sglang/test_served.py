"""What requests have been given, for policies that share a server by service."""

import pytest

from sim.core.request import Status
from sim.sglang.served import Served
from sim.testing.contracts.policies import waiting_request


@pytest.fixture
def request_of_30():
    return waiting_request("r", (1, 30))


def counts(served, waiting=()):
    return [service[1:] for service in served.since_last(waiting)]


def test_prompt_counts_once_when_it_is_admitted(request_of_30):
    """With what was cached of it; a waiting request has been given nothing."""
    served = Served()
    assert counts(served, [request_of_30]) == counts(served, [request_of_30]) == []
    request_of_30.scheduled_ns, request_of_30.cached_tokens = 0, 20
    assert counts(served) == [(30, 20, 0, False)]
    assert counts(served) == []


def test_output_tokens_count_as_they_become_known(request_of_30):
    """Also after a retraction, in which the prompt does not count again."""
    served = Served()
    served.since_last([request_of_30])
    request_of_30.scheduled_ns, request_of_30.num_generated = 0, 1
    assert counts(served) == [(30, 0, 1, False)]
    request_of_30.num_generated = 4
    assert counts(served, [request_of_30]) == [(0, 0, 3, False)]
    request_of_30.num_generated = 5
    assert counts(served) == [(0, 0, 1, False)]


def test_request_that_is_over_is_told_once(request_of_30):
    served = Served()
    served.since_last([request_of_30])
    request_of_30.scheduled_ns, request_of_30.status = 0, Status.RUNNING
    assert served.running == [request_of_30]
    request_of_30.num_generated, request_of_30.status = 2, Status.FINISHED
    assert served.running == []
    assert counts(served) == [(30, 0, 2, True)]
    assert counts(served) == []


def test_request_that_never_ran_is_over_without_service(request_of_30):
    """Its client has given up."""
    served = Served()
    served.since_last([request_of_30])
    request_of_30.status = Status.ABORTED
    assert counts(served) == [(0, 0, 0, True)]
