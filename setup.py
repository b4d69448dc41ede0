"""Finds the Cython modules of `aioproducer._native`; everything else of the build is in pyproject.toml.

Every `.pyx` file in that folder becomes one extension module, so adding one needs no change here.
With `AIOPRODUCER_CHECKED=1` the modules are built with bounds checking, with `AIOPRODUCER_SANITIZED=1` for
AddressSanitizer and UndefinedBehaviorSanitizer (`python -m tests.programs.sanitizers`), each into a build folder of its
own. `AIOPRODUCER_OPTIMISE=-O1` compiles in half the time, for tests of what does not depend on it. An editable
installation with `AIOPRODUCER_AS_BUILT=1` compiles nothing: the modules that stand in the tree are used.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

CHECKED = os.environ.get("AIOPRODUCER_CHECKED", "") not in {"", "0"}
AS_BUILT = os.environ.get("AIOPRODUCER_AS_BUILT", "") not in {"", "0"}
SANITIZED = os.environ.get("AIOPRODUCER_SANITIZED", "") not in {"", "0"}
BUILD = Path("build") / ("sanitized" if SANITIZED else "checked" if CHECKED else "release")
OPTIMISE = [os.environ.get("AIOPRODUCER_OPTIMISE", "/O2" if os.name == "nt" else "-O3")]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"] if SANITIZED else []
NO_DEBUG_INFORMATION = [] if os.name == "nt" else ["-g0"]
"""Against the `-g` that Python was built with: four fifths of the bytes, and a quarter of the time to compile."""

COMPILE = [*SANITIZE, "-fno-omit-frame-pointer", "-g1", "-O0"] if SANITIZED else [*OPTIMISE, *NO_DEBUG_INFORMATION]


def native_modules() -> list[Extension]:
    """One extension for each `.pyx` file, named after it; paths are relative, as setuptools wants them."""
    return [
        Extension(
            ".".join(source.with_suffix("").parts),
            [source.as_posix()],
            extra_compile_args=COMPILE,
            extra_link_args=SANITIZE,
        )
        for source in sorted(Path("aioproducer", "_native").glob("*.pyx"))
    ]


setup(
    ext_modules=[]
    if AS_BUILT
    else cythonize(
        native_modules(),
        build_dir=str(BUILD / "c"),
        language_level=3,
        compiler_directives={
            "boundscheck": CHECKED,
            "wraparound": CHECKED,
            "initializedcheck": CHECKED,
            "cdivision": True,
            "embedsignature": True,
        },
    ),
    options={"build": {"build_base": str(BUILD)}, "build_ext": {"parallel": os.cpu_count() or 1}},
)
