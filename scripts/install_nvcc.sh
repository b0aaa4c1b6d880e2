#!/usr/bin/env bash
# Puts NVIDIA's compiler into .deps/nvcc as scripts/nvcc_requirements.txt pins
# it, from PyPI; does nothing if it is already there. Needs no GPU and no driver.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repo"
requirements=scripts/nvcc_requirements.txt
folder=.deps/nvcc
marker=$folder/requirements.sha256

wanted=$(sha256sum "$requirements" | cut -d' ' -f1)
if [[ -f $marker && $(<"$marker") == "$wanted" ]]; then
  exit 0
fi
echo "nvcc: pip install --target $folder -r $requirements" >&2
rm -rf "$folder"
mkdir -p "$folder"
python3 -m pip --disable-pip-version-check --no-input install --quiet --no-deps \
  --only-binary=:all: --target "$folder" -r "$requirements" </dev/null >&2
"$folder/nvidia/cu13/bin/nvcc" --version >/dev/null
# Last, so that an interrupted installation is made again.
printf '%s\n' "$wanted" >"$marker"
