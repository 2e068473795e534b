"""Points on Ray, with a stand-in for Ray that runs everything in this process."""

import sys
from types import SimpleNamespace

import pytest

from sim.core.errors import InputError
from sim.sweep.plan import plan_sweep
from sim.workers.executor import Task, TaskOutcome, TaskStatus
from sim.workers.ray_cluster import RayCluster, RayWorker


class RayError(Exception):
    """Raised for the results of a dead actor."""


class StandIn:
    """The few functions of Ray that are used; seed 2 kills its actor."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self):
        self.options = None
        self.num_actors = self.num_starts = 0
        self.is_up = False

    def init(self, **options):
        if options["address"] == "nowhere:1":
            raise ConnectionError("no cluster\nthere")
        self.options, self.is_up = options, True
        self.num_starts += 1

    def shutdown(self):
        self.is_up = False

    def cluster_resources(self):
        return {"CPU": 3.0}

    def remote(self, **options):
        def wrapped(actor_class):
            def start(*arguments):
                self.num_actors += 1
                actor = actor_class(*arguments)
                return SimpleNamespace(
                    run=SimpleNamespace(remote=lambda task, code: Pending(actor, task, code))
                )

            return SimpleNamespace(remote=start)

        return wrapped

    def wait(self, pending, num_returns):
        return pending[-1:], pending[:-1]

    def get(self, pending):
        if pending.task.key == "2":
            raise RayError("the actor\ndied")
        return pending.actor.run(pending.task, pending.code)


class Pending:
    def __init__(self, actor, task, code):
        self.actor, self.task, self.code = actor, task, code


def tell_seed(loaded, read_trace):
    return {"seed": loaded.scenario.seed}


@pytest.fixture
def ray(monkeypatch):
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    return stand_in


@pytest.fixture
def tasks(with_sweep):
    plan = plan_sweep(with_sweep("seeds: [1, 2, 3, 4, 5]"))
    return [Task(str(p.settings["seed"]), plan.vary(p.settings)) for p in plan.points]


@pytest.mark.parametrize(("jobs", "actors"), [(2, 3), (None, 4)])
def test_ray_cluster_runs_every_point_once(ray, tasks, jobs, actors):
    """As many actors as asked for, or as there are cores; one more for the one that died."""
    outcomes = {o.key: o for o in RayCluster(jobs, "head:6379").run(tasks, tell_seed)}
    assert {key: o.result for key, o in outcomes.items() if o.result} == {
        str(seed): {"seed": seed} for seed in (1, 3, 4, 5)
    }
    assert outcomes["2"] == TaskOutcome(
        "2", TaskStatus.FAULT, message="the worker ended: the actor died"
    )
    assert ray.num_actors == actors
    assert ray.options["address"] == "head:6379"
    assert not ray.is_up


def test_ray_cluster_and_its_actors_serve_all_runs_of_a_context(ray, tasks):
    """Also those without tasks; a run that is cut short ends its actors, which are busy."""
    done = [task for task in tasks if task.key != "2"]
    with RayCluster(2) as cluster:
        for several in (done, [], done[:1], done):
            assert len(list(cluster.run(several, tell_seed))) == len(several)
        assert (ray.num_starts, ray.num_actors, ray.is_up) == (1, 2, True)
        outcomes = cluster.run(done, tell_seed)
        next(outcomes)
        outcomes.close()
        assert not ray.is_up
        assert len(list(cluster.run(done, tell_seed))) == len(done)
        assert (ray.num_starts, ray.num_actors) == (2, 4)
    assert not ray.is_up


def test_ray_cluster_is_not_started_without_tasks(ray):
    assert list(RayCluster(2).run([], tell_seed)) == []
    assert ray.num_starts == 0


def test_ray_cluster_that_is_not_there_is_said_so(ray, tasks):
    """One line with the address."""
    with pytest.raises(InputError, match=r"^--ray-address nowhere:1: no cluster there$"):
        list(RayCluster(1, "nowhere:1").run(tasks, tell_seed))


def test_ray_worker_with_other_code_refuses(tasks):
    """A cluster may have another version installed: its results would not be ours."""
    outcome = RayWorker(tell_seed).run(tasks[0], "0.0.1+other")
    assert outcome.status is TaskStatus.FAULT
    assert outcome.message.endswith("this machine 0.0.1+other")
