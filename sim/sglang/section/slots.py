"""Slots of a decode server for requests whose KV is on its way."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.sglang.section.keys import SglangKeys

# Up to this many slots for each rank, there are further ones.
_FEW_SLOTS = 32
_EXTRA_PER_SLOT = 2


def extra_slots(section: "SglangKeys") -> int:
    """How many there are, beside those of requests that may run.

    Source: SGLang 0.5.23, `handle_pd_disaggregation` in arg_groups/pd_disaggregation_hook.py.
    """
    given = section.disaggregation_decode_extra_slots
    if given is not None:
        return given
    slots = section.max_running_requests
    is_given = "max_running_requests" in section.model_fields_set
    return _EXTRA_PER_SLOT * slots if is_given and slots <= _FEW_SLOTS else 0
