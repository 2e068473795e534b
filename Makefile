# Two commands are all the set-up a fresh machine needs: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: demo test draws fuzz lint docs notebooks bench bench-scaling bench-peers bench-page clients silicon compiled studies study-pictures policies oracle oracle-vllm oracle-vllm-cases gpu calibrate-demo clean

# The lock file pins every version; the extras say which of them are needed. What compiling needs
# comes first (as in pyproject.toml, [build-system]): it goes on while the rest is installed.
$(VENV)/.compile: pyproject.toml requirements.lock
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c requirements.lock setuptools mypy numpy simpy pydantic
	touch $@

$(VENV)/.base: $(VENV)/.compile
	$(PIP) install -c requirements.lock --no-build-isolation -e ".[compile]"
	touch $@

$(VENV)/.dev: $(VENV)/.base
	$(PIP) install -c requirements.lock --no-build-isolation -e ".[dev]"
	touch $@

# The hot modules as C, made anew when their sources have changed (docs/how-to/compiled.md).
compiled: $(VENV)/.compile
	$(BIN)/python -m sim.compiled

demo:
	$(MAKE) --no-print-directory --jobs=2 $(VENV)/.base compiled
	$(BIN)/simulate demo
	@echo "Next: source $(BIN)/activate, then simulate run scenarios/conversation.yaml, or docs/tutorial.md."

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The reference from the code, and the whole documentation as a site: site/index.html.
docs: $(VENV)/.dev
	$(BIN)/python -m reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict -q

# The notebooks with new outputs.
notebooks: $(VENV)/.dev
	$(BIN)/python -m reference.notebooks

# Tests of one file mostly run in one process: what they share is made once.
ALL_CORES := -n auto --dist worksteal

# FlashInfer's Python for tests (docs/how-to/gpu.md#without-a-gpu). Not in .venv, where a machine with a GPU
# would take it for a whole FlashInfer: it lacks the libraries that kernels are compiled with.
FLASHINFER := .flashinfer

$(FLASHINFER)/.done: requirements.lock $(VENV)/.base
	rm -rf $(FLASHINFER)
	$(PIP) install --no-deps --no-compile -c requirements.lock --target $(FLASHINFER) \
		flashinfer-python apache-tvm-ffi nvidia-ml-py
	touch $@

# What Python has compiled is kept, even where the environment says not to: hundreds of processes load
# the same modules.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

# mypy has one core to itself, while the hot modules are compiled on what else there is.
test: $(VENV)/.dev
	$(MAKE) --jobs=2 --output-sync=target lint compiled $(FLASHINFER)/.done
	$(PYTEST) $(ALL_CORES) tests

# The same properties as in `make test`, each with fifty times as many examples, other ones each
# time, and every combination of what the suite combines in pairs. About ten minutes on two cores.
draws: $(VENV)/.dev compiled
	$(PYTEST) $(ALL_CORES) --hypothesis-profile=long -m "hypothesis or long" \
		-o faulthandler_timeout=9600 tests

# Hostile inputs of all kinds (docs/how-to/fuzz.md); failing ones are kept in build/fuzz.
INPUTS ?= 2000
TIME_S ?= 900

fuzz: $(VENV)/.dev
	$(BIN)/python -m fuzz --inputs $(INPUTS) --seed $(SEED) --budget-s $(TIME_S)

bench: $(VENV)/.dev compiled $(FLASHINFER)/.done
	$(BIN)/python -m pytest tests/benchmarks -m benchmark_suite -p no:xdist --benchmark-columns=median,min,rounds --benchmark-group-by=group

# How cost grows with size; and others' simulators on the same work, each in an environment of its
# own (docs/explanation/performance.md). PEERS_ARGS="--rounds 7 --million" runs more of it.
bench-scaling: $(VENV)/.dev compiled
	$(BIN)/python -m bench.scaling

DYNAMO_1_4 := .peers/dynamo-1.4.2
DYNAMO_1_6 := .peers/dynamo-1.6.1
SCHED_SIM := .peers/sched-sim
PEERS_ARGS ?=

$(DYNAMO_1_4)/.done:
	$(PYTHON) -m venv $(DYNAMO_1_4)
	$(DYNAMO_1_4)/bin/python -m pip install -q ai-dynamo==1.4.2
	touch $@

# Its replay needs none of the packages that it depends on, some of which are not on PyPI.
$(DYNAMO_1_6)/.done:
	$(PYTHON) -m venv $(DYNAMO_1_6)
	$(DYNAMO_1_6)/bin/python -m pip install -q --no-deps ai-dynamo==1.6.1 ai-dynamo-runtime==1.6.1
	touch $@

$(SCHED_SIM)/.done:
	$(PYTHON) -m venv $(SCHED_SIM)
	$(SCHED_SIM)/bin/python -m pip install -q sched-sim==0.2.1
	touch $@

bench-peers: $(VENV)/.dev compiled $(DYNAMO_1_4)/.done $(DYNAMO_1_6)/.done $(SCHED_SIM)/.done
	$(BIN)/python -m bench.peers $(PEERS_ARGS)
	$(BIN)/python -m bench.limit
	$(BIN)/python -m bench.launches
	$(BIN)/python -m bench.agreement

# The last tables into docs/explanation/performance.md.
bench-page: $(VENV)/.dev
	$(BIN)/python -m bench.page

# Every measured server of the silicon table that can be simulated, and their pages in docs. It goes on
# where it was stopped. ROWS=file simulates the ids in a file, one a line; OUT=file.jsonl gets a line
# for each row.
silicon: $(VENV)/.dev compiled
	$(BIN)/python -m silicon $(if $(ROWS),--rows $(ROWS),--page) $(if $(OUT),--out $(OUT))
	$(if $(ROWS),,$(BIN)/python -m silicon --disaggregated --page $(if $(OUT),--out $(OUT)))
	$(if $(ROWS),,$(BIN)/python -m silicon.decisions)

# The calibration loop on the CPU, in about two minutes: measure steps, serve for real, fit a
# profile to some of the logs, judge it and the simulator by the others. A CPU's pace drifts: runs
# to fit and runs to judge by take turns.
DEMO_OUT := calibrate-demo-out
serve-demo = $(BIN)/realrun run scenarios/calibration-demo/$(1).yaml $(3) --log $(DEMO_OUT)/$(2).jsonl.gz > /dev/null
demo-logs = $(foreach name,$(1),$(DEMO_OUT)/$(name).jsonl.gz)

calibrate-demo: $(VENV)/.dev
	mkdir -p $(DEMO_OUT)
	$(BIN)/realrun profile --model tiny --budget-s 30 --max-context 384 --max-rows 8 --repeats 3 --out $(DEMO_OUT)/profile.jsonl.gz
	$(call serve-demo,fcfs,fcfs)
	$(call serve-demo,training,training)
	$(call serve-demo,lpm,lpm)
	$(call serve-demo,training,training-no-overlap,--set scheduler.disable_overlap_schedule=true)
	$(call serve-demo,no-overlap,no-overlap)
	$(call serve-demo,fcfs,fcfs-again)
	$(BIN)/calibrate fit $(call demo-logs,profile training training-no-overlap) -o $(DEMO_OUT)/tiny.json
	$(BIN)/calibrate validate $(DEMO_OUT)/tiny.json $(call demo-logs,fcfs fcfs-again lpm no-overlap) --out $(DEMO_OUT)

# The studies of docs/explanation/studies.md: all of them, or `make studies STUDY=overlap`.
STUDY ?= $(basename $(notdir $(wildcard scenarios/studies/*.yaml)))

studies: $(VENV)/.base
	mkdir -p out/studies
	set -e; for name in $(STUDY); do \
		$(BIN)/simulate sweep scenarios/studies/$$name.yaml --out out/studies/$$name; \
		$(BIN)/simulate report out/studies/$$name; \
	done

# The tables of docs/explanation/published-policies.md: all of them, or `make policies TABLE=two-tenants`.
policies: $(VENV)/.dev compiled
	$(BIN)/python -m bench.policies $(TABLE)

# The pictures of docs/explanation/studies.md are the reports' first ones, in few colours to be small.
FEW_COLOURS := import sys; from PIL import Image; \
	Image.open(sys.argv[1]).convert("RGB").quantize(64).save(sys.argv[2], optimize=True)

study-pictures: studies
	mkdir -p docs/images/studies
	set -e; for name in $(STUDY); do test -d out/studies/$$name/report || continue; \
		$(BIN)/python -c '$(FEW_COLOURS)' out/studies/$$name/report/01-*.png docs/images/studies/$$name.png; \
	done

clean:
	rm -rf $(VENV) $(FLASHINFER) build sim/compiled/builds *.egg-info

# SGLang's own scheduler on random cases, in an environment for each version: `make oracle
# SGLANG=0.5.24` tries a new one. It ends with a list of the steps that differ (oracle/README.md).
# KIND="decode drafts": servers with these parts; without it, plain ones.
N ?= 200
SEED ?= 1
KIND ?=
SGLANG ?= 0.5.23
ORACLE_VENV ?= .oracle-sglang-$(SGLANG)
empty :=
ORACLE_CASES := out/oracle/$(SGLANG)/$(or $(subst $(empty) $(empty),-,$(strip $(KIND))),plain)/$(SEED)

$(ORACLE_VENV)/.done: | $(VENV)/.base
	$(BIN)/simulate engine sglang==$(SGLANG) $(ORACLE_VENV)
	touch $@

oracle: $(VENV)/.base $(ORACLE_VENV)/.done
	$(BIN)/python -m oracle.sglang.generate $(ORACLE_CASES) $(N) $(SEED) $(KIND)
	$(ORACLE_VENV)/bin/python -m oracle.sglang.drive $(ORACLE_CASES)
	$(BIN)/python -m oracle.sglang.report $(ORACLE_CASES)

# vLLM's own scheduler in the same way: `make oracle-vllm VLLM=0.34.0`. Its package is built without
# its kernels.
VLLM ?= 0.33.0
VLLM_VENV ?= .oracle-vllm-$(VLLM)
# DRAFTS=--drafts: with speculative decoding.
DRAFTS ?=
# GROUPS=--groups: with groups of layers. ROLE=--prefill, ROLE=--decode: servers that hand requests over.
GROUPS ?=
ROLE ?=
# OFFLOAD=--offload: servers with KV in CPU memory; OFFLOAD="--offload --tiers": and below it;
# OFFLOAD="--offload --simple" (and --lazy): with vLLM's other connector.
OFFLOAD ?=
VLLM_CASES := out/oracle-vllm/$(VLLM)/$(SEED)$(DRAFTS)$(GROUPS)$(ROLE)$(OFFLOAD)
KEPT_CASES := out/oracle-vllm/$(VLLM)/kept

$(VLLM_VENV)/.done: | $(VENV)/.base
	$(BIN)/simulate engine vllm==$(VLLM) $(VLLM_VENV)
	touch $@

oracle-vllm: $(VENV)/.base $(VLLM_VENV)/.done
	$(BIN)/python -m oracle.vllm.generate $(VLLM_CASES) $(N) $(SEED) $(VLLM) $(DRAFTS) $(GROUPS) $(ROLE) $(OFFLOAD)
	$(VLLM_VENV)/bin/python -m oracle.vllm.drive $(VLLM_CASES)
	$(BIN)/python -m oracle.vllm.report $(VLLM_CASES)

# Other people's clients before simulate serve (docs/how-to/serve.md), each in an environment of its
# own: what they measure beside what was simulated. `make clients CLIENT=aiperf` takes one of them.
CLIENTS := .clients
CLIENT ?= aiperf guidellm sglang vllm

$(CLIENTS)/aiperf/.done:
	$(PYTHON) -m venv $(CLIENTS)/aiperf
	$(CLIENTS)/aiperf/bin/python -m pip install -q aiperf==0.13.0
	touch $@

$(CLIENTS)/guidellm/.done:
	$(PYTHON) -m venv $(CLIENTS)/guidellm
	$(CLIENTS)/guidellm/bin/python -m pip install -q guidellm==0.8.1
	touch $@

$(CLIENTS)/sglang/.done: bench/clients/requirements-sglang.txt
	$(PYTHON) -m venv $(CLIENTS)/sglang
	$(CLIENTS)/sglang/bin/python -m pip install -q $$(grep '^torch==' requirements.lock)
	$(CLIENTS)/sglang/bin/python -m pip install -q --no-deps sglang==0.5.23
	$(CLIENTS)/sglang/bin/python -m pip install -q -r bench/clients/requirements-sglang.txt
	touch $@

# vLLM's package without kernels is that of make oracle-vllm.
$(CLIENTS)/vllm/.done: bench/clients/requirements-vllm.txt | $(VLLM_VENV)/.done
	$(PYTHON) -m venv $(CLIENTS)/vllm
	$(CLIENTS)/vllm/bin/python -m pip install -q -r bench/clients/requirements-vllm.txt
	echo $(CURDIR)/$(VLLM_VENV)/lib/python*/site-packages > $$($(CLIENTS)/vllm/bin/python -c \
		"import sysconfig; print(sysconfig.get_path('purelib'))")/oracle.pth
	touch $@

clients: $(VENV)/.dev compiled $(CLIENT:%=$(CLIENTS)/%/.done)
	$(BIN)/python -m bench.clients $(CLIENT)

# The cases that are kept, made anew: VLLM=0.33.0 or VLLM=0.19.0.
oracle-vllm-cases: $(VENV)/.base $(VLLM_VENV)/.done
	rm -rf $(KEPT_CASES)
	$(BIN)/python -m oracle.vllm.named $(KEPT_CASES) $(VLLM)
	$(VLLM_VENV)/bin/python -m oracle.vllm.drive $(KEPT_CASES)
	$(BIN)/python -m oracle.vllm.named $(KEPT_CASES) $(VLLM) tests/conformance/vllm_cases/$(VLLM)

# Everything worth measuring on a GPU (docs/how-to/gpu.md). Such a machine may have torch and nothing of
# ours installed: then its own Python runs the working tree.
OUT ?= out/gpu
BUDGET_S ?= 540
HAS_GPU := import sys, torch; sys.exit(not torch.cuda.is_available())
GPU_PYTHON ?= $(shell for python in $(BIN)/python $(PYTHON) $(wildcard $(BIN)/python); do \
	$$python -c '$(HAS_GPU)' 2>/dev/null && break; done; echo $$python)

gpu:
	PYTHONPATH=.$${PYTHONPATH:+:$$PYTHONPATH} $(GPU_PYTHON) -m realrun suite --out $(OUT) --budget-s $(BUDGET_S)
