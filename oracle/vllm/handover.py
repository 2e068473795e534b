"""The other side of a handover: what the workers of vLLM's NIXL connector report, and when.

`NixlConnector` itself runs, as the scheduler has it. Its workers, which copy KV between two
servers, are replaced: a row of the workload says how long after its load began (decode role), or
after its end (prefill role), KV is there, or has left. A load may fail.
"""

from heapq import heappop, heappush
from typing import Any

from vllm.config.kv_transfer import KVTransferConfig
from vllm.v1.outputs import KVConnectorOutput

from oracle.vllm.offload import offload_config

Config = dict[str, Any]

_KV_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
_NS_PER_S = 1_000_000_000


def transfer_config(config: Config) -> KVTransferConfig | None:
    """Settings of vLLM's connector; None: the server computes prompts and decodes."""
    offload = offload_config(config) if "offload" in config else None
    if "role" not in config:
        return None if offload is None else KVTransferConfig(engine_id="here", **offload)
    role = {
        "kv_role": _KV_ROLES[config["role"]],
        "kv_buffer_device": "cuda",
        "kv_load_failure_policy": config["kv_load_failure_policy"],
    }
    sends = {"kv_connector": "NixlConnector", **role}
    if offload is None:
        return KVTransferConfig(engine_id="here", **sends)
    return KVTransferConfig(
        kv_connector="MultiConnector",
        engine_id="here",
        kv_connector_extra_config={"connectors": [sends, offload]},
        **role,
    )


def transfer_params(config: Config, rid: str) -> Config | None:
    """What the router adds to a request: as vLLM's own examples of routers do."""
    if "role" not in config:
        return None
    if config["role"] == "prefill":
        return {"do_remote_decode": True, "do_remote_prefill": False}
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": ([1],),
        "remote_engine_id": "there",
        "remote_request_id": rid,
        "remote_host": "there",
        "remote_port": 1,
        "tp_size": 1,
    }


def is_sent(result: Any) -> bool:
    """Whether the KV of a request that has ended on a prefill server stays until it is fetched.

    A victim of version 0.19.0 may have none, and stay because its blocks are copied.
    """
    blocks = (result.kv_transfer_params or {}).get("remote_block_ids", ())
    return any(blocks)


class Workers:
    """Stands in for the workers of one server; events are (time, number, rid, ...)."""

    def __init__(self, config: Config) -> None:
        self.role: str | None = config.get("role")
        self._has_groups = "kv_cache_groups" in config
        self._events: list[tuple[int, int, str, bool, frozenset[int]]] = []
        self._num_events = 0

    @property
    def next_ns(self) -> int | None:
        """When the next thing happens that a worker could report."""
        return self._events[0][0] if self._events else None

    def begin(
        self, decided: Any, scripts: dict[str, Any], now_ns: int, _device_free_ns: int
    ) -> int:
        """Start what a decision wants to be loaded; returns when its step is launched."""
        metadata = getattr(decided, "kv_connector_metadata", None)
        for rid, meta in (metadata.reqs_to_recv if metadata else {}).items():
            blocks = meta.local_block_ids[0] if meta.local_block_ids else ()
            # A request that waits for KV, none of which any layer still reads, is reported, too
            # (nixl/pull_worker.py). Older versions have nothing that says so.
            if getattr(meta, "awaiting_kvs", False) or any(meta.local_block_ids):
                script = scripts[rid]
                fails = bool(script.handover.get("fails"))
                script.load = [now_ns] if self._has_groups else [now_ns, len(blocks)]
                self._add(script, now_ns, fails=fails, blocks=frozenset(blocks))
        return now_ns

    def launched(self, _decided: Any, _now_ns: int, _device_free_ns: int) -> bool:
        """A step is launched; returns whether the next one has something to do for it: nothing."""
        return False

    def ended(self, script: Any, now_ns: int) -> None:
        """A request has ended on a prefill server, which keeps its KV until it is fetched."""
        if self.role == "prefill":
            self._add(script, now_ns)

    def _add(
        self, script: Any, now_ns: int, *, fails: bool = False, blocks: frozenset[int] = frozenset()
    ) -> None:
        due_ns = now_ns + round(script.handover["after_s"] * _NS_PER_S)
        heappush(self._events, (due_ns, self._num_events, script.rid, fails, blocks))
        self._num_events += 1

    def report(self, now_ns: int) -> KVConnectorOutput | None:
        """What has happened until now; reported once.

        vLLM's workers report sets of names. These are lists: the order in which a server frees
        blocks would be that of a set otherwise.
        """
        if not (self._events and self._events[0][0] <= now_ns):
            return None
        done: list[str] = []
        failed: dict[str, frozenset[int]] = {}
        while self._events and self._events[0][0] <= now_ns:
            _, _, rid, fails, blocks = heappop(self._events)
            done.append(rid)
            if fails:
                failed[rid] = blocks
        if self.role == "prefill":
            return KVConnectorOutput(finished_sending=done)
        # Of several groups of layers, numbers of blocks do not say whose they are.
        invalid = set() if self._has_groups else set().union(*failed.values())
        output = KVConnectorOutput(finished_recving=done, invalid_block_ids=invalid)
        if hasattr(output, "failed_recving"):
            output.failed_recving = set(failed)
        return output
