"""Rates of flows on shared links: against a linear program, and what must hold for all rates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from sim.des.transfers.links import Flow, Network, rate_of

_GB_S = rate_of(1.0)
pairs = st.tuples(st.integers(0, 3), st.integers(0, 3))


def rates_gb_s(flows, outgoing, incoming, fabric=0.0):
    """The rate of each flow `(source, target)` on links with these bandwidths."""
    network = Network(rate_of(fabric))
    sources = [network.link(rate_of(each), is_outgoing=True) for each in outgoing]
    targets = [network.link(rate_of(each), is_outgoing=False) for each in incoming]
    made = [Flow(n, sources[s], targets[t], 10**9) for n, (s, t) in enumerate(flows)]
    for flow in made:
        network.add(flow, 0)
    network.share(0)
    return [flow.rate / _GB_S for flow in made]


def fairest(flows, outgoing, incoming, fabric):
    """The same by linear programs: raise the least rate, fix who cannot have more, and go on."""
    rows, limits = [], []
    for number, limit in enumerate(outgoing):
        rows.append([float(source == number) for source, _ in flows])
        limits.append(limit)
    for number, limit in enumerate(incoming):
        rows.append([float(target == number) for _, target in flows])
        limits.append(limit)
    if fabric:
        rows.append([1.0] * len(flows))
        limits.append(fabric)
    fixed = {}
    while len(fixed) < len(flows):
        is_open = [number not in fixed for number in range(len(flows))]
        # The unknowns are all rates and, at the end, the least of those that are open.
        least = solve([0.0] * len(flows) + [-1.0], rows, limits, fixed, is_open)[-1]
        for number in np.flatnonzero(is_open):
            goal = [-float(n == number) for n in range(len(flows))] + [0.0]
            most = solve(goal, rows, limits, fixed, is_open, at_least=least)[number]
            if most < least + 1e-6:
                fixed[number] = least
    return [fixed[number] for number in range(len(flows))]


def solve(goal, rows, limits, fixed, is_open, at_least=0.0):
    matrix, bounds = [[*row, 0.0] for row in rows], list(limits)
    for number, open_ in enumerate(is_open):
        if open_:
            matrix.append([-float(n == number) for n in range(len(is_open))] + [1.0])
            bounds.append(0.0)
    ranges = [(fixed[n], fixed[n]) if n in fixed else (0, None) for n in range(len(is_open))]
    result = linprog(goal, A_ub=matrix, b_ub=bounds, bounds=[*ranges, (at_least - 1e-9, None)])
    assert result.status == 0, result.message
    return result.x


def test_equal_flows_share_a_link_equally():
    assert rates_gb_s([(0, 0)] * 4, [8.0], [100.0]) == [2.0] * 4


def test_a_flow_gets_what_others_cannot_use():
    """Target 0 is full with three flows; the sender of one of them gives the rest to target 1."""
    flows = [(0, 0), (1, 0), (2, 0), (2, 1)]
    assert rates_gb_s(flows, [6.0] * 3, [6.0] * 2) == [2.0, 2.0, 2.0, 4.0]


def test_a_full_fabric_limits_all_but_slower_flows():
    flows = [(0, 0), (1, 1), (2, 2)]
    assert rates_gb_s(flows, [1.0, 9.0, 9.0], [9.0] * 3, fabric=7.0) == [1.0, 3.0, 3.0]


@given(
    flows=st.lists(pairs, min_size=1, max_size=7),
    outgoing=st.lists(st.sampled_from([1.0, 2.0, 5.0, 12.5]), min_size=4, max_size=4),
    incoming=st.lists(st.sampled_from([1.0, 3.0, 5.0, 25.0]), min_size=4, max_size=4),
    fabric=st.sampled_from([0.0, 2.0, 7.0, 100.0]),
)
def test_rates_are_those_of_linear_programs(flows, outgoing, incoming, fabric):
    rates = rates_gb_s(flows, outgoing, incoming, fabric)
    assert rates == pytest.approx(fairest(flows, outgoing, incoming, fabric), abs=1e-5)


@given(st.data(), st.sampled_from([0, rate_of(3.5)]))
def test_after_every_change_rates_are_as_if_computed_anew(data, fabric):
    """Nor does any link carry too much, and each flow has a full link on which none is faster."""
    network = Network(fabric)
    sources = [network.link(rate_of(1.0), is_outgoing=True) for _ in range(4)]
    targets = [network.link(rate_of(1.0), is_outgoing=False) for _ in range(4)]
    alive, number = [], 0
    for now_ns in range(data.draw(st.integers(1, 12))):
        for flow in data.draw(
            st.lists(st.sampled_from(alive), unique=True) if alive else st.just([])
        ):
            alive.remove(flow)
            network.remove(flow, now_ns)
        for source, target in data.draw(st.lists(pairs, max_size=4)):
            alive.append(Flow(number, sources[source], targets[target], 10**6))
            network.add(alive[-1], now_ns)
            number += 1
        network.share(now_ns)
        flows = [(sources.index(flow.source), targets.index(flow.target)) for flow in alive]
        anew = rates_gb_s(flows, [1.0] * 4, [1.0] * 4, fabric / _GB_S)
        assert [flow.rate / _GB_S for flow in alive] == pytest.approx(anew, abs=1e-5)
        for flow in alive:
            held_up = False
            for link in (flow.source, flow.target, network.fabric):
                if not link.capacity:
                    continue
                unused = link.capacity - sum(each.rate for each in link.flows.values())
                assert unused >= 0
                is_full = unused < 4 * len(alive)
                held_up |= is_full and all(
                    each.rate <= flow.rate + len(alive) for each in link.flows.values()
                )
            assert held_up
