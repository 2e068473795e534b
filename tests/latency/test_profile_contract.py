"""Latency profiles keep the contract of latency models."""

import pytest

from sim.latency.profile.format import read_profile
from sim.latency.profile.model import ProfileLatency
from sim.testing.contracts import LatencyModelContract


class TestProfileLatency(LatencyModelContract):
    """Profiles with and without tables, graphs and knees, and one whose range all steps exceed."""

    @pytest.fixture(params=["tables", "flat", "one knot", "no time", "normal"])
    def make_model(self, request, profile_data, write):
        decode = profile_data["modes"]["decode"]
        if request.param == "flat":
            decode["correction"] = None
            profile_data["graph_sizes"] = []
        elif request.param == "one knot":
            decode["correction"]["axes"][1]["knots"] = [7.0]
            decode["correction"]["factors"] = [[1.1], [1.2], [0.9], [1.0]]
        elif request.param == "no time":
            for section in profile_data["modes"].values():
                section["terms"] = [{"term": "constant", "ns": 0.0}]
        profile = read_profile(write(profile_data))
        return lambda: ProfileLatency(profile, overlaps=request.param != "normal")
