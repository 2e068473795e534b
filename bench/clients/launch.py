"""Runs a benchmark's client of SGLang or vLLM in an environment without their kernels.

    python bench/clients/launch.py sglang --backend sglang ...
    python bench/clients/launch.py vllm --backend openai ...

The clients import their whole package. What they do not call has stand-ins.
"""

import runpy
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

# Nothing of this project but the stand-ins: modules beside this file have common names.
sys.path[0] = ""
sys.path.append(str(Path(__file__).parents[2]))

from sim.installed.inside.placeholders import install_placeholders  # noqa: E402

_NOT_CALLED = {
    "sglang": ("av", "torchvision"),
    "vllm": ("llguidance", "xgrammar"),
}


def main() -> None:
    client = sys.argv.pop(1)
    install_placeholders([name for name in _NOT_CALLED[client] if find_spec(name) is None])
    if client == "sglang":
        runpy.run_module("sglang.benchmark.serving", run_name="__main__", alter_sys=True)
        return
    # What `vllm bench serve` does; the command itself loads every other command too.
    bench = import_module("vllm.benchmarks.serve")
    parser = import_module("vllm.utils.argparse_utils").FlexibleArgumentParser()
    bench.add_cli_args(parser)
    bench.main(parser.parse_args())


if __name__ == "__main__":
    main()
