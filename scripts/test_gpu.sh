#!/usr/bin/env bash
# Runs the tests that need an NVIDIA GPU, or are worth running on one, from a
# build that has libmlxx_cuda and a CUDA libmlx (docs/cuda.md).
#   scripts/test_gpu.sh [--sanitize | --only NAME...] [BUILD_FOLDER]
# --sanitize: the small suite under compute-sanitizer, memcheck and racecheck.
# --only: some of kernels, programs, models, agreement, memory (before the folder).
# MLXX_GPU_LIBMLX names a CUDA libmlx that takes the place of the one that the
# tests were linked with; its libraries must be on LD_LIBRARY_PATH.
# Output is kept in BUILD_FOLDER/gpu_tests, and so is what MLX compiles: a first
# run takes minutes longer.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
sanitize=
parts="kernels programs models agreement memory"
if [[ ${1-} == --sanitize ]]; then
  sanitize=yes
  shift
elif [[ ${1-} == --only ]]; then
  shift
  parts=
  while [[ ${1-} =~ ^(kernels|programs|models|agreement|memory)$ ]]; do
    parts+=" $1"
    shift
  done
fi
build=${1:-$repo/build}
if [[ -n ${MLXX_GPU_LIBMLX-} ]]; then
  export LD_LIBRARY_PATH=$(dirname "$MLXX_GPU_LIBMLX")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export MLXX_LIBMLX=$MLXX_GPU_LIBMLX
fi
if ! command -v nvidia-smi >/dev/null; then
  echo "test_gpu.sh: no NVIDIA driver here" >&2
  exit 1
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader

logs=$build/gpu_tests
export MLXX_HOME=$logs/home MLX_PTX_CACHE_DIR=$logs/mlx CUDA_CACHE_PATH=$logs/driver
mkdir -p "$MLXX_HOME" "$MLX_PTX_CACHE_DIR" "$CUDA_CACHE_PATH"
rm -f "$logs"/*.failed
# MLX would compile many fused operations, seconds each.
export MLXX_COMPILE=no_fuse MLX_DISABLE_COMPILE=1
prefix=()

# NAME COMMAND...: output into a file, one line here. Runs may be in parallel.
run() {
  local name=$1 began=$SECONDS result=passed
  shift
  if [[ ! -x $1 ]]; then
    echo "$name: $1 is not built"
    touch "$logs/$name.failed"
    return
  fi
  if ! "${prefix[@]}" "$@" >"$logs/$name.log" 2>&1; then
    result="FAILED ($logs/$name.log)"
    touch "$logs/$name.failed"
  fi
  echo "$name: $result, $((SECONDS - began)) s"
  if [[ $result != passed ]]; then
    grep -E ': Failure|^\[  FAILED  \].*ms\)|ERROR SUMMARY|TOO FAR|WRONG' -A 3 "$logs/$name.log" |
      head -n 40 || tail -n 5 "$logs/$name.log"
  fi
}
tests=$build/tests

# The tolerances of float32 are for float32: no TF32.
exact() {
  MLX_ENABLE_TF32=0 run "$@"
}

kernels() {
  run products "$tests/cuda_products_test"
  run decode_step "$tests/cuda_decode_step_test"
  run decoder "$tests/cuda_decoder_test" --gtest_brief=1
}

# Left out: what is about the CPU's packed weights or its allocator; tests in which
# MLX compiles products of quantized float32 rows for minutes.
programs() {
  exact device_kernels "$tests/device_kernels_test" --gtest_brief=1 &
  exact custom_kernels "$tests/custom_kernel_gpu_test" --gtest_brief=1 &
  exact recurrent "$tests/recurrent_kernels_test" --gtest_brief=1 &
  exact training_kernels "$tests/training_kernels_test" --gtest_brief=1 \
    --gtest_filter='-*IsThePlainOneOnEveryForm*:*MemoryGrows*:*NeverHoldsAll*:LinearCross*Refuses*' &
  wait
  exact cache "$tests/cache_test" --gtest_brief=1 &
  exact core "$tests/core_test" --gtest_brief=1 &
  exact autograd "$tests/autograd_test" --gtest_brief=1 &
  exact checkpoint "$tests/checkpoint_test" --gtest_brief=1 \
    --gtest_filter=-*FrozenQuantized* &
  wait
}

# Every architecture, in fallback mode and with our kernels, in float32 as the
# CPU's test has it and in 4 bits with bfloat16; in as many processes as may
# compile at once. What only reads names and shapes of tensors is the CPU's.
models() {
  local count=$(($(nproc) / 2)) k i filter
  ((count = count < 1 ? 1 : count > 8 ? 8 : count))
  mapfile -t variants < <("$tests/models_test" --gtest_list_tests \
    --gtest_filter='AllModels/*.ForwardLastIsTheLastRow/*' |
    sed -n 's/^  ForwardLastIsTheLastRow\/\([a-z0-9_]*\).*/\1/p')
  if ((${#variants[@]} == 0)); then
    echo "models: there are none"
    touch "$logs/models.failed"
  fi
  for ((k = 0; k < count; k++)); do
    filter=
    for ((i = k; i < ${#variants[@]}; i += count)); do
      filter+="AllModels/*/${variants[i]}:"
    done
    exact "models_$k" "$tests/models_test" --gtest_filter="${filter%:}-\
*EveryTensorIsNeeded*:*SurplusTensors*:*VisitNames*:*QuantizedWeightsGive*" &
  done
  wait
}

random_model() {
  python3 "$repo/benchmarks/gpu/random_model.py" "$@" --sharpness 3
}

# Next-token distributions against those of MLX's operations.
agreement() {
  local folder=$logs/random
  random_model "$folder/4_bits" --shape small
  random_model "$folder/8_bits" --shape small --bits 8
  random_model "$folder/bfloat16" --shape small --bits 16
  random_model "$folder/mxfp4" --shape small --mode mxfp4
  random_model "$folder/nvfp4" --shape small --mode nvfp4
  random_model "$folder/experts" --shape small_moe
  for model in "$folder"/*; do
    run "agreement_$(basename "$model")" "$repo/scripts/kernel_agreement.py" \
      --mlxx "$build/bin/mlxx" "$model" &
  done
  wait
  cat "$logs"/agreement_*.log
}

memory() {
  random_model "$logs/random/bfloat16" --shape small --bits 16
  run memory "$repo/scripts/unloaded_memory.py" --mlxx "$build/bin/mlxx" \
    "$logs/random/bfloat16"
  cat "$logs/memory.log"
}

if [[ -z $sanitize ]]; then
  for part in $parts; do
    $part
  done
else
  for tool in memcheck racecheck; do
    prefix=(compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5)
    run "${tool}_decode_step" "$tests/cuda_decode_step_test" small
    run "${tool}_decoder" "$tests/cuda_decoder_test" \
      --gtest_filter="*AloneAndAmong*:*Forks*:*File*"
  done
fi
failed=$(cd "$logs" && ls -- *.failed 2>/dev/null | tr '\n' ' ' || true)
if [[ -n $failed ]]; then
  echo "FAILED: ${failed//.failed/}"
  exit 1
fi
echo "all passed"
