"""Host memory for the KV of retracted requests."""

import pytest

from sim.sglang.scheduler.retracted_kv import RetractedKV


def test_retracted_kv_fills_whole_pages_until_there_is_no_room():
    backups = RetractedKV(48, page_size=16)
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
    assert RetractedKV(capacity, page_size=1).keep("a", 10**9) is fits
