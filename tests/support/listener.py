"""What listens to live servers in tests that do not ask what it hears."""

from sim.engine.records import RequestRecord


class SilentListener:
    """A `sim.des.live.Listener` that does nothing."""

    def generated(self, rid: str, num_tokens: int) -> None:
        pass

    def over(self, record: RequestRecord) -> None:
        pass
