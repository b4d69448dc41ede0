"""Machine, interpreter, and versions of all clients."""

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

from aioproducer.testing.kafka.prerequisites import java_program

LIBRARIES = ("aioproducer", "uvloop", "confluent-kafka", "aiokafka", "kafka-python")
"""Distributions whose versions are reported."""


def machine() -> dict[str, str]:
    """Return processor, cores, memory and system."""
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "system": platform.platform(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the interpreter, of the clients and of Java."""
    found = {"Python": f"{platform.python_implementation()} {platform.python_version()}"}
    for library in LIBRARIES:
        found[library] = importlib.metadata.version(library)
    found["Java"] = _java_version()
    return found


def _processor() -> str:
    """Return the model's name from Linux's /proc, else from Python."""
    cpu_info = Path("/proc/cpuinfo")
    text = cpu_info.read_text("utf-8") if cpu_info.exists() else ""
    model = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return model[1] if model else platform.processor() or platform.machine()


def _java_version() -> str:
    java = java_program()
    if java is None:
        return "not installed"
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "([^"]+)"', answer.stderr)
    return version[1] if version else "unknown"
