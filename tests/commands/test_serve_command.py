"""`simulate serve` as a command: how it ends, what it keeps, and which options it refuses."""

import gzip
import json
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from sim.commands import recorded_scenario
from sim.core.errors import InputError
from tests.commands.test_served_pools import SMALL_PREFILL, Served

LONG = {"prompt": "a", "max_tokens": 200, "ignore_eos": True, "stream": True}


def traffic():
    """What clients sent, as the run's folder has it."""
    with gzip.open("mine/workload.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


@contextmanager
def started(scenario, sigint):
    """The command in a process, which finds SIGINT handled in this way; yields it and its URL."""
    command = [sys.executable, "-m", "sim", "serve", scenario, "--port", "0", "--out", "mine"]
    before = signal.signal(signal.SIGINT, sigint)
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        try:
            yield process, re.search(r"http://[^/]+", process.stdout.readline())[0]
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("sent", "sigint"),
    [
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGINT, signal.SIG_IGN),  # as a script's `simulate serve &` starts it
        (signal.SIGTERM, signal.SIG_IGN),
    ],
)
def test_signal_lets_answers_end_and_writes_the_run(scenario, sent, sigint):
    with started(scenario, sigint) as (process, url):
        asking = httpx.stream("POST", f"{url}/v1/completions", json=LONG, timeout=240)
        with asking as response:
            lines = response.iter_lines()
            next(lines)
            process.send_signal(sent)
            last = [line for line in lines if line][-1]
        out, err = process.communicate(timeout=240)
    said = "simulate: step times: a formula of the scenario: nothing is claimed\n"
    assert (process.returncode, err, last) == (0, said, "data: [DONE]")
    assert out == "1 requests served: see mine\n"
    assert [each["output_len"] for each in traffic()] == [200]
    assert Path("mine/summary.json").exists()


def test_traffic_is_written_though_nothing_else_can_be(folder, monkeypatch):
    """A disk that is full when the tables are written keeps what nobody can make again."""

    def full(*_):
        raise InputError("mine/requests.parquet: cannot be written: No space left on device")

    served = Served(SMALL_PREFILL)
    served.ask(100, 20)
    served.now_ns += 10**12
    monkeypatch.setattr(recorded_scenario, "write_out_dir", full)
    with pytest.raises(InputError, match="No space left"):
        recorded_scenario.write_run(served.server, served.built, Path("mine"))
    assert [len(each["input_ids"]) for each in traffic()] == [100]
    assert Path("mine/scenario.yaml").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--api-key", ""), "--api-key, or SERVETWIN_API_KEY: must have printable ASCII"),
        (("--api-key", "a b"), "--api-key, or SERVETWIN_API_KEY: must have printable ASCII"),
        (("--api-key", "ä"), "--api-key, or SERVETWIN_API_KEY: must have printable ASCII"),
        (("--allowed-host", "a*"), "--allowed-host a*: must be a host name, *.DOMAIN or *"),
        (("--allowed-host", "*."), "--allowed-host *.: must be a host name, *.DOMAIN or *"),
        (("--allowed-host", "http://a"), "--allowed-host http://a: must be a host name, *.DOMAIN"),
    ],
)
def test_options_that_answer_nobody_are_refused(simulate, scenario, options, reason):
    ended = simulate("serve", scenario, *options)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith(f"simulate: {reason}")


def test_key_may_be_in_the_environment(simulate, scenario, monkeypatch):
    monkeypatch.setenv("SERVETWIN_API_KEY", "a b")
    assert simulate("serve", scenario).err.startswith(
        "simulate: --api-key, or SERVETWIN_API_KEY: must"
    )
