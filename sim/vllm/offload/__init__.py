"""KV offloading to CPU memory, as vLLM's connectors have it.

A server copies the full blocks of prompts to CPU memory, in chunks of one or more blocks, and loads
them back when a later request begins like an earlier one whose blocks are gone from the GPU.

    policies.py     which chunks leave CPU memory when it is full: `lru`, `arc`
    host_memory.py  which chunks are in CPU memory, and which may leave it
    events.py       tells a listener which blocks are in CPU memory
    copies.py       when copies begin and end
    search.py       how much of a waiting request is there, for all groups of layers
    offloaded.py    what is known of a request
    given.py        which blocks a decision gives to requests
    connector.py    what the scheduler does: what it loads, what it stores, what it waits for
    copying.py      what both connectors have in common
    role.py         what its workers do in steps
    tier.py         what lies below CPU memory: who reads and writes, and when
    lookups.py      what is looked up there
    pressure.py     when it is too slow for what is stored

The other connector, SimpleCPUOffloadConnector, has a second pool of blocks there:

    host_blocks.py  the blocks in CPU memory
    simple.py       what the scheduler does
    lazy.py         which free blocks on the GPU are stored before they are allocated

docs/explanation/offloading.md has the rules.
"""
