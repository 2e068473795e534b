"""Fits the time of steps with prompts to chains of steps, of which only the sums are known."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from calibrate.dataset import Sample
from calibrate.fit_mode import fit_mode
from calibrate.server_logs.times import Chain, ExtendFit, Iteration, LoggedTimes
from sim.core.batch import ForwardMode
from sim.core.units import NS_PER_S
from sim.latency.features import StepFeatures, graph_rows
from sim.latency.profile.format import DeviceModel
from sim.latency.profile.model import ModeTime


def fit_chains(
    times: Sequence[LoggedTimes], decode: DeviceModel, graphs: Sequence[int], *, seed: int
) -> ExtendFit:
    """Times of extend steps, from which a profile puts mixed steps together.

    What decode steps and decode contexts leave of a chain is divided among its steps with prompts
    in the proportions of a first fit, of a time for each step and for each new token.
    """
    chains = [chain for log in times for chain in log.chains]
    time = ModeTime(decode)
    left_ns = np.array([_left_ns(chain, time, graphs) for chain in chains])
    mixed = [[step for step in chain.steps if step.prefill_rows] for chain in chains]
    counts = np.array(
        [[len(steps), sum(step.num_new_tokens for step in steps)] for steps in mixed], dtype=float
    )
    scale = counts.max(axis=0)
    found, _ = nnls(counts / scale / left_ns[:, None], np.ones(len(left_ns)))
    step_ns, token_ns = found / scale
    samples = []
    for steps, left in zip(mixed, left_ns, strict=True):
        first_ns = [step_ns + token_ns * step.num_new_tokens for step in steps]
        samples += [
            _sample(step, left * first / sum(first_ns))
            for step, first in zip(steps, first_ns, strict=True)
        ]
    return ExtendFit(fit_mode(samples, (), num_folds=5, seed=seed).model)


def _left_ns(chain: Chain, time: ModeTime, graphs: Sequence[int]) -> float:
    """What steps with prompts took of a chain; at least a hundredth of it."""
    left_ns = wall_ns = NS_PER_S * chain.wall_s
    for step in chain.steps:
        if step.prefill_rows:
            left_ns -= time.terms.context_ns * step.context
            continue
        left_ns -= time.at(step.features(), graph_rows(step.decode_rows, graphs))
    return max(left_ns, wall_ns / 100)


def _sample(step: Iteration, device_ns: float) -> Sample:
    """A step as a profile sees mixed ones: decode rows are prefill tokens; prompts are as long."""
    rows, tokens = step.prefill_rows, step.num_new_tokens
    attention = step.features().prefill_attention
    return Sample(
        step=StepFeatures(ForwardMode.EXTEND, tokens, attention, rows, 0, 0, tokens),
        graph=0,
        device_ns=device_ns,
        host_ns=None,
        scheduling="not measured",
        max_decode_context=None,
    )
