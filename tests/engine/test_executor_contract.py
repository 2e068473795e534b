"""The scripted executor keeps the contract of its seam."""

import pytest

from sim.core.batch import ScriptedExecutor
from tests.support.executor_contract import ExecutorContract


class TestScriptedExecutor(ExecutorContract):
    """Plays scripts."""

    @pytest.fixture
    def make_executor(self):
        def make(requests):
            executor = ScriptedExecutor()
            for request in requests:
                executor.add(request.spec.rid, request.script, ignore_eos=request.spec.ignore_eos)
            return executor

        return make
