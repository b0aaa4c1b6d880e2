#!/usr/bin/env bash
# Cross-compiles the CPU kernels for 64-bit Arm, with those of their tests that
# need no MLX, and runs them in an emulator; on such a machine itself, natively.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repo"
build=build-neon

if [[ $(uname -m) == aarch64 ]]; then
  cmake -S tests/neon -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >&2
  run=()
else
  for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
    if ! command -v "$tool" >/dev/null; then
      echo "test_neon: $tool is missing: scripts/install_packages.sh tests" >&2
      exit 1
    fi
  done
  cmake -S tests/neon -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ >&2
  run=(qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu)
fi
cmake --build "$build"
"${run[@]}" "$build/neon_test"
