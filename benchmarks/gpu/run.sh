#!/usr/bin/env bash
# Measures mlxx on this machine's NVIDIA GPU beside mlx-lm and llama.cpp, with
# random weights of published shapes, and its server alone:
#   benchmarks/gpu/run.sh [options] OUT_FOLDER
#   --mlxx PROGRAM       default: build/bin/mlxx; its libmlx as MLXX_LIBMLX says
#   --python PYTHON      one with mlx-lm and a CUDA mlx; without it, no mlx-lm
#   --llama-bench FILE   a llama-bench that was built with CUDA, and beside it
#                        llama-batched-bench
#   --llama-source FOLDER
#                        instead: llama.cpp's source, which is built first
#                        (llama_cpp.sh)
#   --gguf MODEL.gguf    a Q4_0 file of the 8B shape; without it,
#                        random_gguf.py makes one
#   --shapes "8b 1b"     which models (random_model.py)
#   --clients "1 8 32 128"
#   --scratch FOLDER     for the models, 5 GB each; default: /dev/shm
#   --rounds N           default: 3
# OUT_FOLDER gets generate.md and serve.md. Needs Python with NumPy.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mlxx=$repo/build/bin/mlxx python="" llama="" source="" gguf="" shapes="8b 1b"
clients="1 8 32 128" scratch=/dev/shm rounds=3 out=""
while (($#)); do
  case $1 in
    --mlxx) mlxx=$2 && shift 2 ;;
    --python) python=$2 && shift 2 ;;
    --llama-bench) llama=$2 && shift 2 ;;
    --llama-source) source=$2 && shift 2 ;;
    --gguf) gguf=$2 && shift 2 ;;
    --shapes) shapes=$2 && shift 2 ;;
    --clients) clients=$2 && shift 2 ;;
    --scratch) scratch=$2 && shift 2 ;;
    --rounds) rounds=$2 && shift 2 ;;
    -*) sed -n '2,/^set/p' "$0" | grep '^#' >&2 && exit 2 ;;
    *) out=$1 && shift ;;
  esac
done
if [[ -z $out ]]; then
  echo "run.sh: name a folder for the results" >&2
  exit 2
fi
if ! command -v nvidia-smi >/dev/null; then
  echo "run.sh: no NVIDIA driver here" >&2
  exit 1
fi
mkdir -p "$out"

models=() first=""
for shape in $shapes; do
  folder=$scratch/mlxx-$shape-4bit
  if [[ ! -e $folder/tokenizer_config.json ]]; then
    python3 "$repo/benchmarks/gpu/random_model.py" "$folder" --shape "$shape"
  fi
  models+=("$shape=$folder")
  first=${first:-$folder}
done
peers=()
if [[ -n $python ]]; then
  peers+=(--peer "mlx-lm=$python")
fi
if [[ -n $source ]]; then
  llama=$("$repo/benchmarks/gpu/llama_cpp.sh" "$source" "$scratch/mlxx-llama.cpp" | tail -n 1)
fi
if [[ -n $llama && -z $gguf ]]; then
  gguf=$scratch/mlxx-8b-Q4_0.gguf
  if [[ ! -e $gguf ]]; then
    python3 "$repo/benchmarks/gpu/random_gguf.py" "$gguf" --shape 8b
  fi
fi
if [[ -n $llama ]]; then
  peers+=(--peer "llama.cpp=$llama")
  models+=("8b Q4_0=$gguf")
fi
status=0
if ((${#peers[@]})); then
  python3 "$repo/benchmarks/generate/compare.py" --gpu --mlxx "$mlxx" \
    "${peers[@]}" --rounds "$rounds" --out "$out/generate.md" "${models[@]}" || status=1
else
  for model in "${models[@]}"; do
    for arguments in "-p 512 -n 128" "-p 2048 -n 0" "-p 0 -n 64 --parallel 8" \
      "-p 0 -n 64 --parallel 32"; do
      # shellcheck disable=SC2086
      "$mlxx" bench -m "${model#*=}" $arguments -r "$rounds" | tee -a "$out/generate.md"
    done
  done
fi
# shellcheck disable=SC2086
python3 "$repo/benchmarks/serve/compare.py" --one-server --mlxx "$mlxx" \
  --model "$first" --clients $clients --requests 1 --rounds 1 --threads 8 \
  --out "$out/serve.md" || status=1
exit $status
