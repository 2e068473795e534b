"""Every two features that go together are simulated; docs/reference/features.md says which do."""

from collections import defaultdict
from dataclasses import replace

import pytest

from reference.feature_page import built_pair, cell_of
from reference.features import FEATURES, pairs
from sim.commands.running.simulate import simulate_here
from sim.core.errors import InputError
from sim.des.servers import RunOptions

PAIRS = defaultdict(list)
for _family in FEATURES:
    for _features in pairs(_family):
        PAIRS[_family, _features[-1].name].append(_features)


def decisions(built, path, options):
    """What all servers decided, as the decision log has it, after a run with these options."""
    log, _ = simulate_here(built, replace(options, decisions=path))
    assert len(log.requests.rid) == built.workload.num_requests
    assert "finished" in log.requests.status
    return path.read_bytes()


@pytest.mark.parametrize(("family", "feature"), PAIRS)
def test_feature_goes_with_every_other_or_is_refused(family, feature, tmp_path):
    """Step by step with all invariants checked, and fast-forward, which decides the same."""
    for features in PAIRS[family, feature]:
        names = " and ".join(each.name for each in features)
        try:
            built = built_pair(family, features)
        except InputError:
            continue  # the page has the line
        slow = RunOptions(fast_forward=False, check=True)
        checked = decisions(built, tmp_path / "slow", slow)
        assert decisions(built, tmp_path / "fast", RunOptions()) == checked, names


@pytest.mark.parametrize("family", FEATURES)
def test_every_feature_alone_is_simulated(family):
    """So that each cell is about two features, and not about a mistake in one."""
    assert [each.name for each in FEATURES[family] if cell_of(family, (each,)).line] == []


def test_cells_tell_compared_from_tested_and_refused():
    """One of each, which no work on the scheduler changes."""
    of = {each.name: each for each in FEATURES["sglang"]}

    def letter(*names):
        return cell_of("sglang", tuple(of[name] for name in names)).letter

    assert letter("mixed steps", "no overlap") == "C"
    assert letter("no cache", "turns") == "T"
    assert letter("host memory", "no cache") == "R"
