# Every command of the project. `make help` lists them.
SHELL := /usr/bin/env bash
.DEFAULT_GOAL := help
NAME ?= mb
NODES ?= 2
PY := .venv/bin/python
PYTHON_SOURCES := operator backend_image e2e images demo tests bench docs

.PHONY: help
help: ## This list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## The whole path on a local cluster: apply, generate, delete in mid-stream, proof (DEMO_DOWN=1 removes it after)
	@python3 -m demo

.PHONY: test
test: ## Everything CI runs, on a cluster of its own; sets up what is missing
	@tools/test

.PHONY: check
check: venv ## Lint, types, layers and unit tests
	@tools/step lint .venv/bin/ruff check $(PYTHON_SOURCES)
	@tools/step format .venv/bin/ruff format --check $(PYTHON_SOURCES)
	@tools/step types .venv/bin/mypy
	@tools/step layers .venv/bin/lint-imports
	@tools/step protos $(PY) backend_image/proto/regenerate.py --check
	@tools/step unit-tests $(PY) -m pytest -n auto tests/unit

.PHONY: venv
venv: ## The virtual environment .venv, from hash-locked requirements
	@tools/step venv tools/venv

.PHONY: format
format: venv ## Rewrite the sources in the project's format
	@.venv/bin/ruff check --fix $(PYTHON_SOURCES)
	@.venv/bin/ruff format $(PYTHON_SOURCES)

.PHONY: images
images: ## Both container images, as archives
	@tools/step images python3 -m images build

.PHONY: cluster-up
cluster-up: ## A real cluster: kind, one control plane, NODES workers with fake GPUs (NAME=mb NODES=2)
	@tools/step cluster-up python3 -m e2e.cluster up --name $(NAME) --nodes $(NODES)

.PHONY: cluster-status
cluster-status: ## What runs of it
	@python3 -m e2e.cluster status --name $(NAME)

.PHONY: cluster-down
cluster-down: ## Remove it, and leave the machine as it was found
	@tools/step cluster-down python3 -m e2e.cluster down --name $(NAME)

.PHONY: cluster-load
cluster-load: ## Build both images and put them on the nodes
	@tools/step cluster-load tools/load $(NAME)

.PHONY: e2e
e2e: venv cluster-up cluster-load ## The end-to-end suite on that cluster (ARGS="-k name")
	@tools/step e2e tools/e2e $(NAME) $(ARGS)

# Most of the suite is waiting: for nodes to be lost, for graces and delays to pass. So one lane breaks machines of a
# cluster of its own while the other does all else. make runs both: a shell's background jobs would not hear of a Ctrl-C.
.PHONY: e2e-lanes e2e-faults e2e-rest
e2e-lanes: ## The suite in two lanes at once, on the clusters NAME and NAME-faults
	@rm -rf "$${MODELBACKEND_CACHE:-$$HOME/.cache/modelbackend-operator}/logs/e2e-operators"
	@$(MAKE) --no-print-directory --jobs=2 --keep-going e2e-faults e2e-rest

# After some failures the cluster is more likely broken than each test: what they say is read sooner.
e2e-faults:
	@tools/lane faults tools/step e2e-faults tools/e2e $(NAME)-faults e2e/faults --verbose --durations=0 --maxfail=5

e2e-rest:
	@tools/lane rest tools/step e2e-rest tools/e2e $(NAME) e2e/ --ignore=e2e/faults --verbose --durations=0 --maxfail=5

.PHONY: bench-serving
bench-serving: venv ## Our server and llama-server on the same libraries: a table of ratios (ARGS="--quick --only 'stream x*'")
	@PYTHONPATH=operator:backend_image:. $(PY) -m bench.serving --json bench-serving.json --plot bench-serving.svg $(ARGS)

.PHONY: soak
soak: venv ## Half an hour of callers who come and leave at random, on one server: nothing is left, memory is flat (SECONDS=1800)
	@MODELBACKEND_SOAK_SECONDS=$(or $(SECONDS),1800) tools/step soak $(PY) -m pytest -s tests/server/test_soak.py

.PHONY: frameworks
frameworks: venv ## LangChain's and LlamaIndex's OpenAI classes against a server, in an environment of their own
	@PYTHONPATH=backend_image:. $(PY) -m tests.frameworks

.PHONY: lock
lock: ## Renew requirements/*.txt: hashes, and no index address
	@tools/lock

.PHONY: proto
proto: venv ## Renew the generated gRPC code
	@$(PY) backend_image/proto/regenerate.py

.PHONY: manifests
manifests: venv ## Write deploy/ anew from the chart, and the chart's CRDs from crds/
	@$(PY) -m e2e.helm.manifests

.PHONY: browser-tests
browser-tests: venv ## The status page in Chromium; installs chromium-headless-shell, as root (SCREENSHOT=1 keeps the picture)
	@command -v chromium-headless-shell >/dev/null || tools/step chromium apt-get install -y -qq --no-install-recommends chromium-headless-shell
	@tools/step browser-tests $(PY) -m pytest tests/browser

.PHONY: chart-tests
chart-tests: venv ## What the chart renders, and helm on a real API server
	@tools/step helm-programs python3 -m e2e.helm
	@tools/step chart-tests $(PY) -m pytest tests/chart tests/gitops

.PHONY: sbom
sbom: ## What is in each image, as CycloneDX, into the folder build/
	@mkdir -p build && tools/step sbom tools/sbom build

.PHONY: audit
audit: ## Which of the locked Python packages have known vulnerabilities (asks the package index)
	@tools/step audit tools/sbom --audit

.PHONY: sim
sim: venv ## The seeded simulator: faults, then quiet, every promise after every step (STEPS=100000 SEED=1)
	@tools/step sim $(PY) -m tests.sim.simulate --steps $(or $(STEPS),100000) --seed $(or $(SEED),1)

.PHONY: sim-long
sim-long: venv ## The same with ten million steps
	@tools/step sim-long $(PY) -m tests.sim.simulate --steps $(or $(STEPS),10000000) --seed $(or $(SEED),long)

.PHONY: mutants
mutants: venv ## The rules broken on purpose: which promise breaks, in how many steps the search finds it
	@tools/step mutants $(PY) -m tests.sim.mutants

.PHONY: explore
explore: venv ## Every state of small worlds that the real rules can reach, within stated bounds
	@tools/step explore $(PY) -m tests.sim

.PHONY: explore-long
explore-long: venv ## The same with larger bounds; says how far it came (SECONDS=3600 for each small world)
	@tools/step explore-long $(PY) -m tests.sim --long --seconds $(or $(SECONDS),3600)

.PHONY: spec
spec: venv ## The protocol as a specification: every state of small worlds, by TLC, and a mutant for each promise
	@tools/step spec .venv/bin/python -m tests.model

.PHONY: e2e-traces
e2e-traces: venv ## Every life of the last e2e run, followed by TLC through the specification (LOGS=folder)
	@tools/step e2e-traces $(PY) -m tests.model.lives $(LOGS)

.PHONY: docs
docs: ## The documentation site, into build/docs; a dead link is an error
	@tools/step docs tools/docs

.PHONY: coverage
coverage: venv ## Which branches of the rules the tests take: all, or it fails (STEPS=20000 of the simulator)
	@tools/step coverage tools/coverage

.PHONY: docs-diagrams
docs-diagrams: venv ## Write docs/lifecycle.md anew from walks of the real rules, and docs/promises.md from its tables
	@$(PY) -m tests.model.lifecycle
	@$(PY) -m tests.model.promises

.PHONY: golden
golden: venv ## Write the golden logs of whole lives anew
	@$(PY) -m tests.sim.golden
