"""The key `plan.memory`: memory for KV beside the GPU's that a search for deployments tries."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from sim.scenario.store_section import Store
from sim.validation import KeysError, StrictModel

_Price = Annotated[float, Field(ge=0, le=1e9)]


class MemorySection(StrictModel):
    """Host memory and stores that are tried, and what they cost. All GPUs need a price, too.

    docs/how-to/memory.md explains it.
    """

    dram_gb: Annotated[
        tuple[Annotated[float, Field(ge=0, le=10**6)], ...], Field(strict=False, min_length=1)
    ] = (0.0,)
    """Sizes of host memory for KV to try, those of a server; its GPUs, or ranks, have equal parts.
    0: none. Unit: GB, that is 10**9 bytes."""
    dram_price_per_gb_hour: _Price | None = None
    """Price of a GB of host memory for an hour. Required if there is any in `dram_gb`. Unit:
    money."""
    store_tb: Annotated[
        tuple[Annotated[float, Field(ge=0, le=10**6)], ...], Field(strict=False, min_length=1)
    ] = (0.0,)
    """Sizes of the store below host memory to try: those of a server's own, or of all servers' if
    it is shared. 0: none. Unit: TB, that is 10**12 bytes."""
    store_price_per_tb_hour: _Price | None = None
    """Price of a TB of the store for an hour. Required if there is any in `store_tb`. Unit:
    money."""
    store: Store | None = None
    """The store, as in the scenario's `store`, without a size. Required if there is any in
    `store_tb`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("dram_gb", "store_tb"):
            sizes = getattr(self, name)
            if len(set(sizes)) < len(sizes):
                raise KeysError(f"{name} has a size twice", name)
        prices = (
            ("dram_gb", "dram_price_per_gb_hour"),
            ("store_tb", "store_price_per_tb_hour"),
            ("store_tb", "store"),
        )
        for name, needed in prices:
            if any(getattr(self, name)) and getattr(self, needed) is None:
                raise KeysError(f"{name} needs {needed}", name)
        if self.store is not None and self.store.has_capacity:
            raise KeysError("store has no size here: store_tb lists the sizes to try", "store")
        return self
