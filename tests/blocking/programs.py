"""Programs that run in processes of their own."""

import subprocess
import sys


def run(program: str, *arguments: str, timeout_s: float = 60) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
