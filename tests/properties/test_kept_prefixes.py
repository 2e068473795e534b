"""KV that a policy keeps after its requests: every request is served, and fast-forward is exact.

With chunks, mixed steps, host memory, priorities, fairness rules, limits and pipelines.
"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sim.sglang.config import UserRule, UserRules
from sim.sglang.policies.policy import CacheAware, CacheBlind
from tests.properties.test_second_pools import check_run, perhaps_with_stages
from tests.support.random_scenarios import random_scenarios, scheduler_configs

MS = 10**6


def keeper(base, times_ns):
    """A policy that keeps KV for one of these times, and serves kept sessions first."""

    class Keeps(base):
        def __init__(self, config):
            super().__init__(config)
            self.keeper = self

        def keep_ns(self, request, now_ns):
            return times_ns[(request.spec.arrival_ns + request.prompt_len) % len(times_ns)]

        def order(self, waiting, view):
            return sorted(waiting, key=lambda request: request.spec.session not in view.kept)

    return Keeps


@st.composite
def keeping(draw):
    """Any server with such a policy; requests belong to a few sessions."""
    scenario = draw(random_scenarios(scheduler_configs()))
    times = st.sampled_from((0, 1, 3 * MS, 50 * MS, 10**12, 1 << 62))
    times_ns = draw(st.lists(times, min_size=1, max_size=5))
    policy = keeper(draw(st.sampled_from((CacheBlind, CacheAware))), times_ns)
    config = draw(perhaps_with_stages(scenario.config))
    config = replace(config, user=UserRules(schedule_policy=UserRule("keeps", policy)))
    return replace(scenario, config=config, replicas=1)


@given(keeping())
def test_whatever_is_kept_every_request_is_served(scenario):
    """Everything that is kept is let go in the end, and no page is lost."""
    check_run(scenario)
