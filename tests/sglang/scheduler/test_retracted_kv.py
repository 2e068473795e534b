"""Host memory for the KV of retracted requests."""

import pytest

from sim.sglang.cache.settings import WindowSettings
from sim.sglang.config import SchedulerConfig
from sim.sglang.scheduler.roles.preallocation_queue import RetractedKV


def backups_of(capacity, *, page_size=16, window=None):
    config = SchedulerConfig(page_size=page_size, retraction_host_tokens=capacity, window=window)
    return RetractedKV(config)


def test_retracted_kv_fills_whole_pages_until_there_is_no_room():
    backups = backups_of(48)
    assert backups.keep("a", 17)
    assert backups.used_tokens == 32
    assert not backups.keep("b", 17)
    assert backups.used_tokens == 32
    assert backups.keep("c", 16)
    backups.drop("a")
    assert backups.keep("b", 17)
    assert backups.used_tokens == 48


@pytest.mark.parametrize(("capacity", "fits"), [(0, False), (None, True)])
def test_retracted_kv_without_room_or_without_limit(capacity, fits):
    assert backups_of(capacity, page_size=1).keep("a", 10**9) is fits


def test_retracted_kv_keeps_windows_in_a_host_pool_of_their_own():
    """Of 100 tokens with a window of 20, those from the page of the 80th on: 32 in two pages."""
    backups = backups_of(1000, window=WindowSettings(20, 512, 128, retraction_host_tokens=63))
    assert backups.keep("a", 100)
    assert not backups.keep("b", 100)
    assert backups.used_tokens == 112
    assert backups.keep("c", 16)
    backups.drop("a")
    assert backups.keep("b", 100)
