#!/usr/bin/env bash
# Unit tests, and those with a server of their own, under AddressSanitizer and
# UndefinedBehaviorSanitizer: those of the folders that read what others wrote,
# or all. scripts/test_asan.sh [all]
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repo"
which=${1-reading}
case $which in
  reading | all) ;;
  *) echo 'usage: scripts/test_asan.sh [all]' >&2; exit 2 ;;
esac

cmake --preset asan -DMLXX_WERROR=ON -DMLXX_UNITY=ALL >&2 </dev/null

# Test programs by folder and label, as ctest knows them: no list to keep.
folders='api|base|core|data|hub|hub_net|text|mutation'
if [[ $which == all ]]; then
  folders='[a-z_]+'
fi
mapfile -t tests < <(
  ctest --test-dir build-asan --show-only=json-v1 -L '^(unit|clients)$' </dev/null |
    python3 scripts/tests_of_folders.py "$repo" "$folders"
)
if ((${#tests[@]} == 0)); then
  echo "test_asan.sh: no such test is defined in tests/($folders)" >&2
  exit 1
fi
printf '== asan: %s\n' "${tests[*]}" >&2
cmake --build build-asan --target "${tests[@]}" </dev/null >&2

# MLX's own library is not instrumented, so containers that cross into it
# would be reported falsely. Leaks of the process are leaks of a test too.
export ASAN_OPTIONS=detect_container_overflow=0:abort_on_error=0:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1
pattern=$(IFS='|'; echo "${tests[*]}")
ctest --test-dir build-asan --output-on-failure --no-tests=error -j2 \
  -R "^($pattern)\$" </dev/null
