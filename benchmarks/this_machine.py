"""What results say of the machine that they are from."""

import os
import platform
import subprocess


def processor():
    for line in open("/proc/cpuinfo", encoding="utf8"):
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} threads"
    return platform.processor()


def gpu():
    """Name and driver of the first NVIDIA GPU; empty without one."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    name, driver = found.splitlines()[0].split(", ")
    return f"{name}, driver {driver}"
