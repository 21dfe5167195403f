# The two commands are `make demo` and `make test`; CI also runs `make test-slow` and `make docs`. `make test-quick` is for the
# inner loop. Everything they need goes into an environment of their own.
PYTHON ?= python3
SHELL := /bin/bash -o pipefail
# Containers often forbid to store compiled modules: importing torch and timm then takes 14 s in each process, and 5 s with them.
export PYTHONDONTWRITEBYTECODE =

# An environment is made anew when what it was made from has changed, by hash.
HASH = $(shell cat setup.cfg pyproject.toml requirements-test.lock Makefile | sha256sum | cut -c1-16)

.PHONY: demo test suite test-quick test-slow docs lint types clean

PIP = .venv-test/bin/python -m pip install --quiet --no-compile
TESTED = --editable '.[test]' --constraint requirements-test.lock
PYTEST = OMP_NUM_THREADS=1 .venv-test/bin/python -m pytest -n 2 --dist worksteal

demo: .venv/.made-$(HASH)
	.venv/bin/python examples/demo.py --output demo

test: .venv-test/.made-$(HASH)
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory -j 2 types suite

suite: .venv-test/.made-$(HASH)
	$(PYTEST) --durations 15 -m "not slow"

# What needs neither processes nor files of models: under a minute.
QUICK = tests/config tests/data/transforms tests/engine tests/evaluation tests/losses tests/models tests/ops tests/test_layers.py
test-quick: .venv-test/.made-$(HASH)
	$(PYTEST) -q -m "not slow" $(QUICK)

# Tests of over some two seconds, and products of cases whose elements `make test` covers.
test-slow: .venv-test/.made-$(HASH)
	$(PYTEST) --durations 15 -m slow

# The documentation site in build/docs/site, every link followed: some two minutes on 2 cores, half of it the gallery's model.
docs: .venv-test/.docs-$(HASH)
	.venv-test/bin/python docs/site/build.py

.venv-test/.docs-$(HASH): .venv-test/.made-$(HASH)
	$(PIP) --editable '.[docs]' --constraint requirements-test.lock
	touch $@

lint: .venv-test/.made-$(HASH)
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .

types: .venv-test/.made-$(HASH)
	.venv-test/bin/mypy

.venv/.made-$(HASH):
	rm -rf .venv
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --no-compile --editable '.[rooms]'
	touch $@

# uv unpacks on all cores; where it does not find the packages, of an index that only pip knows, pip installs them.
.venv-test/.made-$(HASH):
	rm -rf .venv-test
	$(PYTHON) -m venv .venv-test
	$(PIP) uv --constraint requirements-test.lock
	.venv-test/bin/uv pip install --quiet --python .venv-test --cache-dir .venv-test/.uv $(TESTED) || $(PIP) $(TESTED)
	rm -rf .venv-test/.uv
	touch $@

clean:
	rm -rf .venv .venv-test demo build *.egg-info
