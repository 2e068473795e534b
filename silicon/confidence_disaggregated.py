"""How far to believe simulated prefill and decode servers.

    python -m silicon.confidence_disaggregated [OUTCOMES]

As `silicon.confidence`, of the deployments of docs/hardware-disaggregated.md that ran without
drafts. OUTCOMES is the file of `make silicon OUT=`.
"""

import argparse
from functools import cache
from pathlib import Path

from silicon.confidence import Sample, board, calibrated, sample_at, write
from silicon.facts import load_rows
from silicon.kept import DISAGGREGATED_FILE, keep, kept
from silicon.page import ACCURACY, write_board
from silicon.scenario import scenario_text
from silicon.scores import judged
from silicon.simulate import kept_outcomes
from sim.confidence import intervals, measured
from sim.confidence.measured import MeanLoad, point_of_pools
from sim.scenario.load import load_scenario_text


@cache
def sample_of_half(name: str) -> Sample:
    """The rows of `development` or `held-out`, with the means that are kept."""
    rows = [row for row in load_rows().values() if row.is_disaggregated_without_drafts]
    found = judged([row for row in rows if row["split"] == name], kept(DISAGGREGATED_FILE))
    points = []
    for one in found:
        loaded = load_scenario_text(scenario_text(one.row), (), name=one.row.id)
        load = MeanLoad(*(float(one.row[name]) for name in ("isl", "osl", "concurrency")))
        pools = [pool.scenario for pool in loaded.pools.values()]
        point = point_of_pools(pools, Path(), load)
        assert point is not None  # noqa: S101 - all have step times of measured operators
        points.append(point)
    return sample_at(points, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("outcomes", type=Path, nargs="?", help="JSON lines, by make silicon OUT=")
    arguments = parser.parse_args()
    if arguments.outcomes is not None:
        wanted = {one.id for one in load_rows().values() if one.is_disaggregated_without_drafts}
        outcomes = kept_outcomes(arguments.outcomes)
        keep({name: outcomes[name] for name in wanted & outcomes.keys()}, DISAGGREGATED_FILE)
        judges = sample_of_half("development")
        chosen = calibrated(judges, intervals.calibration().nearness)
        write(judges, chosen, measured.DISAGGREGATED_FILE, intervals.DISAGGREGATED_FILE)
        intervals.calibration.cache_clear()
        measured.measured_servers.cache_clear()
    servers = measured.measured_servers(disaggregated=True)
    chosen = intervals.calibration(disaggregated=True)
    table = board(servers, sample_of_half("held-out"), chosen)
    write_board("confidence-disaggregated", table, ACCURACY)


if __name__ == "__main__":
    main()
