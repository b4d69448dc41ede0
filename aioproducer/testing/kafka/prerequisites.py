"""The programs that real Apache Kafka needs on a machine, and how to install what is missing; one line each.

Standard library only, and no import of this package: `.ci/check_machine.py` loads this file before anything is
installed.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_MINIMUM = 17
"""Oldest Java major version that runs Kafka 4 brokers."""

INSTALL_JAVA = "sudo apt-get install -y openjdk-17-jre-headless"
INSTALL_MAVEN = "sudo apt-get install -y maven"
INSTALL_KERBEROS = "sudo apt-get install -y krb5-kdc krb5-admin-server krb5-user libkrb5-dev"

_KERBEROS_PROGRAMS = ("krb5kdc", "kadmin.local", "kdb5_util", "kinit", "krb5-config")
_OF_ADMINISTRATORS = "/usr/local/sbin:/usr/sbin:/sbin"  # not on everyone's PATH


def missing_for_kafka(*, jars_cached: bool = False) -> list[str]:
    """One line for each thing real Kafka needs and this machine lacks, with the command that installs it.

    Args:
        jars_cached: the broker's jars are on this machine already, so Maven is not needed.
    """
    missing = []
    java = java_program()
    if java is None:
        missing.append(f"Java {JAVA_MINIMUM} is missing (real Kafka needs it): {INSTALL_JAVA}")
    elif (found := java_major_version(java)) < JAVA_MINIMUM:
        missing.append(f"Java {found} is too old (real Kafka needs {JAVA_MINIMUM} or newer): {INSTALL_JAVA}")
    if not jars_cached and shutil.which("mvn") is None:
        missing.append(f"Maven is missing (it fetches real Kafka): {INSTALL_MAVEN}")
    return missing


def missing_for_kerberos() -> list[str]:
    """One line if a realm for tests (`aioproducer.testing.kafka.Kdc`) or the client's library cannot be had here."""
    missing = [program for program in _KERBEROS_PROGRAMS if _kerberos_path(program) is None]
    return [f"MIT Kerberos is missing ({', '.join(missing)}): {INSTALL_KERBEROS}"] if missing else []


def kerberos_program(name: str) -> str:
    """Path of one of MIT's programs; its bare name if it is not there."""
    return _kerberos_path(name) or name


def _kerberos_path(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_OF_ADMINISTRATORS)


def java_program() -> str | None:
    """Path of the `java` to run: `JAVA_HOME`'s if it is set and has one, else the first on PATH; `None` if neither."""
    home = os.environ.get("JAVA_HOME")
    beside_home = shutil.which("java", path=str(Path(home, "bin"))) if home else None
    return beside_home or shutil.which("java")


def java_major_version(java: str) -> int:
    """Major version of the program `java`: 8 for "1.8.0", 17 for "17.0.15"; 0 if it does not run or does not say."""
    try:
        response = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(r'version "(?:1\.)?(\d+)', response.stderr)
    return int(version[1]) if version else 0
