"""Simulated devices whose step times are known, and logs of their steps."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from calibrate.cli import main
from sim.runlog.run_log_file import write_run_log

FINGERPRINT = {
    "device": "made up",
    "driver": "1.0",
    "num_threads": None,
    "model": "tiny",
    "dtype": "bfloat16",
}
GRAPH_SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
DECODE_ROWS = (*GRAPH_SIZES, 3, 6, 12, 40, 80, 112, 160, 224, 288, 384)
CONTEXTS = (16, 128, 512, 1_024, 2_048, 4_096, 8_192)
PREFILL_TOKENS = (16, 32, 64, 96, 128, 160, 192, 256, 384, 512, 1_024, 2_048, 4_096, 8_192)


def padded(rows):
    """Rows of the smallest decode graph that has room for these rows; 0 if there is none."""
    return next((size for size in GRAPH_SIZES if size >= rows), 0)


def line_of(mode, prefill, rows, context):
    """The line of a run log for a step of this composition."""
    return {
        "mode": mode,
        "prefill": [["", *row] for row in prefill],
        "n_decode": rows,
        "ctx": context + sum(cached + new for cached, new in prefill),
        "padded_rows": padded(rows) if mode == "decode" else 0,
        "max_decode_ctx": 2 * context // rows if rows else 0,
    }


@dataclass
class Device:
    """True times of steps, with relative noise; each `hiccup_every`-th takes ten times as long."""

    extend_ns: object
    decode_ns: object
    noise: float = 0.002
    hiccup_every: int = 0
    seed: int = 1
    rng: np.random.Generator = field(init=False)
    num_measured: int = 0

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)

    def point(self, mode, prefill, rows, context, **more):
        prefill_tokens = sum(new for _, new in prefill)
        pairs = sum(new * (cached + new / 2) for cached, new in prefill)
        cached = sum(cached for cached, _ in prefill)
        if mode == "decode":
            true_ns = self.decode_ns(rows, padded(rows), context)
        else:
            # A decode row in a mixed step costs what a token does, and its context.
            true_ns = self.extend_ns(prefill_tokens + rows, pairs, len(prefill), cached)
            true_ns += 8 * context
        self.num_measured += 1
        hiccup = self.hiccup_every and self.num_measured % self.hiccup_every == 0
        noisy_ns = true_ns * (1 + self.noise * self.rng.standard_normal()) * (10 if hiccup else 1)
        return {
            "kind": "point",
            **line_of(mode, prefill, rows, context),
            "forward_ns": int(noisy_ns),
            "forward_iqr_ns": 0,
            "repeats": 5,
            "plan_ns": 40_000,
            "launch_ns": 20_000,
            "sample_ns": 5_000,
            "read_back_ns": 10_000,
            **more,
        }

    def decodes(self):
        for rows in DECODE_ROWS:
            for mean in CONTEXTS:
                yield self.point("decode", [], rows, rows * mean)

    def extends(self):
        for tokens in PREFILL_TOKENS:
            for cached in (0, 256, 1_024, 4_096):
                yield self.point("extend", [(cached, tokens)], 0, 0)
            for rows in (2, 4):
                yield self.point("extend", [(128, tokens // rows)] * rows, 0, 0)

    def mixed(self):
        for tokens in PREFILL_TOKENS[::2]:
            for cached in (0, 1_024):
                for rows in (1, 8, 64, 200):
                    for mean in (256, 2_048):
                        yield self.point("mixed", [(cached, tokens)], rows, rows * mean)


def linear_device(**options):
    """Step times that are exactly of the fitted form."""
    return Device(
        extend_ns=lambda tokens, pairs, rows, cached: (
            400_000 + 2_000 * tokens + 0.05 * pairs + 3_000 * rows + 4 * cached
        ),
        decode_ns=lambda rows, graph, context: (
            200_000
            + 8_000 * (graph or rows)
            + 1_500 * rows
            + 8 * context
            + (0 if graph else 300_000)
        ),
        **options,
    )


def bent_device(**options):
    """Memory-bound for few tokens, then compute-bound; attention costs more in small batches."""
    return Device(
        extend_ns=lambda tokens, pairs, rows, cached: (
            200_000 + max(1e6, 1e6 * tokens / 184) + max(0.02 * pairs, 5 * (cached + tokens))
        ),
        decode_ns=lambda rows, graph, context: (
            100_000 + max(1e6, 1e6 * (graph or rows) / 184) + max(2e5, 9 * context)
        ),
        **options,
    )


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Every test runs in its own empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def log_in():
    """Writes lines as a run log into a folder; returns its path."""

    def to_disk(place, lines, name="a.jsonl", *, fingerprint=None, **meta):
        head = {"source": "profile", "fingerprint": {**FINGERPRINT, **(fingerprint or {})}}
        write_run_log(place / name, {**head, **meta}, lines)
        return place / name

    return to_disk


@pytest.fixture
def write_log(folder, log_in):
    """Writes lines as a run log into the test's own folder; returns its path."""
    return partial(log_in, Path())


@pytest.fixture
def calibrate(capsys):
    """Run `calibrate` with these arguments in this process: exit code, stdout, stderr."""

    def run(*arguments):
        capsys.readouterr()
        code = main(list(map(str, arguments)))
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def refuse(calibrate):
    """Run `calibrate` with these arguments, which must fail; returns the one line."""

    def run(*arguments):
        code, out, err = calibrate(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("calibrate: ")
        assert len(err.splitlines()) == 1
        return err.removeprefix("calibrate: ").removesuffix("\n")

    return run


@pytest.fixture(scope="session")
def linear():
    """Makes a device of linear times."""
    return linear_device


@pytest.fixture(scope="session")
def bent():
    """Makes a device whose times bend."""
    return bent_device


@pytest.fixture(scope="session")
def step_line():
    """Makes a step of a run. The log's first line says whether steps overlap."""

    def make(number, mode, prefill, rows, context, *, forward_ns, host_ns):
        start_ns = number * 10_000_000
        return {
            "kind": "step",
            "replica": 0,
            "step": number,
            "t_decided_ns": start_ns,
            "t_start_ns": start_ns,
            "t_end_ns": start_ns + forward_ns,
            "t_known_ns": start_ns + forward_ns,
            "looks_ns": [],
            "host_ns": host_ns,
            "forward_ns": forward_ns,
            "free": 0,
            "evictable": 0,
            "used": 0,
            "queue": 0,
            **line_of(mode, prefill, rows, context),
        }

    return make
