#!/bin/bash
# Builds the tests and the benchmark of CUDA's decode kernels with nvcc alone, no
# MLX, and runs the tests: on a machine with an NVIDIA device.
#   scripts/test_cuda_kernels.sh [build folder]    (default: build-cuda-kernels)
# SANITIZE=1: under compute-sanitizer's memcheck and racecheck, the small suite.
# NVCC: the compiler; ARCH: the device's (sm_90).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build-cuda-kernels}
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
arch=${ARCH:-sm_90}
kernels=mlxx/kernels/decode_step/cuda
mkdir -p "$out"
export out nvcc arch
compile() { "$nvcc" -std=c++17 -O3 -arch="$arch" --split-compile=4 -I. -c "$1" -o "$out/$(basename "$1" .cu).o"; }
export -f compile
ls $kernels/{attention_launch,decoder_check,decoder_step,product_*,step_rows,token_choice,weight_packing}.cu \
  tests/kernels/cuda/*.cu benchmarks/cuda/*.cu | xargs -P "$(nproc)" -I{} bash -c 'compile {}'
objects=$(ls "$out"/*.o | grep -v -e '_test\.o$' -e '_bench\.o$')
for program in products_test decode_step_test text_attention_test decode_step_bench; do
  # shellcheck disable=SC2086
  "$nvcc" -arch="$arch" -o "$out/$program" "$out/$program.o" $objects
done
if [ -n "${SANITIZE:-}" ]; then
  sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  "$sanitizer" --tool memcheck --error-exitcode 1 "$out/decode_step_test" small
  "$sanitizer" --tool racecheck --error-exitcode 1 "$out/decode_step_test" tiny
else
  "$out/products_test"
  "$out/text_attention_test"
  "$out/decode_step_test"
fi
