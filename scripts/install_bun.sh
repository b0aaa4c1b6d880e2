#!/usr/bin/env bash
# Makes .deps/bun, the JavaScript runtime of the bun:ffi tests, as the lock file
# in tests/capi/bun says; does nothing if it is already so. npm checks what it
# gets against the hashes there, and no package's own script is run.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repo"
pinned=tests/capi/bun
bun=.deps/bun/bin/bun

case $(uname -s) in
  Linux) system=linux ;;
  Darwin) system=darwin ;;
  *) echo "bun: not made for $(uname -s)" >&2; exit 1 ;;
esac
case $(uname -m) in
  x86_64) machine=x64 ;;
  aarch64 | arm64) machine=aarch64 ;;
  *) echo "bun: not made for $(uname -m)" >&2; exit 1 ;;
esac

if [[ -x $bun ]] && cmp -s "$pinned/package-lock.json" .deps/bun/package-lock.json; then
  exit 0
fi
if ! command -v npm >/dev/null; then
  echo "bun: npm is needed: scripts/install_packages.sh tests" >&2
  exit 1
fi
echo "bun: npm ci of $pinned into .deps/bun" >&2
mkdir -p .deps
staged=$(mktemp -d "$repo/.deps/bun.XXXXXX")
trap 'rm -rf "$staged"' EXIT
cp "$pinned/package.json" "$staged/"
mkdir "$staged/bin"
cp "$pinned/package-lock.json" "$staged/"
npm ci --prefix "$staged" --cache "$staged/npm-cache" --ignore-scripts --no-audit --no-fund \
  --loglevel=error </dev/null >&2
# npm leaves an optional package out, silently, where it is not as locked.
came=$staged/node_modules/@oven/bun-$system-$machine/bin/bun
if [[ ! -f $came ]]; then
  echo "bun: the package bun-$system-$machine did not come, or with another hash than locked" >&2
  exit 1
fi
mv "$came" "$staged/bin/bun"
rm -rf "$staged/node_modules" "$staged/npm-cache"
chmod 755 "$staged" "$staged/bin/bun"
wanted=$(sed -n 's/.*"bun": "\([0-9.]*\)".*/\1/p' "$pinned/package.json")
if [[ $("$staged/bin/bun" --version) != "$wanted" ]]; then
  echo "bun: version $("$staged/bin/bun" --version) came, $wanted was asked for" >&2
  exit 1
fi
# Last, so that an interrupted installation is made again.
rm -rf .deps/bun
mv "$staged" .deps/bun
