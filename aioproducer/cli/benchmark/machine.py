"""What the figures were measured on and with: machine, interpreter and the versions of all clients."""

import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
from pathlib import Path

from aioproducer.testing.kafka.prerequisites import java_program

LIBRARIES = ("aioproducer", "uvloop", "confluent-kafka", "aiokafka", "kafka-python")
"""Distributions whose versions matter."""

MODULE_OF = {
    "confluent-kafka": "confluent_kafka",
    "aiokafka": "aiokafka",
    "kafka-python": "kafka",
    "orjson": "orjson",
    "pyarrow": "pyarrow",
}
"""Peer -> the module whose presence says that it is installed."""


def machine() -> dict[str, str]:
    """Processor, cores, memory and system."""
    return {
        "processor": _processor(),
        "cores": str(_usable_cores()),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "system": platform.platform(),
    }


def versions() -> dict[str, str]:
    """Of the interpreter, of every client that is installed, and of Java."""
    found = {"Python": f"{platform.python_implementation()} {platform.python_version()}"}
    for library in LIBRARIES:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            found[library] = "not installed"
    found["Java"] = _java_version()
    return found


def is_installed(peer: str) -> bool:
    """Whether a Python peer can be measured; looks without importing it."""
    return importlib.util.find_spec(MODULE_OF[peer]) is not None


def _processor() -> str:
    """The model's name, from Linux's /proc; else what Python knows."""
    cpu_info = Path("/proc/cpuinfo")
    text = cpu_info.read_text("utf-8") if cpu_info.exists() else ""
    model = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return model[1] if model else platform.processor() or platform.machine()


def _usable_cores() -> int:
    """Those this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _java_version() -> str:
    java = java_program()
    if java is None:
        return "not installed"
    answer = subprocess.run(  # noqa: S603 - asks the Java on this machine for its version
        [java, "-version"], capture_output=True, text=True, check=False
    )
    version = re.search(r'version "([^"]+)"', answer.stderr)
    return version[1] if version else "unknown"
