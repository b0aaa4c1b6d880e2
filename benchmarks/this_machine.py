"""What results say of the machine that they are from."""

import os
import platform


def processor():
    for line in open("/proc/cpuinfo", encoding="utf8"):
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} threads"
    return platform.processor()
