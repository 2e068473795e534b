"""Lists the candidates of a search for deployments: what each replica may be, each checked."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import NamedTuple

from sim.core.errors import InputError
from sim.engine.server_config import DECODE, PREFILL
from sim.latency.config import (
    AiconfiguratorLatencyConfig,
    Parallelism,
    RooflineLatencyConfig,
    parallelism,
)
from sim.latency.kv_memory import kv_bytes
from sim.scenario.explain import ContradictionError
from sim.scenario.kv_sizes import load_shapes
from sim.scenario.load import LoadedScenario
from sim.scenario.search_sections import DisaggregatedSection, PlanSection, ServerKind
from sim.scenario.strict_yaml import YamlValue
from sim.sweep.capacity.memory import Memory, memories, memory_settings, without_absent
from sim.sweep.plan import Plan, Settings, canonical

REPLICAS = "replicas"
# How many servers: (replicas,), or (prefill servers, decode servers).
Size = tuple[int, ...]
# Keys of the section `latency` that say over how many GPUs a server is spread.
DEGREES = ("tp", "dp", "pp", "moe_ep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoders:
    """The decode servers of a candidate with disaggregated servers.

    Attributes:
        degrees: as in `Candidate`, whose own degrees are then those of the prefill servers.
        num_gpus: GPUs of a server.
        loads: how many prefill servers, and how many decode servers, the traffic keeps busy: an
            estimate from step times (`sim.sweep.capacity.plan.ServerLoads`).
        settings: what is set beside the candidate's settings, by key path: the transfers, and the
            settings of the section `disaggregated`.
    """

    degrees: Mapping[str, int]
    num_gpus: int
    loads: tuple[float, float]
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What each replica of a deployment may be. The search finds how many replicas it takes.

    Attributes:
        number: from 0, in the order of the section.
        degrees: `tp`, `dp`, `pp` and `moe_ep`, as far as the latency kind has them.
        tried: the values of the server's `grid`.
        settings: everything that differs from the scenario, by key path, the above included.
        num_gpus: GPUs of a replica.
        price_per_hour: price of a GPU; None: GPUs are counted.
        max_replicas: most replicas to try; if disaggregated: most prefill and decode servers
            together.
        max_gpus: most GPUs of a deployment; None: no limit.
        reason: why it cannot run; None: nothing is known against it.
        decoders: the decode servers; None: each replica prefills and decodes.
        memory: of each server; None: sizes of memory are not searched for.
        token_bytes: of a token's KV on all GPUs of a rank, if memory is searched for and the model
            is known.
    """

    number: int
    gpu: str
    family: str
    degrees: Mapping[str, int]
    tried: Settings
    settings: Settings
    num_gpus: int
    price_per_hour: float | None
    max_replicas: int
    max_gpus: int | None = None
    reason: str | None = None
    decoders: Decoders | None = None
    memory: Memory | None = None
    token_bytes: int | None = None

    @property
    def bare_settings(self) -> Settings:
        """The settings without memory, if sizes of memory are searched for."""
        if self.memory is None:
            return self.settings
        bare = replace(self.memory, dram_gb=0.0, store_tb=0.0)
        return without_absent(self.settings, bare, self.family)

    @property
    def server_gpus(self) -> Size:
        """GPUs of a replica, or of a prefill server and of a decode server."""
        return (self.num_gpus, *(() if self.decoders is None else (self.decoders.num_gpus,)))

    def gpus(self, size: Size) -> int:
        """The GPUs of all servers, if there are `size` of them."""
        return sum(num * gpus for num, gpus in zip(size, self.server_gpus, strict=True))

    def cost(self, size: Size) -> float:
        """The price of all GPUs and of memory beside them per hour, or the number of GPUs."""
        gpus = self.gpus(size) * (self.price_per_hour or 1)
        if self.memory is None:
            return gpus
        return gpus + sum(size) * self.memory.price_of_server + self.memory.price_of_all

    @property
    def smallest(self) -> Size:
        """One replica, or one prefill server and one decode server."""
        return (1,) if self.decoders is None else (1, 1)

    def deployed(self, size: Size) -> Settings:
        """The settings with these numbers of servers."""
        if self.decoders is None:
            return {**self.settings, REPLICAS: size[0]}
        num_prefill, num_decode = size
        pools: dict[str, YamlValue] = {
            PREFILL: _pool(PREFILL, num_prefill, self.degrees),
            DECODE: _pool(DECODE, num_decode, self.decoders.degrees),
        }
        return {**self.settings, "pools": pools, **self.decoders.settings}


def candidates_of(plan: Plan, section: PlanSection) -> Iterator[Candidate]:
    """Every combination of GPU, degrees, server, memory and settings.

    Raises:
        InputError: a key path does not exist or has a wrong value. Values that only contradict
            each other make a candidate with a reason.
    """
    sizes = [None] if section.memory is None else list(memories(section.memory))
    own = plan.base.scenario.scheduler.family
    servers = [
        (one, memory)
        for kind in section.servers
        for memory in sizes
        for one in _grid(kind, memory, kind.family or own)
    ]
    choices = product(section.gpus, _degrees(plan, section), servers)
    for number, (gpu, chosen, ((kind, tried), memory)) in enumerate(choices):
        yield _candidate(plan, section, number, gpu, chosen, _Server(kind, tried, memory))


def _degrees(plan: Plan, section: PlanSection) -> list[dict[str, int]]:
    """The combinations of degrees: those that are listed, or every one."""
    if section.parallel is not None:
        latency = plan.base.scenario.latency
        ones = {name: 1 for name in DEGREES if hasattr(latency, name)}
        return [ones | dict(listed) for listed in section.parallel]
    degrees = [
        [(name, degree) for degree in listed]
        for name in DEGREES
        if (listed := getattr(section, name)) is not None
    ]
    return [dict(chosen) for chosen in product(*degrees)]


def _pool(role: str, num_servers: int, degrees: Mapping[str, int]) -> dict[str, YamlValue]:
    return {"role": role, REPLICAS: num_servers, "latency": dict(degrees)}


def pairs_of(
    section: PlanSection,
    disaggregated: DisaggregatedSection,
    together: Sequence[Candidate],
    loads: Callable[[Candidate], tuple[float, float]],
) -> Iterator[Candidate]:
    """Every pair of a prefill and a decode server of the same GPU, family and settings.

    Args:
        section: the section `plan`.
        disaggregated: its section `disaggregated`.
        together: the candidates whose replicas prefill and decode.
        loads: how many servers like a candidate's the traffic keeps busy if they only prefill, and
            how many if they only decode.
    """
    able = [one for one in together if one.reason is None and one.degrees.get("pp", 1) == 1]
    number = len(together)
    for fill, decode in product(able, able):
        kinds = [(one.gpu, one.family, one.tried) for one in (fill, decode)]
        if kinds[0] != kinds[1]:
            continue
        (prefill_load, _), (_, decode_load) = loads(fill), loads(decode)
        # The server with fewer GPUs sends, or receives, with fewer links.
        gb_s = disaggregated.gpu_bandwidth_gb_s * min(fill.num_gpus, decode.num_gpus)
        settings = {"transfer": {"bandwidth_gb_s": gb_s}, **(disaggregated.settings or {})}
        smallest = fill.num_gpus + decode.num_gpus
        is_too_large = fill.max_gpus is not None and smallest > fill.max_gpus
        reason = f"two servers have {smallest} GPUs, more than max_gpus {fill.max_gpus}"
        yield replace(
            fill,
            number=number,
            # Not that of `fill`: it may be lower, because it counts replicas with `max_gpus`.
            max_replicas=section.max_replicas,
            reason=reason if is_too_large else None,
            decoders=Decoders(
                degrees=decode.degrees,
                num_gpus=decode.num_gpus,
                loads=(prefill_load, decode_load),
                settings=settings,
            ),
        )
        number += 1


class _Server(NamedTuple):
    """A kind of server, the values of its grid that it has, and its memory."""

    kind: ServerKind
    tried: Settings
    memory: Memory | None


def _grid(
    kind: ServerKind, memory: Memory | None, family: str
) -> Iterator[tuple[ServerKind, Settings]]:
    """The combinations of a server's grid, without keys of memory that it does not have."""
    grid = without_absent(kind.grid or {}, memory, family)
    for values in product(*(kind.grid[key] for key in grid) if kind.grid else ()):
        yield kind, dict(zip(grid, values, strict=True))


def _candidate(
    plan: Plan,
    section: PlanSection,
    number: int,
    gpu: str,
    chosen: Mapping[str, int],
    server: _Server,
) -> Candidate:
    """The candidate with the degrees `chosen`; it has a reason if its settings contradict."""
    scenario, described = plan.base.scenario, section.gpus[gpu]
    own = {name: getattr(scenario.latency, name, None) for name in DEGREES}
    degrees = {name: value for name, value in (own | dict(chosen)).items() if value is not None}
    family = server.kind.family or scenario.scheduler.family
    settings = {
        **_gpu_settings(plan.base, gpu),
        **(described.settings or {}),
        **_family_settings(plan.base, family),
    }
    of_server = without_absent(
        {
            **(server.kind.settings or {}),
            **(server.kind.gpu_settings or {}).get(gpu, {}),
            **{f"latency.{name}": value for name, value in chosen.items()},
            **server.tried,
        },
        server.memory,
        family,
    )
    num_gpus = prod(degrees.get(name, 1) for name in ("tp", "dp", "pp"))
    reason, num_bytes = None, None
    try:
        if section.memory is not None and server.memory is not None:
            spread = _spread(plan, {**settings, **of_server}, server.memory, family)
            settings |= memory_settings(server.memory, section.memory, family, spread)
        settings |= of_server
        varied = plan.vary({**settings, REPLICAS: 1})
    except ContradictionError as error:
        reason = reason_of(plan, str(error))
    else:
        # Settings of the GPU or the server may have changed the degrees.
        latency = varied.scenario.latency
        degrees = {name: getattr(latency, name) for name in DEGREES if hasattr(latency, name)}
        num_gpus = parallelism(latency).num_gpus
        num_bytes = None if server.memory is None else _token_bytes(varied)
    affordable = section.max_replicas
    if section.max_gpus is not None:
        affordable = min(affordable, section.max_gpus // num_gpus)
    if not affordable:
        reason = reason or f"a replica has {num_gpus} GPUs, more than max_gpus {section.max_gpus}"
    return Candidate(
        number=number,
        gpu=gpu,
        family=family,
        degrees=degrees,
        tried=server.tried,
        settings=settings,
        num_gpus=num_gpus,
        price_per_hour=described.price_per_hour,
        max_replicas=affordable,
        max_gpus=section.max_gpus,
        reason=reason,
        memory=server.memory,
        token_bytes=num_bytes,
    )


def _token_bytes(loaded: LoadedScenario) -> int | None:
    """Bytes of a token's KV on all GPUs of a rank; None: that is not known."""
    try:
        model, _ = load_shapes(loaded.scenario, loaded.base_dir)
    except InputError:
        return None  # A trial says why such a server cannot be built.
    sizes = None if model is None else kv_bytes(model, parallelism(loaded.scenario.latency).tp)
    if sizes is None or sizes.per_request:
        return None
    return sizes.per_token + sum(of_window for _, of_window in sizes.windows)


def _spread(plan: Plan, settings: Settings, memory: Memory, family: str) -> Parallelism:
    """How a server is spread over GPUs, whatever its memory is."""
    bare = without_absent(settings, replace(memory, dram_gb=0.0, store_tb=0.0), family)
    return parallelism(plan.vary({**bare, REPLICAS: 1}).scenario.latency)


def _gpu_settings(loaded: LoadedScenario, gpu: str) -> Settings:
    match loaded.scenario.latency:
        case AiconfiguratorLatencyConfig():
            # A name in `hardware` would be that of another GPU.
            named = {} if loaded.scenario.hardware is None else {"hardware": None}
            return {"latency.system": gpu, **named}
        case RooflineLatencyConfig():
            return {"hardware": gpu}
        case _:
            return {}


def _family_settings(loaded: LoadedScenario, family: str) -> Settings:
    if family == loaded.scenario.scheduler.family:
        return {}
    settings: Settings = {"scheduler": {"family": family}}
    if isinstance(loaded.scenario.latency, AiconfiguratorLatencyConfig):
        settings = {**settings, "latency.backend": family, "latency.version": None}
    return settings


def reason_of(plan: Plan, message: str) -> str:
    """An error's message without the place in the file, which is the same for all candidates."""
    place = rf"{re.escape(str(plan.base.path))}:\d+"
    return re.sub(rf"^(.*?: plan: |{place}: )", "", message)


def in_words(candidate: Candidate) -> str:
    """`h100_sxm, tp 4, sglang, chunked_prefill_size 8192`."""
    degrees = _degrees_in_words(candidate.degrees)
    if candidate.decoders is not None:
        both = (PREFILL, degrees), (DECODE, _degrees_in_words(candidate.decoders.degrees))
        degrees = [" ".join([role, *words]) for role, words in both]
    tried = [
        f"{key.rpartition('.')[2]} {canonical(value)}" for key, value in candidate.tried.items()
    ]
    memory = [] if candidate.memory is None else candidate.memory.in_words()
    return ", ".join([candidate.gpu, *degrees, candidate.family, *memory, *tried])


def _degrees_in_words(degrees: Mapping[str, int]) -> list[str]:
    return [f"{name} {value}" for name, value in degrees.items() if value != 1] or ["tp 1"]
