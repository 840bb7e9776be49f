# Two commands on a fresh machine: `make tables` and `make test`.

CONFIG ?= configs/embedded.yaml
PYTHON ?= python3
UV     := uv==0.13.7
VENV   := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export MLFLOW_DISABLE_TELEMETRY := true
export PYTHONWARNINGS := ignore:TF32 acceleration
# The code of this folder, also where the environment was copied along from another one and still points there.
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))

# What a user names reaches a command as "$$NAME", through the environment: neither make nor the shell looks inside
# (but for UPGRADE, which is several words).
USER_VALUES := CONFIG PROFILE NAME TASK METHOD SETTING SEED DATASET PORT METHODS SETTINGS SEEDS DATASETS LIMIT COUNT JOBS
$(foreach name,$(USER_VALUES),$(eval override $(name) := $$(value $(name))))
export $(USER_VALUES)

.DEFAULT_GOAL := help
.PHONY: help venv demo tables measurement plan-measurement published verify retry test test-slow checks types ui report doctor plan lock clean chaos mutants new-baseline docs cluster test-slurm

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

venv: $(VENV)/run.stamp  ## only the environment, with the command .venv/bin/sgoif

demo: $(VENV)/run.stamp  ## one small table and one figure, within two minutes once the environment is there
	@python -m sgoif.bench demo

# A part of a run: METHODS=sgoif,aum SETTINGS=n20_s0 SEEDS=0 DATASETS=digits.
SELECTION := $${METHODS:+--methods="$$METHODS"} $${SETTINGS:+--settings="$$SETTINGS"} $${SEEDS:+--seeds="$$SEEDS"} $${DATASETS:+--datasets="$$DATASETS"}
# One letter less must not start the whole run.
plural = @[ -z "$$METHOD$$SETTING$$SEED$$DATASET" ] || { echo "error: a part of a run is named by METHODS=, SETTINGS=, SEEDS=, DATASETS= (make retry also takes METHOD=, …)" >&2; exit 2; }

define make_tables
@python -m sgoif.bench run $(SELECTION) -- --configfile "$$CONFIG" $${PROFILE:+--workflow-profile "$$PROFILE"}
@python -m sgoif.bench where --config="$$CONFIG" $(SELECTION)
endef

tables: $(VENV)/run.stamp  ## every table and ablation of CONFIG (default: the embedded data); a part: METHODS= SETTINGS= SEEDS= DATASETS=
	$(plural)
	$(make_tables)

# What is published, in the order in which GPU time is spent on it.
MEASUREMENT := configs/measurement.yaml configs/measurement-long.yaml configs/measurement-regimes.yaml configs/fidelity-cifar.yaml

measurement: $(VENV)/run.stamp  ## measure the published tables again, for LIMIT seconds (1500); the same command goes on where it was
	@python -m sgoif.bench stretch --seconds="$${LIMIT:-1500}" $(MEASUREMENT)

plan-measurement: $(VENV)/run.stamp  ## jobs, hours and storage of each part of it but the fidelity
	@for config in $(filter-out configs/fidelity%,$(MEASUREMENT)); do python -m sgoif.bench plan --config=$$config || exit; echo; done

# Runs with committed records; the embedded one is published by its own run.
PUBLISHED := measurement measurement-long ood-trained regimes openood

published: $(VENV)/run.stamp  ## rebuild the published tables, figures and pages from their committed records
	@for run in $(PUBLISHED); do python -m sgoif.bench republish --config=configs/$$run.yaml || exit; done

verify: $(VENV)/run.stamp  ## check every file of the run against its checksum; REPAIR=1 deletes what is damaged
	@python -m sgoif.bench verify --config="$$CONFIG" $(SELECTION) $(if $(REPAIR),--repair)

retry: $(VENV)/run.stamp  ## compute failed cells again: all, or those of METHOD=, SETTING=, SEED=, DATASET=
	@python -m sgoif.bench retry --config="$$CONFIG" --method="$$METHOD" --setting="$$SETTING" --seed="$$SEED" --dataset="$$DATASET" $(SELECTION)
	$(make_tables)

test: $(VENV)/test.stamp checks  ## the tests, as CI runs them (make test-slow: the rest)
	@python -m compileall -q sgoif baselines  # once, not in each of a hundred processes, where PYTHONDONTWRITEBYTECODE is set
	@python -m pytest -n 2 --dist loadscope --no-loadscope-reorder

test-slow: $(VENV)/test.stamp  ## trained OOD methods and benchmarks at length, which make test leaves out
	@python -m pytest -n 2 --dist loadscope -m slow --ignore tests/cluster

chaos: $(VENV)/test.stamp  ## inject every fault into a small run and count what became of it (docs/chaos.md)
	@python -m tests.chaos docs

mutants: $(VENV)/test.stamp  ## change COUNT (200) places of the code one by one and see whether the nearest tests notice
	@python -m tests.mutants --count "$${COUNT:-200}" $${JOBS:+--jobs "$$JOBS"}

cluster: $(VENV)/cluster.stamp  ## also install what profiles/slurm and a PostgreSQL store need

test-slurm: $(VENV)/cluster.stamp  ## a small run on a throwaway Slurm and PostgreSQL (needs root and their packages)
	@python -m pytest -m slow tests/cluster -rs

types: $(VENV)/test.stamp  ## mypy over sgoif alone, which is also one of the tests
	@python -m pytest tests/test_types.py

checks: $(VENV)/test.stamp
	@ruff check -q . && ruff format -q --check . && snakefmt --check Snakefile workflow 2> /dev/null
	@mkdir -p .snakemake
	@snakemake --lint > .snakemake/lint.log 2>&1 || { cat .snakemake/lint.log; exit 1; }

ui: $(VENV)/run.stamp  ## MLflow's pages for the run, on http://127.0.0.1:5000 (PORT=5001 for another)
	@python -m sgoif.bench ui --config="$$CONFIG" $${PORT:+--port="$$PORT"}

report: $(VENV)/run.stamp  ## the run on one HTML page, and Snakemake's own report of it
	@python -m sgoif.bench report --config="$$CONFIG"
	@folder=$$(python -m sgoif.bench folder --config="$$CONFIG") && \
	python -m snakemake --configfile "$$CONFIG" --report "$$folder/snakemake-report.html"

doctor: $(VENV)/run.stamp  ## what this machine can run, and what is missing
	@python -m sgoif.bench doctor --config="$$CONFIG"

plan: $(VENV)/run.stamp  ## jobs, hours and storage of CONFIG on 1, 8 and 64 GPUs
	@python -m sgoif.bench plan --config="$$CONFIG" $(SELECTION)

new-baseline: $(VENV)/test.stamp  ## the file and the rule of a new method: NAME=foo TASK=noisy|ood
	@python -m sgoif.bench new-baseline --name="$$NAME" --task="$$TASK"

docs: $(VENV)/test.stamp  ## the API page, a section for each method, the package graph and the measured numbers of the pages; the pages as a site, in site/
	@python docs/scripts/api.py
	@python docs/scripts/methods.py
	@python docs/scripts/package_graph.py
	@python docs/scripts/measured.py
	@NO_MKDOCS_2_WARNING=1 mkdocs build

# The environment: exact pins, checked by hash. Made again when a lock changes. Compiled at once: a run starts a hundred
# processes, and where PYTHONDONTWRITEBYTECODE is set each would compile what it imports for itself
# (a job that computes nothing: 11 to 12 s, compiled 5 s).
$(VENV)/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed (PYTHON=…)"; exit 2; }
	@$(PYTHON) -m venv $(VENV) && $(VENV)/bin/pip install -q --disable-pip-version-check $(UV)

$(VENV)/run.stamp: requirements.lock | $(VENV)/bin/uv
	@VIRTUAL_ENV=$(VENV) uv pip install -q --compile-bytecode --require-hashes -r requirements.lock
	@VIRTUAL_ENV=$(VENV) uv pip install -q --no-deps --build-constraints requirements-test.lock -e .
	@touch $@

$(VENV)/test.stamp: requirements-test.lock | $(VENV)/bin/uv
	@VIRTUAL_ENV=$(VENV) uv pip install -q --compile-bytecode --require-hashes -r requirements-test.lock
	@VIRTUAL_ENV=$(VENV) uv pip install -q --no-deps --build-constraints requirements-test.lock -e .
	@touch $@

$(VENV)/cluster.stamp: requirements-cluster.lock | $(VENV)/test.stamp
	@VIRTUAL_ENV=$(VENV) uv pip install -q --require-hashes -r requirements-cluster.lock
	@touch $@

# Versions that the locks already hold are kept, unless a bound in pyproject.toml rules them out; new packages get their
# newest version. `make lock UPGRADE="-P torch==2.11.0 -P torchvision"` moves the named packages.
COMPILE = uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
lock: | $(VENV)/bin/uv  ## resolve pyproject.toml into the locks again; UPGRADE="-P <package>==<version>" changes pins
	@$(COMPILE) $(UPGRADE) --extra bench pyproject.toml -o requirements.lock
	@$(COMPILE) $(UPGRADE) --extra test -c requirements.lock pyproject.toml -o requirements-test.lock
	@$(COMPILE) $(UPGRADE) --extra cluster -c requirements-test.lock pyproject.toml -o requirements-cluster.lock

clean: $(VENV)/run.stamp  ## remove the results of CONFIG (not the data, not results/published)
	@python -m sgoif.bench clean --config="$$CONFIG" $(SELECTION)
