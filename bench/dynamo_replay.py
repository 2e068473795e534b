"""Simulates with Dynamo 1.6.1 and prints its summary; run by the Python of Dynamo's environment.

    .peers/dynamo-1.6.1/bin/python bench/dynamo_replay.py '{"trace_files": [...], ...}'

The argument has the named arguments of `run_mocker_trace_replay`, or of
`run_mocker_synthetic_trace_replay` if it has no `trace_files`. Version 1.6 has no command line for
its replay; these are the functions that the module `dynamo.replay` calls.
"""

import json
import sys

from dynamo._core import (
    _normalize_mocker_config,
    run_mocker_synthetic_trace_replay,
    run_mocker_trace_replay,
)


def main() -> None:
    call = json.loads(sys.argv[1])
    for name in [name for name in call if name.endswith("_engine_args")]:
        call[name] = _normalize_mocker_config(call[name])
    replay = run_mocker_trace_replay if "trace_files" in call else run_mocker_synthetic_trace_replay
    json.dump(replay(**call).summary, sys.stdout)


if __name__ == "__main__":
    main()
