"""The scheduler of a server that computes prompts for decode servers.

A request ends with its first token. Its blocks stay until they have been fetched.

vLLM 0.33.0: `request_finished`
(distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py), `_free_request` and
`_update_from_kv_xfer_finished` (v1/core/sched/scheduler.py).
"""

from collections.abc import Iterable

from sim.engine.scheduler import Decision
from sim.vllm.cache.manager import BlockManager
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmRequest
from sim.vllm.scheduler.lockstep_scheduler import LockstepScheduler

_NS_PER_S = 1_000_000_000


class VllmPrefillScheduler(LockstepScheduler):
    """As the scheduler of any server; no request decodes."""

    def __init__(self, config: VllmConfig, *, kv: BlockManager) -> None:
        super().__init__(config, kv=kv)
        # The KV of a victim is gone, and its token without it of no use (`requires_kv_delivery`).
        self._keeps_token = False
        # Requests whose blocks have not been fetched yet, in order of their first tokens.
        self._held: dict[str, VllmRequest] = {}
        self.fills_places = config.rules.fills_batch_queue
        self.looks_while_sending = config.rules.looks_while_sending

    def token_limit(self, prompt_len: int, max_new_tokens: int) -> int:
        """A router asks a prefill server for a single token."""
        return min(super().token_limit(prompt_len, max_new_tokens), 1)

    def hold(self, request: VllmRequest) -> None:
        """Its blocks stay, but its seat is free."""
        self._held[request.rid] = request
        self.admitted = [each for each in self.admitted if each is not request]
        # The watermark counts only while other requests run.
        self._admission.refused = None

    def let_go(self, request: VllmRequest) -> None:
        del self._held[request.rid]

    def lease_end_ns(self, computed_ns: int, lost_ns: int) -> int:
        """Until when blocks are kept that the decode server could not fetch.

        A decode server extends the lease every few seconds for as long as it waits for a request,
        here until the transfer is lost.
        """
        rules = self._config.rules
        return max(
            computed_ns + rules.kv_lease_s * _NS_PER_S,
            lost_ns + rules.kv_lease_extension_s * _NS_PER_S,
        )

    def _join_rows(self) -> None:
        """Nothing decodes."""

    def requests_elsewhere(self) -> Iterable[VllmRequest]:
        return [*super().requests_elsewhere(), *self._held.values()]

    def idle(self, now_ns: int, decision: Decision[VllmRequest]) -> int | None:
        return None if self._held else super().idle(now_ns, decision)
