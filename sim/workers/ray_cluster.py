"""Runs tasks on a Ray cluster, remote or local. Only this module loads Ray, when it is used."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, Self

from sim.core.errors import InputError
from sim.extras import how_to_install
from sim.workers.executor import (
    Outcomes,
    R,
    Runner,
    Task,
    TaskOutcome,
    TaskStatus,
    TraceCache,
    W,
    code_version,
    run_task,
)
from sim.workers.process_pool import THREAD_SETTINGS


class RayCluster:
    """A `TaskExecutor` of Ray actors with one core each.

    Every machine of the cluster needs this version of servetwin, and the scenario's files under
    the same paths. Used as a context manager, it keeps the connection and the actors from one run
    to the next. All runs must then have the same runner.

    Args:
        jobs: the number of actors; None: one for each core of the cluster.
        address: that of the cluster's head, or `auto`; None: a new cluster on this machine.
    """

    def __init__(self, jobs: int | None, address: str | None = None) -> None:
        self._ray = _load_ray()
        self._jobs = jobs
        self._address = address
        # Actors without a task; those with one belong to the run.
        self._idle: list[Any] = []
        self._is_connected = self._stays_connected = False

    def __enter__(self) -> Self:
        self._stays_connected = True
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._disconnect()

    def run(self, tasks: Iterable[Task[W]], runner: Runner[W, R]) -> Outcomes[R]:
        waiting, is_over = iter(tasks), False
        try:
            # A cluster takes seconds to start.
            for first in islice(waiting, 1):
                yield from self._run(chain((first,), waiting), runner)
            is_over = True
        finally:
            if not (is_over and self._stays_connected):
                self._disconnect()

    def _run(self, waiting: Iterator[Task[W]], runner: Runner[W, R]) -> Outcomes[R]:
        ray = self._connected()
        # A dead actor is not restarted, nor its task run again: it could kill another actor.
        actor_class = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(RayWorker)
        code = code_version()
        running: dict[Any, tuple[Any, str]] = {}

        def give(actor: Any, task: Task[W]) -> None:
            running[actor.run.remote(task, code)] = (actor, task.key)

        jobs = self._jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))
        for task in islice(waiting, jobs):
            give(self._idle.pop() if self._idle else actor_class.remote(runner), task)
        while running:
            [done], _ = ray.wait(list(running), num_returns=1)
            actor, key = running.pop(done)
            try:
                outcome = ray.get(done)
            except ray.exceptions.RayError as error:
                reason = " ".join(str(error).split())
                outcome = TaskOutcome(key, TaskStatus.FAULT, message=f"the worker ended: {reason}")
                actor = actor_class.remote(runner)
            if (next_task := next(waiting, None)) is None:
                self._idle.append(actor)
            else:
                give(actor, next_task)
            yield outcome

    def _connected(self) -> Any:
        if not self._is_connected:
            _connect(self._ray, self._address, self._jobs)
            self._is_connected = True
        return self._ray

    def _disconnect(self) -> None:
        """Actors end with the connection."""
        self._idle, is_connected = [], self._is_connected
        self._is_connected = False
        if is_connected:
            self._ray.shutdown()


class RayWorker:
    """A Ray actor that runs tasks, with one trace cache for all of them."""

    def __init__(self, runner: Runner[Any, Any]) -> None:
        self._runner = runner
        self._read_trace = TraceCache()

    def run(self, task: Task[Any], code: str) -> TaskOutcome[Any]:
        """The outcome of a task, if this machine has the code that the work was planned with."""
        if (ours := code_version()) != code:
            message = f"the cluster runs servetwin {ours}, this machine {code}"
            return TaskOutcome(task.key, TaskStatus.FAULT, message=message)
        return run_task(task, self._runner, self._read_trace)


def _load_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise InputError(f"--executor ray needs Ray: {how_to_install('ray')}") from None
    return ray


def _connect(ray: Any, address: str | None, jobs: int | None) -> None:
    options: dict[str, Any] = {"address": address} if address else {"address": "local"}
    if not address and jobs is not None:
        options["num_cpus"] = jobs
    try:
        ray.init(
            runtime_env={"env_vars": THREAD_SETTINGS},
            log_to_driver=False,
            logging_level="warning",
            include_dashboard=False if not address else None,
            **options,
        )
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"--ray-address {address or '(local)'}: {reason}") from error
