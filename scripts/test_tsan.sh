#!/usr/bin/env bash
# What has threads and needs no MLX under ThreadSanitizer, in build-tsan/:
# scripts/test_tsan.sh [TEST...]. The text crate is not instrumented: races
# within it are for its own tests.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repo"

# Test programs, none of which links MLX.
tests=(base_test data_test text_test scheduler_test model_text_test http_server_test api_server_test
  hostile_clients_test response_store_test)
if (($# > 0)); then
  tests=("$@")
fi

cmake --preset tsan -DMLXX_WERROR=ON -DMLXX_UNITY=ALL >&2 </dev/null
printf '== tsan: %s\n' "${tests[*]}" >&2
cmake --build build-tsan --target "${tests[@]}" </dev/null >&2

export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1"
pattern=$(IFS='|'; echo "${tests[*]}")
ctest --test-dir build-tsan --output-on-failure --no-tests=error -j2 \
  -R "^($pattern)\$" </dev/null
