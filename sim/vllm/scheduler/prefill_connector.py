"""The role of a server that computes prompts for decode servers.

A request ends with its first token. Its blocks stay until they have been fetched.

vLLM 0.33.0: `request_finished`
(distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py), `_free_request` and
`_update_from_kv_xfer_finished` (v1/core/sched/scheduler.py).
"""

from collections.abc import Iterable

from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmRequest
from sim.vllm.scheduler.connector import Connector

_NS_PER_S = 1_000_000_000


class PrefillConnector(Connector):
    """Requests whose blocks have not been fetched yet, in order of their first tokens."""

    def __init__(self, config: VllmConfig) -> None:
        super().__init__()
        self._rules = config.rules
        self._leaves_out_last = config.has_states
        self._held: dict[str, VllmRequest] = {}
        # A router asks a prefill server for a single token.
        self.most_output_tokens = 1
        self.decodes = False
        # The KV of a victim is gone, and its token without it of no use (`requires_kv_delivery`).
        self.keeps_token = False
        self.frees_skipped_first = True

    def arrived(self, request: VllmRequest) -> None:
        """With states, the decode server computes the last token of the prompt alone.

        It needs the state before that token, and would not get back to it from the one behind
        (`_prefill_backoff` of v1/nixl/base_scheduler.py).
        """
        if self._leaves_out_last and request.prompt_len > 1:
            request.prompt_len -= 1
            request.kv.prompt_len -= 1

    def hold(self, request: VllmRequest) -> None:
        self._held[request.rid] = request

    def let_go(self, request: VllmRequest) -> None:
        del self._held[request.rid]

    def requests(self) -> Iterable[VllmRequest]:
        return self._held.values()

    @property
    def waits(self) -> bool:
        return bool(self._held)

    def lease_end_ns(self, computed_ns: int, lost_ns: int) -> int:
        """Until when blocks are kept that the decode server could not fetch.

        A decode server extends the lease every few seconds for as long as it waits for a request,
        here until the transfer is lost.
        """
        return max(
            computed_ns + self._rules.kv_lease_s * _NS_PER_S,
            lost_ns + self._rules.kv_lease_extension_s * _NS_PER_S,
        )
