"""Server pools through the Python API."""

import pandas as pd
import pytest
import yaml

import servetwin
from tests.support.disaggregated import DISAGGREGATED, TOGETHER


@pytest.mark.parametrize("text", [DISAGGREGATED, TOGETHER])
def test_a_saved_run_is_loaded_with_its_pools(text, tmp_path):
    """Its table of requests has the same columns and values, but for rounding to files."""
    run = servetwin.run(yaml.safe_load(text))
    run.save(tmp_path / "run")
    loaded = servetwin.load(tmp_path / "run")
    assert loaded.summary["pools"] == run.summary["pools"]
    pd.testing.assert_frame_equal(loaded.requests, run.requests)
    assert set(run.requests["pool"]) == ({"decode"} if text is DISAGGREGATED else {"old", "new"})
    html = run._repr_html_()
    assert "KV used" in html
    assert ("wait for memory" in html) == (text is DISAGGREGATED)


def test_settings_of_pools_are_compared():
    """As any other setting, by key path."""
    compared = servetwin.compare(
        {
            "one": servetwin.run(yaml.safe_load(DISAGGREGATED), {"pools.decode.replicas": 1}),
            "two": servetwin.run(yaml.safe_load(DISAGGREGATED), {"pools.decode.replicas": 2}),
        }
    )
    assert (compared.frame.loc["mean_transfer_ms"] > 0).all()
