#!/usr/bin/env bash
# Installs what is missing, builds everything and runs the tests that need no
# special hardware. ctest's own options may follow: scripts/test.sh -R tokenizer
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repo"
source scripts/minutes.sh
trap print_minutes EXIT

# The model of the tests is kept with the checkout, apart from the user's own.
export MLXX_HOME=$repo/.deps/home
excluded=${MLXX_TEST_EXCLUDE-gpu|peer|soak}

# NVIDIA's compiler comes for Linux; one architecture shows that all compiles.
cuda=(-DMLXX_CUDA=OFF)
if [[ $(uname -s) == Linux ]]; then
  cuda=(-DMLXX_CUDA=ON -DMLXX_CUDA_ARCHITECTURES=90)
fi

# The program and its libraries are compiled file by file, as users do.
configure() {
  cmake --preset release -DMLXX_WERROR=ON -DMLXX_UNITY=TESTS "${cuda[@]}" \
    "-DMLXX_ORACLE_PYTHON=$repo/.deps/oracle/bin/python" \
    "-DMLXX_BUN=$repo/.deps/bun/bin/bun" "-DMLXX_CLIENTS=$repo/.deps/clients" >&2
}

run_tests() {
  local filter=()
  if [[ -n $excluded ]]; then
    filter=(-LE "$excluded")
  fi
  ctest --test-dir build --output-on-failure --no-tests=error -j2 "${filter[@]}" "$@"
}

part "packages" scripts/install_packages.sh tests
part "mlx-lm to compare with" scripts/build_oracle.sh
part "JavaScript runtime of the tests" scripts/install_bun.sh
part "clients of the server" scripts/build_clients.sh
if [[ ${cuda[0]} == *ON ]]; then
  part "compiler for CUDA" scripts/install_nvcc.sh
fi
part "configure" configure
part "build" cmake --build build
part "default model" build/bin/mlxx pull smollm2
part "tests" run_tests "$@"
# Debian's compiler and emulator; only when no single test was asked for.
if (($# == 0)) && command -v dpkg-query >/dev/null; then
  part "NEON kernels" scripts/test_neon.sh
fi
