#!/usr/bin/env bash
# Makes .deps/clients, what the tests of the server's clients need: a Python
# environment as tests/clients/requirements.txt says and JavaScript packages as
# the lock file in tests/clients/js says. Does nothing if it is already so.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repo"
pinned=tests/clients
clients=.deps/clients
marker=$clients/pinned.sha256

# The folder is part of it: a virtual environment cannot be moved.
wanted=$(cat "$pinned/requirements.txt" "$pinned/js/package-lock.json" \
  <(python3 --version) <(echo "$repo/$clients") | sha256sum)
if [[ -f $marker && $(<"$marker") == "$wanted" ]]; then
  exit 0
fi
if ! command -v npm >/dev/null; then
  echo "clients: npm is needed: scripts/install_packages.sh tests" >&2
  exit 1
fi
echo "clients: pip and npm install what $pinned pins into $clients" >&2
mkdir -p .deps
rm -rf "$clients"
python3 -m venv "$clients"
"$clients/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --no-deps \
  --only-binary=:all: -r "$pinned/requirements.txt" </dev/null >&2
"$clients/bin/python" -m pip --disable-pip-version-check check >&2
# npm checks what it gets against the hashes of the lock file; no package's own
# script is run.
mkdir "$clients/js"
cp "$pinned/js/package.json" "$pinned/js/package-lock.json" "$clients/js/"
npm ci --prefix "$clients/js" --cache "$clients/npm-cache" --ignore-scripts --no-audit --no-fund \
  --loglevel=error </dev/null >&2
rm -rf "$clients/npm-cache"
# Last, so that an interrupted installation is made again.
printf '%s\n' "$wanted" >"$marker"
