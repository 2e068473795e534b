"""Family `sglang`: all code about SGLang 0.5.23; rules: docs/explanation/sglang.md.

Where to find what SGLang calls by other names:

    here                        in SGLang 0.5.23
    scheduler/scheduler.py      Scheduler.get_next_batch_to_run
    scheduler/decode.py         update_running_batch, retract_decode, NewTokenRatioTracker; drafts
    scheduler/prefill/          _get_new_batch_prefill, PrefillAdder, PrefillDelayer
    scheduler/waiting/          the waiting queue, its limits; FAIRNESS_T and orders that are kept
    policies/                   SchedulePolicy.calc_priority
    scheduler/roles/            disaggregation/: the queues of prefill and decode servers
    scheduler/ranks.py          DataParallelController
    cache/manager.py, pages.py  what allocators and mem_cache/common.py do for requests
    cache/tree/                 UnifiedRadixCache, FullComponent, evict_policy.py
    cache/window.py             SWAComponent, SWATokenToKVPoolAllocator
    cache/states.py             MambaComponent, HybridReqToTokenPool
    cache/host/                 HiCache: cache_controller.py and mem_cache/pool_host
    section/, settings.py       ServerArgs, as keys of a scenario
    launch_flags.py             ServerArgs, as flags; read_launch.py reads them back
    results/                    bench_serving, request logs and request dumps

A part of the memory is made in cache/build.py, and told what happens by `MemoryPart` and
`TreePart`; a part of the loop is made in `SglangScheduler`.
"""
