#!/usr/bin/env bash
# Installs what building mlxx needs and is missing; with the word "tests" also
# what only the tests need. As root on Debian it calls apt-get; otherwise it
# prints the one command to run and fails. On macOS: brew.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
oldest_cargo=1.87

case ${1-} in
  '') for_tests=0 ;;
  tests) for_tests=1 ;;
  *) echo 'usage: scripts/install_packages.sh [tests]' >&2; exit 2 ;;
esac

say() { printf 'packages: %s\n' "$*" >&2; }

# A rustup proxy without a toolchain in this HOME is on PATH and does not run:
# only an answer counts. The order is that of cmake/rust.cmake.
have_cargo() {
  local candidate version
  for candidate in cargo /usr/bin/cargo /usr/bin/cargo-web; do
    version=$("$candidate" --version 2>/dev/null </dev/null | awk '{print $2; exit}') || continue
    [[ $version =~ ^[0-9]+\.[0-9]+ ]] || continue
    if [[ $(printf '%s\n%s\n' "$oldest_cargo" "$version" | sort -V | head -n 1) == "$oldest_cargo" ]]; then
      return 0
    fi
  done
  return 1
}

# Of the tests: it gets their JavaScript runtime.
lacks_npm() {
  ((for_tests)) && ! npm --version >/dev/null 2>&1 </dev/null
}

on_macos() {
  local package missing=()
  if ! command -v brew >/dev/null; then
    say "Homebrew is needed: see https://brew.sh"
    exit 1
  fi
  for package in cmake ninja pkg-config python nlohmann-json cli11 fmt spdlog curl libarchive \
    openssl libedit googletest; do
    brew list --versions "$package" >/dev/null 2>&1 || missing+=("$package")
  done
  have_cargo || missing+=(rust)
  if lacks_npm; then missing+=(node); fi
  if ((${#missing[@]})); then
    say "brew install ${missing[*]}"
    brew install "${missing[@]}" </dev/null >&2
  fi
}

# What cross-compiles kernels and runs them: of the tests, where the machine is
# not such a one itself.
neon_packages() {
  if ((for_tests)) && [[ $(uname -m) != aarch64 ]]; then
    echo 'g++-aarch64-linux-gnu # compiler for 64-bit Arm'
    echo 'qemu-user             # runs its programs'
  fi
}

on_debian() {
  local package missing=()
  while read -r package _; do
    [[ -z $package || $package == \#* ]] && continue
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      missing+=("$package")
  done < <(cat "$here/packages-debian.txt" && neon_packages)
  have_cargo || missing+=(cargo-web)
  if lacks_npm; then missing+=(npm); fi
  if ((${#missing[@]} == 0)); then
    return
  fi
  if ((EUID != 0)); then
    say "missing; run this once, then start again:"
    printf '  sudo apt-get update && sudo apt-get install -y --no-install-recommends %s\n' \
      "${missing[*]}" >&2
    exit 1
  fi
  say "apt-get install ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq </dev/null >&2
  apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >&2
  if ! have_cargo; then
    say "no cargo >= $oldest_cargo runs even after installing cargo-web"
    exit 1
  fi
}

if [[ $(uname -s) == Darwin ]]; then
  on_macos
elif command -v dpkg-query >/dev/null; then
  on_debian
else
  say "not a Debian and not macOS: install what scripts/packages-debian.txt names"
  have_cargo || { say "cargo >= $oldest_cargo is needed"; exit 1; }
  if lacks_npm; then say "npm is needed"; exit 1; fi
fi
