#!/usr/bin/env bash
# Packs a build for a machine that has a GPU but neither this checkout's
# packages nor a network: the program, its libraries and those of the system
# that it needs, and the benchmarks and tests that run there.
#   benchmarks/gpu/pack.sh OUT.tar.xz [BUILD_FOLDER] [TEST_PROGRAM...]
# There: unpack, add lib/system to LD_LIBRARY_PATH for mlxx alone (a Python
# beside it wants its own), set MLXX_LIBMLX to a CUDA libmlx
# (`mlxx runtime install cuda13` where there is a network) and run
# benchmarks/gpu/run.sh --mlxx bin/mlxx OUT_FOLDER. The same or a newer glibc
# than here is needed.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if (($# < 1)); then
  echo "usage: pack.sh OUT.tar.xz [BUILD_FOLDER] [TEST_PROGRAM...]" >&2
  exit 2
fi
out=$(realpath "$1")
build=${2:-$repo/build}
shift $(($# < 2 ? $# : 2))
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{bin,lib/system,tests,benchmarks}
strip -o "$tree/bin/mlxx" "$build/bin/mlxx"
for library in libmlxx-impl.so libmlxx_cuda.so; do
  if [[ -e $build/lib/$library ]]; then
    strip -o "$tree/lib/$library" "$build/lib/$library"
  fi
done
for test in "$@"; do
  strip -o "$tree/tests/$test" "$build/tests/$test"
done
# MLX, its BLAS and the C and C++ run times are those of the machine.
ldd "$build/lib/libmlxx-impl.so" | awk '$3 ~ /^\// {print $3}' |
  grep -vE '/lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s|mlx|blas|lapack|gfortran|quadmath)[-.]' |
  while read -r library; do
    cp -L "$library" "$tree/lib/system/"
  done
cp -r "$repo"/benchmarks/{generate,serve,gpu,this_machine.py} "$tree/benchmarks/"
tar -C "$tree" -cf - . | xz -6 -T0 >"$out"
du -h "$out"
