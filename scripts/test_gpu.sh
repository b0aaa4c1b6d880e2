#!/usr/bin/env bash
# Runs the tests that need an NVIDIA GPU, or are worth running on one, from a
# build that has libmlxx_cuda and a CUDA libmlx (docs/cuda.md).
#   scripts/test_gpu.sh [--sanitize] [BUILD_FOLDER]
# --sanitize: the small suite under compute-sanitizer, memcheck and racecheck.
# MLXX_GPU_LIBMLX names a CUDA libmlx that takes the place of the one that the
# tests were linked with; its libraries must be on LD_LIBRARY_PATH.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
sanitize=
if [[ ${1-} == --sanitize ]]; then
  sanitize=yes
  shift
fi
build=${1:-$repo/build}
if [[ -n ${MLXX_GPU_LIBMLX-} ]]; then
  export LD_LIBRARY_PATH=$(dirname "$MLXX_GPU_LIBMLX")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
if ! command -v nvidia-smi >/dev/null; then
  echo "test_gpu.sh: no NVIDIA driver here" >&2
  exit 1
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader

failed=
# MLX would compile many fused operations, seconds each.
export MLXX_COMPILE=no_fuse
run() {
  local name=$1
  shift
  if [[ ! -x $build/tests/$name ]]; then
    echo "$name: not built in $build" >&2
    failed+=" $name"
    return
  fi
  echo "== $name $*"
  "${prefix[@]}" "$build/tests/$name" "$@" || failed+=" $name"
}

prefix=()
if [[ -z $sanitize ]]; then
  run cuda_products_test
  run cuda_decode_step_test
  run cuda_decoder_test --gtest_brief=1
  run device_kernels_test --gtest_brief=1
else
  for tool in memcheck racecheck; do
    prefix=(compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5)
    run cuda_decode_step_test small
    run cuda_decoder_test --gtest_filter="*AloneAndAmong*:*Forks*:*File*"
  done
fi
if [[ -n $failed ]]; then
  echo "FAILED:$failed"
  exit 1
fi
echo "all passed"
