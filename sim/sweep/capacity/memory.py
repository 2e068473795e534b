"""Memory beside the GPU's that a candidate of a search for deployments has, and what it costs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from sim.core.errors import InputError
from sim.families import family_named
from sim.latency.config import Parallelism
from sim.scenario.explain import ContradictionError
from sim.scenario.search_sections import MemorySection
from sim.scenario.strict_yaml import YamlValue

BYTES_PER_GB, BYTES_PER_TB = 1e9, 1e12
_SECONDS_PER_HOUR = 3600.0
_PER_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Memory:
    """Host memory and a store.

    Attributes:
        dram_gb: host memory of a server; 0: none.
        store_tb: the size of each server's store, or of that of all servers; 0: none.
        is_shared: all servers have one store together.
        dram_price: of all host memory of a server, per hour.
        store_price: of a store, per hour.
    """

    dram_gb: float
    store_tb: float
    is_shared: bool
    dram_price: float
    store_price: float

    @property
    def price_of_server(self) -> float:
        """What each further server costs per hour."""
        return self.dram_price + (0.0 if self.is_shared else self.store_price)

    @property
    def price_of_all(self) -> float:
        """What is paid once per hour, however many servers there are."""
        return self.store_price if self.is_shared else 0.0

    def num_bytes(self, num_servers: float) -> float:
        """The bytes of KV that this number of servers keeps at most, beside their GPUs."""
        dram, store = self.dram_gb * BYTES_PER_GB, self.store_tb * BYTES_PER_TB
        return num_servers * dram + (1 if self.is_shared else num_servers) * store

    @property
    def tiers(self) -> tuple[float, float]:
        """The bytes of a server's host memory, and of a store."""
        return self.dram_gb * BYTES_PER_GB, self.store_tb * BYTES_PER_TB

    def in_words(self) -> list[str]:
        """`DRAM 256 GB`, `shared store 4 TB`; nothing of what it has not."""
        store = "shared store" if self.is_shared else "store"
        words = [f"DRAM {self.dram_gb:g} GB"] if self.dram_gb else []
        return words + ([f"{store} {self.store_tb:g} TB"] if self.store_tb else [])


def memories(section: MemorySection) -> Iterator[Memory]:
    """Every combination of sizes, small ones first."""
    is_shared = section.store is not None and section.store.shared
    for dram_gb, store_tb in product(sorted(section.dram_gb), sorted(section.store_tb)):
        yield Memory(
            dram_gb,
            store_tb,
            is_shared,
            dram_gb * (section.dram_price_per_gb_hour or 0.0),
            store_tb * (section.store_price_per_tb_hour or 0.0),
        )


def memory_settings(
    memory: Memory, section: MemorySection, family: str, spread: Parallelism
) -> dict[str, YamlValue]:
    """The settings, by key path, of a server of a family with this memory.

    Args:
        memory: the sizes.
        section: the section that lists them, with the store.
        family: the name of the server's family.
        spread: how the server is spread over GPUs; each of its ranks has memory of its own.

    Raises:
        ContradictionError: servers of this family have no such memory, or not in this size.
    """
    found = family_named(family)
    settings: dict[str, YamlValue] = {}
    try:
        if memory.dram_gb:
            sizes = found.host_memory(memory.dram_gb, num_gpus=spread.num_gpus, num_ranks=spread.dp)
            settings |= {f"scheduler.{key}": value for key, value in sizes.items()}
        if memory.store_tb:
            found.check_storage(has_host_memory=bool(memory.dram_gb))
    except InputError as error:
        raise ContradictionError(error.reason) from None
    if memory.store_tb and section.store is not None:
        store = section.store.model_dump(exclude_none=True)
        settings["store"] = {**store, "capacity_gb": memory.store_tb * 1e3}
        settings |= {f"scheduler.{key}": value for key, value in found.storage.items()}
    return settings


Value = TypeVar("Value")


def without_absent(
    settings: Mapping[str, Value], memory: Memory | None, family: str
) -> dict[str, Value]:
    """The settings without those of memory that a candidate does not have.

    None: sizes are not searched for, so all settings stay.
    """
    if memory is None:
        return dict(settings)
    found = family_named(family)
    absent: list[str] = []
    if not memory.dram_gb:
        absent += [f"scheduler.{key}" for key in found.host_memory_keys]
    if not memory.store_tb:
        absent += ["store", *(f"scheduler.{key}" for key in found.storage)]
    return {
        key: value
        for key, value in settings.items()
        if not any(f"{key}.".startswith(f"{each}.") for each in absent)
    }


def cost_per_million_tokens(
    cost_per_hour: float | None, tokens_per_s: float | None
) -> float | None:
    """The price of a million prompt and output tokens together; None: there is none."""
    if cost_per_hour is None or not tokens_per_s:
        return None
    return cost_per_hour / (tokens_per_s * _SECONDS_PER_HOUR) * _PER_MILLION
