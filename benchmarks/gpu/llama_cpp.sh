#!/usr/bin/env bash
# Builds llama.cpp's llama-bench and llama-batched-bench with CUDA from its
# source (https://github.com/ggml-org/llama.cpp), for the GPU of this machine or
# the architecture that is named: about 4 minutes on 16 cores.
#   benchmarks/gpu/llama_cpp.sh SOURCE_FOLDER BUILD_FOLDER [ARCHITECTURE]
# ARCHITECTURE: as CMake names it, such as 90a. Needs CMake, Ninja and nvcc
# (CUDACXX); the source stays as it is. The last line is the path of llama-bench.
set -euo pipefail
if (($# < 2)); then
  echo "usage: llama_cpp.sh SOURCE_FOLDER BUILD_FOLDER [ARCHITECTURE]" >&2
  exit 2
fi
source=$(realpath "$1") architecture=${3:-native}
mkdir -p "$2"
build=$(realpath "$2")
cmake -G Ninja -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Release \
  -DGGML_CUDA=ON -DGGML_CUDA_NCCL=OFF -DCMAKE_CUDA_ARCHITECTURES="$architecture" \
  -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
  -DLLAMA_BUILD_SERVER=OFF >&2
ninja -C "$build" llama-bench llama-batched-bench >&2
echo "$build/bin/llama-bench"
