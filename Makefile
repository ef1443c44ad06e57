# fikitd: what can be made. `make` alone lists it.
#
# Everything happens in .venv and build/. Build tools (CMake, Ninja, scikit-build-core, nanobind) come into .venv
# from the package index; of the machine only python3 (3.11 or newer, with its headers), g++ and make are needed.
# The project is built without pip's isolation, so that a second build compiles only what changed.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
JOBS ?= $(shell nproc)
DEMO ?=
PYTEST ?=
FUZZ_SECONDS ?= 5

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
export PATH := $(CURDIR)/$(BIN):$(PATH)

PACKAGE := pyproject.toml README.md LICENSE $(shell find fikitd client shim -type f -not -name '*.pyc' -not -name '*.so*')
NATIVE_SOURCES := $(shell find shim fikitd/native fikitd/simcuda tests/native bench \
    \( -name '*.cpp' -o -name '*.hpp' -o -name '*.h' \) 2>/dev/null)
REQUIREMENTS = $(BIN)/python -c 'import sys, tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
    o = p["project"]["optional-dependencies"]; print(*(p["build-system"]["requires"] if sys.argv[1] == "build" else \
    o[sys.argv[1]]), sep="\n")'
CONFIGURE = cmake -S fikitd/native -G Ninja -DFIKIT_NATIVE_TESTS=ON -DFIKIT_PYTHON=OFF \
    -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python $(CMAKE_ARGS)

.PHONY: help
help:  ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*  ## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

# --- the environment ----------------------------------------------------------------------------

.PHONY: machine
machine:
	@missing=()
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11"; exit 1; }
	$(PYTHON) -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
	$(PYTHON) -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null || missing+=(python3-dev)
	command -v g++ > /dev/null || missing+=(g++)
	if (($${#missing[@]})); then echo "missing on this machine: apt install $${missing[*]}"; exit 1; fi

$(VENV)/.tools: pyproject.toml | machine
	@echo "== build tools into $(VENV)"
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(REQUIREMENTS) build > $(VENV)/build.txt
	$(PIP) install --quiet 'cmake>=3.25' ninja -r $(VENV)/build.txt
	touch $@

$(VENV)/.installed: $(VENV)/.tools $(PACKAGE)
	@echo "== building and installing fikitd"
	mkdir -p build
	$(PIP) install --no-build-isolation --config-settings=build-dir=build/release --verbose . 2>&1 | tee build/install.log \
	    | sed -un 's#CXX object .*/#CXX object #; s#^ *\(\[[0-9]*/[0-9]*\] .*\)#   \1#p; s#^ *Collecting \([^ ]*\).*#   \1#p' \
	    || { tail -n 60 build/install.log; exit 1; }
	touch $@

$(VENV)/.test: $(VENV)/.tools
	@echo "== test tools into $(VENV)"
	$(REQUIREMENTS) test > $(VENV)/test.txt
	$(PIP) install --quiet -r $(VENV)/test.txt
	touch $@

$(VENV)/.lint: $(VENV)/.tools
	@echo "== lint tools into $(VENV)"
	$(REQUIREMENTS) lint > $(VENV)/lint.txt
	$(PIP) install --quiet -r $(VENV)/lint.txt
	touch $@

.PHONY: install
install: $(VENV)/.installed  ## build the project and install it into .venv

# --- use it ------------------------------------------------------------------------------------

.PHONY: demo
demo: $(VENV)/.installed  ## run the demo on a daemon of its own (DEMO="--seconds 30s --device sim")
	@$(BIN)/fikitctl demo --own-daemon --output build/demo $(DEMO)

# --- check it ----------------------------------------------------------------------------------

.PHONY: test
test: native-test python-test shim-test  ## the whole test suite

.PHONY: native-test
native-test: $(VENV)/.installed  ## the native tests alone
	@echo "== native tests"
	# Where pip has built, so that nothing is compiled twice.
	cmake -S fikitd/native -B build/release -DFIKIT_NATIVE_TESTS=ON $(CMAKE_ARGS) > /dev/null
	cmake --build build/release -j $(JOBS)
	ctest --no-tests=error --test-dir build/release --output-on-failure -j $(JOBS) --timeout 300

.PHONY: python-test
python-test: $(VENV)/.installed $(VENV)/.test  ## the Python tests alone (PYTEST="tests/unit -k help")
	@echo "== Python tests"
	mkdir -p build
	$(BIN)/pytest $(if $(PYTEST),-m "not gpu" $(PYTEST),-m "not gpu and not alone" -n $(JOBS) --dist worksteal) 2>&1 | tee build/pytest.log
	$(if $(PYTEST),,$(BIN)/pytest -m "alone and not gpu" 2>&1 | tee -a build/pytest.log)

# All but the kernels, which are the simulated GPU's affair: PYTEST=tests/contract/test_driver_kernels.py
SHIM_TESTS := $(filter-out %/test_driver_kernels.py,$(wildcard tests/contract/test_driver_*.py))

.PHONY: shim-test
shim-test: $(VENV)/.installed $(VENV)/.test  ## the driver's contract, asked of fikitd's libcuda
	@echo "== the driver's contract through fikitd"
	FIKIT_TEST_SHIM=1 $(BIN)/pytest $(or $(PYTEST),-n $(JOBS) $(SHIM_TESTS))

.PHONY: gpu-test
gpu-test: $(VENV)/.installed $(VENV)/.test  ## contract, integration and GPU tests on this machine's NVIDIA GPU
	export FIKIT_TEST_DEVICE=real
	$(BIN)/pytest $(or $(PYTEST),tests/contract tests/integration)
	# Programs side by side, as they take their time to start.
	$(if $(PYTEST),,$(BIN)/pytest -n 5 tests/gpu)

.PHONY: lint
lint: $(VENV)/.installed $(VENV)/.test $(VENV)/.lint  ## ruff, mypy, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(if $(NATIVE_SOURCES),$(BIN)/clang-format --dry-run -Werror $(NATIVE_SOURCES))

.PHONY: format
format: $(VENV)/.lint  ## rewrite the sources as lint wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(if $(NATIVE_SOURCES),$(BIN)/clang-format -i $(NATIVE_SOURCES))

# With address and undefined: by clang++ where it has libFuzzer, so that one build serves tests and fuzzing; else
# by g++. A fuzz target is fuzz_NAME.cpp somewhere in tests/native, with LLVMFuzzerTestOneInput; its kept inputs
# are in tests/data/fuzz/NAME. Without libFuzzer it is a test that runs them, and mutations of them, once.

.PHONY: sanitize
sanitize: sanitize-address fuzz sanitize-thread  ## native tests with address, undefined and thread sanitizers; fuzz targets

LIBFUZZER = $(shell echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' \
    | clang++ -x c++ -fsanitize=fuzzer,address,undefined - -o /dev/null 2> /dev/null && echo yes)

.PHONY: instrumented-address instrumented-thread
instrumented-address: OPTIONS = -DFIKIT_SANITIZE=address,undefined \
    $(if $(LIBFUZZER),-DCMAKE_CXX_COMPILER=clang++ -DFIKIT_LIBFUZZER=ON,-DCMAKE_CXX_COMPILER=g++)
instrumented-thread: OPTIONS = -DFIKIT_SANITIZE=thread -DCMAKE_CXX_COMPILER=g++
instrumented-address instrumented-thread: instrumented-%: $(VENV)/.tools
	[ -f build/sanitize-$*/build.ninja ] || $(CONFIGURE) -B build/sanitize-$* $(OPTIONS)
	cmake --build build/sanitize-$* -j $(JOBS)

.PHONY: sanitize-address sanitize-thread
sanitize-thread: CHOICE := --label-exclude one-thread
sanitize-address sanitize-thread: sanitize-%: instrumented-%
	@echo "== native tests with sanitizers: $*"
	ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1 \
	    ctest --no-tests=error --test-dir build/$@ --output-on-failure -j $(JOBS) --timeout 600 $(CHOICE)

.PHONY: fuzz
fuzz: instrumented-address  ## each fuzz target for FUZZ_SECONDS, where clang++ has libFuzzer
	@if [ -z "$(LIBFUZZER)" ]; then echo "== no libFuzzer: the fuzz targets are tests"; exit 0; fi
	fuzz() {
	    kept=tests/data/fuzz/$${1#fuzz_}
	    mkdir -p build/fuzz-found/$$1
	    $$(find build/sanitize-address -type f -executable -name $$1) \
	        -max_total_time=$(FUZZ_SECONDS) -timeout=10 -print_final_stats=1 \
	        -artifact_prefix=build/fuzz-found/ build/fuzz-found/$$1 $$([ ! -d $$kept ] || echo $$kept) \
	        > build/fuzz-found/$$1.log 2>&1 || { cat build/fuzz-found/$$1.log; return 255; }
	    echo "== $$1: $$(sed -n 's/^stat::number_of_executed_units: *//p' build/fuzz-found/$$1.log) inputs"
	}
	export -f fuzz
	printf '%s\n' $(basename $(notdir $(shell find tests/native -name 'fuzz_*.cpp'))) | xargs -P $(JOBS) -I{} bash -c 'fuzz {}'

.PHONY: bench
bench: $(VENV)/.installed $(VENV)/.test  ## instruction counts under callgrind
	@command -v valgrind > /dev/null || { echo "valgrind is missing: apt install valgrind"; exit 1; }
	$(BIN)/python bench/instruction_counts.py $(BENCH)

.PHONY: clean
clean:  ## remove .venv, build/ and what the tools cached
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
