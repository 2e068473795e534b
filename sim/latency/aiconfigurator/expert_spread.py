"""Experts spread over a number of GPUs that was not measured: between two numbers that were.

In every step a GPU reads the weights of its experts. So with as many tokens on each rank, the time
of the experts is taken to be linear in their number on a GPU, that is, in 1 / (number of GPUs).
"""

from collections.abc import Iterator

from sim.latency.aiconfigurator.deployment import PartParallelism

# The widest spread that was measured has one of DeepSeek's 256 experts on each GPU.
_MOST_GPUS = 256


def spreads_around(
    parallelism: PartParallelism,
) -> tuple[Iterator[PartParallelism], Iterator[PartParallelism]]:
    """Deployments over powers of two of GPUs: narrower ones and wider ones, the nearest first."""
    moe_ep = parallelism.moe_ep
    narrower = (1 << power for power in reversed(range(1, (moe_ep - 1).bit_length())))
    wider = (1 << power for power in range(moe_ep.bit_length(), _MOST_GPUS.bit_length()))
    return _over(parallelism, narrower), _over(parallelism, wider)


def _over(parallelism: PartParallelism, sizes: Iterator[int]) -> Iterator[PartParallelism]:
    for size in sizes:
        if size % parallelism.tp == 0:
            yield parallelism._replace(dp=size // parallelism.tp, moe_ep=size)


def share_of_narrow(moe_ep: int, narrow: int, wide: int) -> float:
    """How much of the narrower spread's time counts; the rest is of the wider one's."""
    return (1 / moe_ep - 1 / wide) / (1 / narrow - 1 / wide)
