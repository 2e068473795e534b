"""INV-7 and INV-8: no token is asked for before it is generated; the engine never stalls."""

from hypothesis import given

from sim.core.batch import ForwardMode, ScriptedExecutor
from sim.core.errors import InvariantError
from sim.engine.page_pool import PageIds
from sim.families import build_engine, check_engine
from tests.support.random_scenarios import random_scenarios


class Guarded:
    """A scripted executor that counts the tokens it gave, and raises if more are asked for."""

    def __init__(self):
        self.scripted = ScriptedExecutor()
        self.num_given = {}

    def execute(self, batch, num_steps=1):
        for row in batch.prefill:
            if row.samples:
                self.num_given[row.rid] = row.num_prior_outputs + 1
        if batch.mode is not ForwardMode.EXTEND:
            for rid in batch.decode_rids:
                self.num_given[rid] = self.num_given.get(rid, 0) + num_steps
        return self.scripted.execute(batch, num_steps)

    def output_ids(self, rid, num_tokens):
        self._check(rid, num_tokens)
        return self.scripted.output_ids(rid, num_tokens)

    def output_part(self, rid, start, stop):
        self._check(rid, stop)
        return self.scripted.output_part(rid, start, stop)

    def _check(self, rid, num_tokens):
        given = self.num_given.get(rid, 0)
        if num_tokens > given:
            raise InvariantError(f"{rid}: {num_tokens} tokens asked for, {given} generated")

    def steps_to_finish(self):
        return self.scripted.steps_to_finish()

    def forget(self, rid):
        self.scripted.forget(rid)


def drive(scenario):
    """Step an engine by hand. With overlap, results come one step late. Returns the records."""
    executor = Guarded()
    config = scenario.config
    pool = PageIds(config.pool_tokens // config.page_size, config.page_size)
    engine = build_engine(config, pool=pool, executor=executor)
    arriving = [r for r in scenario.workload.arrivals() if engine.rejection(r.spec) is None]
    records, launched, now_ns = [], [], 0
    lag = 1 if config.overlaps else 0
    for _ in range(20_000):
        while arriving and arriving[0].spec.arrival_ns <= now_ns:
            request = arriving.pop(0)
            spec = request.spec
            executor.scripted.add(spec.rid, request.script, ignore_eos=spec.ignore_eos)
            engine.submit(spec)
        decided = engine.begin_step(now_ns)
        batch = decided.batch
        records += decided.over
        if batch is not None:
            launched.append(batch)
        now_ns += 1_000_000
        if launched and (batch is None or len(launched) > lag):
            ended = launched.pop(0)
            records += engine.end_step(ended, executor.execute(ended), now_ns)
        check_engine(engine)
        if not (arriving or launched or engine.requests):
            # The next decision starts the last copies to host memory, and one after a second finds
            # that they have ended. Then all pages are free again.
            for after_s in (0, 1):
                engine.begin_step(now_ns + after_s * 1_000_000_000)
            assert engine.kv.free_tokens + engine.kv.evictable_tokens == engine.kv.pool_tokens
            return records
    raise AssertionError("the engine does not come to an end")


@given(random_scenarios())
def test_engine_any_scenario_never_asks_for_future_tokens(scenario):
    """All requests get done, in order of events, without a look ahead."""
    records = drive(scenario)
    assert len({record.spec.rid for record in records}) == len(records)
    for record in records:
        if record.status.value == "finished":
            assert record.spec.arrival_ns <= record.scheduled_ns
            assert record.scheduled_ns < record.first_token_ns <= record.finish_ns
            assert 1 <= record.output_tokens <= record.spec.max_new_tokens
