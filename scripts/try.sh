#!/usr/bin/env bash
# Installs what is missing, builds mlxx, gets the default model and answers:
#     scripts/try.sh ["What is the capital of France?"]
# Each step is skipped or quick where it was done before.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repo"

if (($# > 1)) || [[ ${1-} == -h || ${1-} == --help ]]; then
  echo 'usage: scripts/try.sh [PROMPT]' >&2
  exit 2
fi
prompt=${1-"What is the capital of France?"}

say() { printf '== %s\n' "$*" >&2; }

say "packages"
scripts/install_packages.sh

say "configure build/"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset release >"$log" 2>&1 </dev/null; then
  cat "$log" >&2
  exit 1
fi

say "build build/bin/mlxx (some minutes the first time)"
cmake --build build --target mlxx mlxx_impl >&2 </dev/null

say "the default model, SmolLM2-135M-Instruct"
build/bin/mlxx pull smollm2 >&2 </dev/null

say "mlxx generate \"$prompt\""
# -p takes the text as it is, also one that begins with a dash.
build/bin/mlxx generate --prompt="$prompt" </dev/null
