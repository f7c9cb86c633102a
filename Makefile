# Everything starts here: `make demo` and `make test` need Python 3.11 or later and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A folder of wheels, such as a CPU build of torch, is used where the environment names one.
LINKS := $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS))
INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python $(LINKS) --constraint constraints.txt

# Tests start hundreds of interpreters: without compiled files each would compile all its libraries anew.
export PYTHONDONTWRITEBYTECODE :=

# With it SciPy takes arrays of other libraries, which scikit-learn's checks of estimators ask for.
export SCIPY_ARRAY_API ?= 1

# Two workers with one thread each: more threads than cores cost far more than they bring.
export OMP_NUM_THREADS ?= 1
WORKERS ?= 2

PICTURED := crossentropy squared erf focal poly alpha tbl "vectorscaling(delta=0.5)"

.PHONY: demo browser test test-more test-slow test-gpu fuzz lint types generated benchmark figures paper clean

$(VENV)/uv.stamp:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	touch $@

$(VENV)/demo.stamp: $(VENV)/uv.stamp pyproject.toml constraints.txt
	$(INSTALL) --editable ".[fit]" xgboost-cpu
	touch $@

$(VENV)/dev.stamp: $(VENV)/uv.stamp pyproject.toml reproduction/pyproject.toml constraints.txt
	$(INSTALL) --editable ".[dev]" --editable ./reproduction
	touch $@ $(VENV)/demo.stamp

demo: $(VENV)/demo.stamp
	rm -rf demo
	env -u OMP_NUM_THREADS $(BIN)/raresight fit sample --target Class --budget 60s --out demo
	@echo "The report: $(CURDIR)/demo/report.html"

# The pages are tested in a real browser; without one those tests are skipped, which CI counts as a failure.
browser:
	@command -v chromium >/dev/null 2>&1 || \
	  { [ "$$(id -u)" = 0 ] && apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium; } || \
	  echo "no Chromium and no way to install it here: the tests of the pages will be skipped"

test: lint types browser
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not more"

# The examples, and a thousand and more fuzz cases of the command.
test-more: $(VENV)/dev.stamp
	RARESIGHT_FUZZ_CASES=$(or $(FUZZ_CASES),200) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal \
	  -m "not slow" tests/fuzz tests/test_examples.py

# Fuzz for hours: make fuzz MINUTES=300 SEED=100000
fuzz: $(VENV)/dev.stamp
	$(BIN)/python tests/fuzz/fuzz.py --minutes $(or $(MINUTES),60) --seed $(or $(SEED),10000)

test-slow: $(VENV)/dev.stamp
	$(INSTALL) --editable ".[dev,catboost]"
	$(BIN)/python -m pytest -n $(WORKERS)

# On a machine with a GPU whose own Python has PyTorch: nothing is installed.
test-gpu:
	$(PYTHON) tests/gpu/run.py

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

# The stubs of `raresight.nn` and the table of losses in the docs, from the losses that are registered.
generated: $(VENV)/dev.stamp
	$(BIN)/python docs/generate.py

benchmark: $(VENV)/dev.stamp
	env -u OMP_NUM_THREADS $(BIN)/python benchmarks/bench_losses.py
	$(BIN)/python benchmarks/bench_theory.py
	$(INSTALL) --editable ".[dev,benchmark]"
	env -u OMP_NUM_THREADS $(BIN)/python benchmarks/bench_metrics.py
	$(BIN)/python benchmarks/bench_coverage.py
	env -u OMP_NUM_THREADS $(BIN)/python benchmarks/bench_linear.py
	$(BIN)/python benchmarks/bench_boosting.py
	env -u OMP_NUM_THREADS $(BIN)/python benchmarks/bench_scoring.py

figures: $(VENV)/dev.stamp
	$(BIN)/raresight losses $(PICTURED) --plot docs/images/losses.png
	$(BIN)/python -m reproduction.roc_figure

paper: $(VENV)/dev.stamp
	$(BIN)/python -m reproduction all

clean:
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
