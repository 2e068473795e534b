"""How much of a request is in CPU memory, with groups of layers and chunks of 4 tokens."""

import pytest

from sim.engine.request import OutputTokens
from sim.vllm.cache.single_type_manager import KVCacheSpec
from sim.vllm.offload.host_memory import HostMemory
from sim.vllm.offload.policies import Access
from sim.vllm.offload.search import ChunkSearch, OffloadGroup
from sim.vllm.offload.settings import OffloadSettings
from sim.vllm.request import RequestBlocks
from tests.support.workloads import scripted

FULL = KVCacheSpec("full_attention")
STATE = KVCacheSpec("mamba")


def window(size):
    return KVCacheSpec("sliding_window", size)


def search(specs, there, *, num_tokens=21, num_found=0, being_written=(), drafter=None, loading=()):
    """What is found; `there` and others have (group, place) of chunks in CPU memory.

    `drafter`: the group that has a drafter's layers.
    """
    host = HostMemory(OffloadSettings(num_chunks=99))
    groups = [
        OffloadGroup(number, spec, 4, has_drafter=number == drafter)
        for number, spec in enumerate(specs)
    ]
    chunks = ChunkSearch(host, groups, 2, 2)
    kv = RequestBlocks(scripted("a", (1, num_tokens), output=1).spec.prompt, OutputTokens(0, 0))
    keys = {each: chunks.key(kv, each[1], each[0]) for each in (*there, *being_written)}
    access = Access()
    host.store(list(keys.values()), access)
    host.stored([keys[each] for each in there], access)
    return chunks.num_loadable(kv, num_tokens, num_found, {keys[each] for each in loading}, access)


def chunks(group, *places):
    return [(group, place) for place in places]


@pytest.mark.parametrize(
    ("specs", "there", "expected"),
    [
        ([FULL], chunks(0, 0, 1, 3), 8),
        ([window(5)], chunks(0, 1, 2), 12),
        ([window(5)], chunks(0, 2), 0),
        ([window(5)], chunks(0, 0, 2), 4),
        ([FULL, window(5)], [*chunks(0, 0, 1, 2, 3), *chunks(1, 1, 2)], 12),
        ([STATE, FULL], [*chunks(0, 1, 3), *chunks(1, 0, 1, 2)], 8),
        ([KVCacheSpec("chunked_local_attention", 8)], chunks(0, 1, 2), 12),
    ],
)
def test_layers_need_what_their_next_token_attends_to(specs, there, expected):
    assert search(specs, there) == expected


def test_wide_windows_are_asked_again_when_others_end_earlier():
    """The wide window ends behind chunk 4, the small one behind chunk 2, where no wide one does."""
    wide, small = chunks(0, 2, 3, 4), chunks(1, 1, 2)
    assert search([window(12), window(5)], [*wide, *small]) == 0
    assert search([window(12), window(5)], [*chunks(0, 0, 1), *wide, *small]) == 12


def test_a_prefix_ends_a_token_early_where_layers_look_back():
    assert search([FULL], chunks(0, 0, 1), num_tokens=8) == 8
    assert search([window(5)], chunks(0, 0, 1), num_tokens=8) == 7
    assert search([STATE], chunks(0, 0, 1), num_tokens=8) == 4


def test_a_chunk_that_is_written_or_loaded_is_waited_for():
    assert search([FULL], chunks(0, 0), being_written=chunks(0, 1)) is None
    assert search([window(5)], chunks(0, 1), being_written=chunks(0, 2)) is None
    both = [*chunks(0, 0, 1, 2), *chunks(1, 0, 1, 2)]
    assert search([FULL, window(5)], both, loading=chunks(1, 2)) is None
    assert search([FULL, window(5)], both, loading=chunks(1, 0)) == 12


def test_what_is_found_on_the_gpu_is_left_out():
    assert search([FULL], chunks(0, 0, 1, 2), num_found=6) == 6
    assert search([FULL], chunks(0, 0, 1), num_found=6) == 0
    assert search([FULL], chunks(0, 0, 1, 2), drafter=0) == 8


def test_a_drafters_group_needs_one_more_chunk():
    """It is left out once for each prefix that the others agree on."""
    both = [*chunks(0, 0, 1, 2), *chunks(1, 1, 2)]
    assert search([FULL, window(5)], [*both, (1, 0)], drafter=0) == 8
    assert search([FULL, window(5)], both, drafter=1) == 0
    assert search([FULL, window(5)], [*both, (1, 0)], drafter=1) == 8
    assert search([FULL, window(5)], [*both, (1, 3)], drafter=1) == 12
