#!/usr/bin/env python3
"""Fetches published chat templates for the comparison with transformers.

    fetch_templates.py DEST

They come out of the source distribution of llama-cpp-python, by version and
sha256, into DEST, which appears complete or not at all. Nothing else of it is
kept, and none of it runs: before pip saves a source distribution it asks the
package's build backend for metadata, so pip is given a backend of that name
that answers with the pinned name and version.
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

NAME = "llama_cpp_python"
VERSION = "0.3.36"
FILE = f"{NAME}-{VERSION}.tar.gz"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
MEMBERS = f"{NAME}-{VERSION}/vendor/llama.cpp/models/templates/"
FEWEST = 60
LARGEST = 1 << 20

BACKEND = f"""
import os

def get_requires_for_build_wheel(config_settings=None):
    return []

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    name = "{NAME}-{VERSION}.dist-info"
    os.mkdir(os.path.join(folder, name))
    with open(os.path.join(folder, name, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: {NAME}\\nVersion: {VERSION}\\n")
    return name

def build_wheel(folder, config_settings=None, metadata_directory=None):
    raise RuntimeError("nothing is built here")
"""


def download(folder):
    backend = folder / "backend" / "scikit_build_core"
    backend.mkdir(parents=True)
    (backend / "__init__.py").write_text("")
    (backend / "build.py").write_text(BACKEND)
    environment = dict(os.environ, PYTHONPATH=str(backend.parent))
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input",
               "download", "--quiet", "--no-deps", "--no-build-isolation", "--no-cache-dir",
               f"--no-binary={NAME.replace('_', '-')}", "--dest", str(folder),
               f"{NAME.replace('_', '-')}=={VERSION}"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, env=environment)
    return folder / FILE


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def extract(archive, folder):
    """Regular files directly in the folder of templates, by name only."""
    count = 0
    with tarfile.open(archive) as tar:
        for member in tar:
            name = member.name.removeprefix(MEMBERS)
            if (member.isreg() and member.name.startswith(MEMBERS) and "/" not in name
                    and name.endswith(".jinja") and member.size <= LARGEST):
                (folder / name).write_bytes(tar.extractfile(member).read())
                count += 1
    return count


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    target = pathlib.Path(sys.argv[1]).resolve()
    if (target / f"{SHA256}.complete").exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".templates-") as name:
        staging = pathlib.Path(name)
        print(f"fetching {NAME} {VERSION} for its chat templates", file=sys.stderr, flush=True)
        archive = download(staging)
        found = sha256_of(archive)
        if found != SHA256:
            sys.exit(f"{FILE}: sha256 is {found} instead of {SHA256}")
        inner = staging / "templates"
        inner.mkdir()
        count = extract(archive, inner)
        if count < FEWEST:
            sys.exit(f"{FILE}: {count} templates, at least {FEWEST} were expected")
        (inner / f"{SHA256}.complete").write_text(f"{count}\n")
        shutil.rmtree(target, ignore_errors=True)
        inner.rename(target)
        print(f"{count} templates in {target}", file=sys.stderr)


if __name__ == "__main__":
    main()
