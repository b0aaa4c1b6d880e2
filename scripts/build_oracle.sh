#!/usr/bin/env bash
# Makes .deps/oracle, the Python environment of the live comparisons, as
# tests/oracle/requirements.txt says; does nothing if it is already so.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repo"
requirements=tests/oracle/requirements.txt
venv=.deps/oracle
marker=$venv/requirements.sha256

# The folder is part of it: a virtual environment cannot be moved.
wanted=$(python3 - "$requirements" "$repo/$venv" <<'PY'
import hashlib
import sys
with open(sys.argv[1], "rb") as file:
    print(hashlib.sha256(file.read() + sys.version.encode() + sys.argv[2].encode()).hexdigest())
PY
)
if [[ -f $marker && $(<"$marker") == "$wanted" ]]; then
  exit 0
fi
echo "oracle: python3 -m venv $venv; pip install -r $requirements" >&2
mkdir -p .deps
rm -rf "$venv"
python3 -m venv "$venv"
"$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --no-deps \
  --only-binary=:all: -r "$requirements" </dev/null >&2
"$venv/bin/python" -m pip --disable-pip-version-check check >&2
"$venv/bin/python" -c 'import mlx_lm, transformers'
# Last, so that an interrupted installation is made again.
printf '%s\n' "$wanted" >"$marker"
