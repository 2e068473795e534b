"""Chooses an executor from the options of a command."""

import os

from sim.core.errors import InputError
from sim.workers.executor import TaskExecutor
from sim.workers.process_pool import ProcessPool
from sim.workers.ray_cluster import RayCluster


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def choose_executor(
    jobs: int | None, *, ray: bool, ray_address: str | None, forks: bool = True
) -> TaskExecutor:
    """The executor of `--jobs`, `--executor` and `--ray-address`; `forks` as for `ProcessPool`.

    Without `jobs` there is a worker for each core, of this machine or of the cluster. Without a
    `ray_address` the cluster is on this machine.
    """
    if ray:
        return RayCluster(jobs, ray_address)
    if ray_address is not None:
        raise InputError("--ray-address: goes with --executor ray")
    return ProcessPool(jobs or num_cores(), forks=forks)
