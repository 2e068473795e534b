"""Measured operator times from the package aiconfigurator-core, an optional extra.

Only this module imports the package, and only for scenarios that ask for it: it has 110 MB.
This follows version 0.12: databases and their versions come from `sdk.perf_database`, times from
the ad-hoc operator lists of `sdk.engine.EngineHandle`. No network is needed.
"""

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sim.core.errors import InputError
from sim.core.messages import unknown_name
from sim.latency.aiconfigurator.operators import (
    AttentionOperator,
    Elementwise,
    EmbeddingLookup,
    MatrixProduct,
    TokenOperator,
)

_DISTRIBUTION = "aiconfigurator-core"
# Head widths of common models. Error messages list those that were measured.
_HEAD_DIMS = (64, 80, 96, 128, 192, 256, 512)


@lru_cache(maxsize=4)
def open_database(system: str, backend: str, wanted_version: str | None) -> "PackageDatabase":
    """The measurements on `system` of the kernels that `backend` uses.

    All replicas share one database, because it has no state and opening it takes half a second and
    60 MB.

    Args:
        system: the package's name of the GPU, for instance `h200_sxm`.
        backend: `sglang`, `vllm` or `trtllm`.
        wanted_version: the backend's version; None: the newest one that was measured in full.

    Raises:
        InputError: the package is absent, or has no such database.
    """
    try:
        package_version = version(_DISTRIBUTION)
    except PackageNotFoundError:
        raise InputError(
            f"kind aiconfigurator needs the package {_DISTRIBUTION}"
            " (pip install 'servetwin[aiconfigurator]')",
            key=("latency",),
        ) from None
    # The package logs a warning when it takes rows from another model's table. No error is lost:
    # a question that it cannot answer raises an exception.
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
    from aiconfigurator_core.sdk import perf_database

    database_version = _known_version(perf_database, system, backend, wanted_version)
    database = perf_database.get_database(system, backend, database_version)
    place = f"{_DISTRIBUTION} {package_version} (NVIDIA, Apache-2.0), {system}, {backend}"
    if database is None:
        raise InputError(f"{place}: cannot load {database_version}", key=("latency", "version"))
    return PackageDatabase(database, f"{place} {database_version}")


def _known_version(
    perf_database: Any, system: str, backend: str, wanted_version: str | None
) -> str:
    """The version to open. An error about an unknown name says which names there are."""
    versions: dict[str, str] | None = perf_database.get_version_slots(system, backend)
    if versions is None:
        supported = perf_database.get_supported_databases()
        if system not in supported:
            reason = unknown_name("system", system, supported)
            raise InputError(reason, key=("latency", "system"))
        reason = unknown_name(f"backend on {system}", backend, supported[system])
        raise InputError(reason, key=("latency", "backend"))
    if wanted_version is None:
        return versions["current"]
    if wanted_version not in versions.values():
        what = f"version of {backend} on {system}"
        reason = unknown_name(what, wanted_version, versions.values())
        raise InputError(reason, key=("latency", "version"))
    return wanted_version


class PackageDatabase:
    """An `OperatorDatabase` over a database of the package, whose classes have no type hints."""

    def __init__(self, database: Any, source: str) -> None:
        from aiconfigurator_core.sdk import common, engine, operations

        self._database = database
        self._source = source
        self._engine, self._operations = engine, operations
        self._weights = common.GEMMQuantMode.bfloat16
        self._kv = common.KVCacheQuantMode.bfloat16
        self._scores = common.FMHAQuantMode.bfloat16
        self._handle = engine.EngineHandle.for_database(database)

    @property
    def source(self) -> str:
        return self._source

    def token_timer(self, operators: Sequence[TokenOperator]) -> Callable[[int], float]:
        ops_json = self._engine.build_ops_json([self._operator(operator) for operator in operators])
        ask = partial(self._time_ms, ops_json, partial(_describe_products, operators), batch_size=1)
        return lambda num_tokens: ask(s=num_tokens, x=num_tokens)

    def prefill_timer(self, attention: AttentionOperator) -> Callable[[int, int, int], float]:
        describe = partial(self._describe_attention, attention)
        ask = partial(self._time_ms, self._prefill_json(attention), describe)
        return lambda rows, new, cached: ask(batch_size=rows, s=new, prefix=cached)

    def decode_timer(self, attention: AttentionOperator) -> Callable[[int, int], float]:
        repeats, *heads, head_dim = attention
        operator = self._operations.GenerationAttention(
            "attention", repeats, *heads, self._kv, head_size=head_dim
        )
        ops_json = self._attention_json(operator, "_generation_attention_data")
        describe = partial(self._describe_attention, attention)
        ask = partial(self._time_ms, ops_json, describe, is_context=False)
        return lambda rows, context: ask(batch_size=rows, s=context)

    def _operator(self, operator: TokenOperator) -> Any:
        """The package's object for an operator; it takes our fields in the same order."""
        if isinstance(operator, MatrixProduct):
            return self._operations.GEMM(*operator, self._weights)
        if isinstance(operator, Elementwise):
            return self._operations.ElementWise(*operator)
        if isinstance(operator, EmbeddingLookup):
            return self._operations.Embedding(operator.name, 1, operator.num_rows, operator.width)
        return self._operations.CustomAllReduce(*operator)

    def _prefill_json(self, attention: AttentionOperator) -> str:
        repeats, *heads, head_dim = attention
        operator = self._operations.ContextAttention(
            "attention", repeats, *heads, self._kv, self._scores, head_size=head_dim
        )
        return self._attention_json(operator, "_context_attention_data")

    def _attention_json(self, operator: Any, table: str) -> str:
        """The operator as JSON, set to try kernels in the same order as the backend."""
        from aiconfigurator_core.sdk.operations.attention import resolved_lane_order_for_op

        operator._lane_order = resolved_lane_order_for_op(self._database, table)
        ops_json: str = self._engine.build_ops_json([operator])
        return ops_json

    def _time_ms(
        self, ops_json: str, describe: Callable[[], str], *, is_context: bool = True, **sizes: int
    ) -> float:
        try:
            times = self._handle.evaluate_ops_json(ops_json, is_context=is_context, **sizes)
        except (RuntimeError, ValueError):
            # The package's own message is a page of table keys.
            reason = f"{self._source}: no data for {describe()}"
            raise InputError(reason, key=("latency",)) from None
        return float(sum(time_ms for _, time_ms, _, _ in times))

    def _describe_attention(self, attention: AttentionOperator) -> str:
        found = [width for width in _HEAD_DIMS if self._knows(attention, width)]
        known = f"; it has heads of width {', '.join(map(str, found))}" if found else ""
        heads = f"{attention.num_heads} query and {attention.num_kv_heads} KV heads"
        return f"attention of {heads} of width {attention.head_dim}{known}"

    def _knows(self, attention: AttentionOperator, head_dim: int) -> bool:
        ops_json = self._prefill_json(attention._replace(head_dim=head_dim))
        try:
            self._handle.evaluate_ops_json(ops_json, is_context=True, batch_size=1, s=1)
        except (RuntimeError, ValueError):
            return False
        return True


def _describe_products(operators: Sequence[TokenOperator]) -> str:
    products = [operator for operator in operators if isinstance(operator, MatrixProduct)]
    sizes = ", ".join(f"{product.width_in} x {product.width_out}" for product in products)
    return f"one of the matrix products {sizes}"
