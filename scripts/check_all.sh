#!/usr/bin/env bash
# Everything that can be checked on this machine, long tests and those for GPUs
# and peers included (they skip or fail where the hardware is missing). Longer
# than CI, which runs .ci/run.
set -uo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repo" || exit 1
source scripts/minutes.sh
trap print_minutes EXIT

part "tests, all labels" env MLXX_TEST_EXCLUDE= scripts/test.sh
part "format" tools/check_format
part "layout" tools/check_layout
part "docs" tools/check_docs
part "licences" tools/check_licences --check
part "asan, all unit tests" scripts/test_asan.sh all
part "tsan" scripts/test_tsan.sh
exit "$minutes_failed"
