"""What a launch command says of a server whose step times are to be fitted."""

from pathlib import Path

import pytest

from calibrate.coefficients.scenario import FitServerOptions, draft_scenario
from sim.commands.import_results import ReadSource
from sim.workload.results.model import ImportedRequest, ServerFacts


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve m --max-num-seqs 7 -sc.method ngram -sc.num_speculative_tokens 3",
        "sglang serve m --max-running-requests 7 --speculative-algorithm NEXTN",
    ],
)
def test_drafts_are_left_out(tmp_path, command):
    """A fitted scenario gives each request one token a step; other settings stay."""
    request = ImportedRequest(rid="0", arrival_ns=0, prompt_tokens=9, output_tokens=2)
    source = ReadSource("measured", [request], ServerFacts(), ())
    options = FitServerOptions(kind=None, template=None, server=command, hardware="h100_sxm")
    scheduler = draft_scenario([source], options, Path(tmp_path)).data["scheduler"]
    assert 7 in scheduler.values()
    assert not [key for key in scheduler if key.startswith("speculative")]
