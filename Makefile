# The two commands are `make demo` and `make test`; CI also runs `make test-slow` and `make docs`. `make test-quick` is for the
# inner loop. Everything they need goes into an environment of their own.
PYTHON ?= python3
SHELL := /bin/bash -o pipefail
# Containers often forbid to store compiled modules: importing torch and timm then takes 14 s in each process, and 5 s with them.
export PYTHONDONTWRITEBYTECODE =

# An environment is made anew when what it was made from has changed, by hash.
HASH = $(shell cat setup.cfg pyproject.toml requirements-test.lock Makefile | sha256sum | cut -c1-16)

.PHONY: demo test suite test-quick test-slow docs lint types clean

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

# Tests of over a second or two, and products of cases whose elements `make test` covers.
test-slow: .venv-test/.made-$(HASH)
	$(PYTEST) --durations 15 -m slow

# The documentation site in build/docs/site, every link followed: some two minutes on 2 cores, half of it the gallery's model.
docs: .venv-test/.docs-$(HASH)
	.venv-test/bin/python docs/site/build.py

.venv-test/.docs-$(HASH): .venv-test/.made-$(HASH)
	.venv-test/bin/python -m pip install --quiet --editable '.[docs]' --constraint requirements-test.lock
	touch $@

lint: .venv-test/.made-$(HASH)
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .

types: .venv-test/.made-$(HASH)
	.venv-test/bin/mypy

# uv unpacks on all cores; where it does not find the packages, of an index that only pip knows, pip installs them.
define environment
	rm -rf $(1)
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet uv --constraint requirements-test.lock
	$(1)/bin/uv pip install --quiet --python $(1) --cache-dir $(1)/.uv $(2) || $(1)/bin/python -m pip install --quiet --no-compile $(2)
	rm -rf $(1)/.uv
	touch $@
endef

.venv/.made-$(HASH):
	$(call environment,.venv,--editable '.[rooms]')

.venv-test/.made-$(HASH):
	$(call environment,.venv-test,--editable '.[test]' --constraint requirements-test.lock)

clean:
	rm -rf .venv .venv-test demo build *.egg-info
