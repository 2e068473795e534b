"""The interface of a scheduler family: everything in which SGLang's and vLLM's servers differ."""

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from sim.core.errors import InputError
from sim.workload.results import ResultFormat

if TYPE_CHECKING:
    from sim.core.batch import Executor
    from sim.core.flags import Command
    from sim.engine.core import EngineCore
    from sim.engine.page_pool import PagePool
    from sim.engine.parts import Role
    from sim.engine.ranks import RankRules
    from sim.engine.scheduler import BaseScheduler
    from sim.family.launch_command import LaunchCommand, ServerSettings
    from sim.family.section import ImportedSection, ServerSection
    from sim.latency.config import Parallelism
    from sim.server_log.engine_log import EngineLog
    from sim.server_log.records import LoggedServer
    from sim.server_metrics.scrape import MetricNames


def in_module(place: str) -> Any:
    """A method that is the function `module:function`, whose module is loaded by its first call."""

    def method(_family: "Family", *args: Any, **named: Any) -> Any:
        module, _, function = place.partition(":")
        return getattr(import_module(module), function)(*args, **named)

    return method


class Family:
    """Base class of a family; `sim.families.FAMILIES` has one instance of each.

    Methods import their modules when they are called, so a run loads only its own family.

    Attributes:
        name: the name in a scenario, `scheduler: {family: NAME}`.
        title: the name in texts for people, for example `vLLM`.
        result_formats: files that `simulate import` reads: logs of such servers, and results of
            their benchmarks.
        policy_key: the section's key that orders the waiting queue.
        step_tokens_key: the section's key that limits the new tokens of a step.
        rows_key: the section's key that limits the requests that run at a time.
        decodes_after_prefill: a decode server gets a request when its prompt is computed, not when
            it arrives.
        send_queues: queues of a server for KV that it sends; 0: none waits for another.
        host_memory_keys: the section's keys that give a server host memory for KV.
        storage: the section's key paths, with values, that let it use a store below that.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    result_formats: ClassVar[Sequence[ResultFormat]] = ()
    policy_key: ClassVar[str]
    step_tokens_key: ClassVar[str]
    rows_key: ClassVar[str]
    decodes_after_prefill: ClassVar[bool] = False
    send_queues: ClassVar[int] = 0
    host_memory_keys: ClassVar[Sequence[str]] = ()
    storage: ClassVar[Mapping[str, Any]] = {}

    def policies(self) -> tuple[str, ...]:
        """The orders of the waiting queue that have names, first come, first served first."""
        raise NotImplementedError

    def section(self) -> "type[ServerSection]":
        """The pydantic model of a scenario's section `scheduler`."""
        raise NotImplementedError

    def build(self, config: Any, pool: "PagePool") -> "BaseScheduler[Any]":
        """A scheduler with an empty queue and an empty cache.

        `pool` has the configured size; a family may use a pool of its own instead.
        """
        raise NotImplementedError

    def role(
        self, config: Any, scheduler: "BaseScheduler[Any]", executor: "Executor"
    ) -> "Role | None":
        """What a new server does for requests that it shares; None: it shares none."""
        return None

    def rank_rules(
        self, config: Any, engines: "Sequence[EngineCore]", num_front_ends: int = 1
    ) -> "RankRules":
        """The rules for the ranks of a group, one engine each.

        Raises InputError: servers of this family have no ranks.
        """
        raise InputError(f"family {self.name} has no ranks", key=("latency", "dp"))

    def check(self, engine: "EngineCore") -> None:
        """Verify the family's own invariants between two steps, for example of its KV memory.

        Raises InvariantError: an invariant is broken.
        """

    @property
    def checks_model(self) -> bool:
        """Whether the engine's HTTP server refuses a request that names another model."""
        return False

    def metric_names(self) -> Mapping[str, str]:
        """The engine's names of the metrics that a simulated server shows, see `sim.api.metrics`.

        An empty mapping: the engine has no names for them.
        """
        return {}

    def metrics(self) -> "MetricNames | None":
        """The names of the metrics that a real server has; None: they are not known."""
        return None

    def printed_pool(self, num_tokens: int) -> str:
        """The size of the KV pool as the engine prints it when it starts."""
        return f"KV pool: {num_tokens:,} tokens"

    def overlaps(self, settings: Mapping[str, Any]) -> bool:
        """Whether a server with these recorded settings (`ServerConfig.as_dict`) overlaps steps."""
        raise NotImplementedError

    def launch_command(self, section: Any, searched: Collection[str] = ()) -> "LaunchCommand":
        """The command that launches a real server with the settings of a section.

        The flags of `searched` keys are written even if they have the server's defaults.
        """
        raise NotImplementedError

    def parallel_flags(self, spread: "Parallelism") -> tuple[str, ...]:
        """The flags that spread the model over several GPUs."""
        raise NotImplementedError

    def in_role(self, launch: "LaunchCommand", section: Any, role: str) -> "LaunchCommand":
        """The command with the flags of a role (`sim.engine.server_config`).

        `launch` is the result of `launch_command` for the section, with more flags.
        """
        return launch

    def router_command(
        self, hosts: Mapping[str, Sequence[str]], routers: Mapping[str, str]
    ) -> "LaunchCommand | None":
        """The command of the engine's own router before several servers; None: it has none.

        `hosts` are those of all servers by role, `routers` the kinds of the routers for servers of
        each role.
        """
        return None

    def read_launch(self, command: "Command", system: str) -> "ServerSettings | None":
        """The settings of a launch command that a user wrote; None: it is not of this family.

        `system` is the GPU, by its name in `latency.system`; some defaults depend on it.
        """
        raise NotImplementedError

    def gpu_defaults(self, system: str) -> dict[str, int]:
        """Keys of the section whose defaults a real server takes from the GPU, with these values.

        `system` is the GPU, by its name in `latency.system`.
        """
        return {}

    def pools_of_model(
        self, model: str, settings: Mapping[str, Any], num_stages: int
    ) -> tuple[dict[str, Any], list[str]]:
        """The keys of pools that a real server makes for a model's layers, unless told otherwise.

        Also notes on those that are left out. `model` is as a launch command or results name it;
        nothing follows from one that is not known.
        `settings` are the keys that are known.
        """
        return {}, []

    def imported_section(
        self, known_settings: Mapping[str, object], sizes: Sequence[int], model: str = ""
    ) -> "ImportedSection":
        """The section `scheduler` of a scenario for a measured run.

        `known_settings` are those that the results contain, by section key. `sizes` are the largest
        number of tokens of each request, prompt and output together: if the results do not contain
        the pool's size, the pool gets room for all of them. `model` is the scenario's, whose layers
        may need pools of their own; empty: none.
        """
        raise NotImplementedError

    def host_memory(self, size_gb: float, *, num_gpus: int, num_ranks: int) -> dict[str, float]:
        """The section's key paths and values that give a server so much host memory for KV.

        Raises InputError: its servers have none, or not in this size.
        """
        raise InputError(f"host memory for KV is not simulated for family {self.name}")

    def check_storage(self, *, has_host_memory: bool) -> None:
        """Raise InputError if its servers cannot use a store."""
        if not self.storage:
            raise InputError(f"a store for KV is not simulated for family {self.name}")
        if not has_host_memory:
            raise InputError(f"{self.title} has a store for KV only below host memory")

    def engine_log(self) -> "EngineLog | None":
        """A new reader of the lines of a server's own log; None: there is none."""
        return None

    def launch_of_log(self, server: "LoggedServer") -> "Command":
        """The launch command of a server whose log was read, as `read_launch` takes it."""
        raise NotImplementedError

    def measured_pool(
        self, server: "LoggedServer", settings: Mapping[str, Any], model: str, tp: int
    ) -> dict[str, Any]:
        """The section's key for the size of the pool that a server measured; empty: not known.

        `server` is what its log says, `settings` are the other keys of the section; `tp` GPUs share
        a layer.
        """
        raise NotImplementedError
