"""Everything a contributor or CI runs, one session a job: `nox -l` lists them, `nox -s tests` runs one.

A session installs what it needs into an environment of its own and does so again only when pyproject.toml, setup.py
or a native source changed. `-- ARGUMENTS` go to the program a session runs: `nox -s tests -- -m "not kafka" -x`.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "architecture", "tests"]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_external_run = True

ROOT = Path(__file__).parent
PYPROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = [
    line.rpartition(" ")[2]
    for line in PYPROJECT["project"]["classifiers"]
    if line.startswith("Programming Language :: Python :: 3.")
]
"""Versions the project supports, "3.11" first, as its classifiers say."""

OWN_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Of the interpreter that runs nox."""

WORKERS = str(2 * (os.cpu_count() or 1))
"""Processes that share the suite: half of what the tests of real brokers take is waiting."""

NO_TESTS_COLLECTED = 5
"""pytest's exit code."""

PIP = {"PYTHONWARNINGS": "ignore", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
"""Its environment: it says nothing that nobody acts on."""

SANS_IO = next(each for each in PYPROJECT["tool"]["importlinter"]["contracts"] if each["id"] == "sans-io")
DECIDES = [
    f"{path}/*" if (ROOT / path).is_dir() else f"{path}.py"
    for path in (module.replace(".", "/") for module in SANS_IO["source_modules"])
]
"""Files of the modules that decide, as the contract lists them."""

TESTS_OF_DECISIONS = [
    *("tests/accumulator", "tests/protocol", "tests/sender", "tests/timing", "tests/transactions"),
    *("tests/test_cluster.py", "tests/test_partitioners.py"),
]

CHECK_MACHINE = str(ROOT / ".ci" / "check_machine.py")


# ------------------------------------------------------------------------------------------ what users run


@nox.session
def demo(session: nox.Session) -> None:
    """Stream real flights through a producer while a broker dies: `aioproducer demo`."""
    install(session, extras="demo")
    session.run("aioproducer", "demo", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure this producer beside its peers: `aioproducer bench`."""
    install(session, extras="cli", group="bench")
    session.run("aioproducer", "bench", *session.posargs)


# --------------------------------------------------------------------------------------------------- tests


@nox.session
def tests(session: nox.Session) -> None:
    """Run the whole suite on this interpreter, real Kafka included where Java and Maven are there.

    In several processes, because much of it waits for real brokers; in one if arguments are given.
    """
    install(session, extras="demo", group="test")
    session.run("pytest", *(session.posargs or ["-n", WORKERS, "--dist", "worksteal"]))


@nox.session(python=False)
def tests_all(session: nox.Session) -> None:
    """Run the suite on every supported interpreter found on this machine, and name those absent."""
    test_on(session, interpreters())


@nox.session(python=False)
def tests_others(session: nox.Session) -> None:
    """Run the suite on every supported interpreter found but the one that runs nox, which `tests` is for."""
    test_on(session, {version: path for version, path in interpreters().items() if version != OWN_VERSION})


@nox.session
def lowest(session: nox.Session) -> None:
    """Run the quick suite with the lowest versions of every dependency that the package promises to work with."""
    install(session, extras="demo", group="test")
    extras = PYPROJECT["project"]["optional-dependencies"].values()
    requirements = [*PYPROJECT["project"]["dependencies"], *(each for extra in extras for each in extra)]
    bounds = sorted({each.partition(";")[0].strip().replace(">=", "==") for each in requirements if ">=" in each})
    session.install("-q", *bounds)
    newest = "--deselect=tests/compat/test_aiokafka_signatures.py"  # the stand-in has the newest aiokafka's
    session.run("pytest", *(session.posargs or ["-q", "-n", WORKERS, "-m", "not kafka and not slow", newest]))


@nox.session(python=False)
def simulate(session: nox.Session) -> None:
    """Live many seeds through in virtual time: `-- --seeds 1000 --jobs 2 [--schedule pct]`, or `-- --scene all`."""
    arguments = session.posargs or ["--all", "--seeds", "100", "--jobs", "2"]
    chosen = [] if {"--all", "--family", "--scene"} & set(arguments) else ["--all"]
    run_beside_tests(session, "tests.programs.simulation", *chosen, *arguments, env={"PYTHONHASHSEED": "0"})


@nox.session(python=False)
def mutants(session: nox.Session) -> None:
    """Put deliberate bugs into copies of the package, each of which must be found: `-- NAME`, `-- --six HASH`."""
    run_beside_tests(session, "tests.programs.mutants", *session.posargs)


@nox.session(python=False)
def coverage(session: nox.Session) -> None:
    """Run the tests of what decides, in the core and the protocol, which must reach every line and branch of it."""
    tests = ["pytest", "-q", *TESTS_OF_DECISIONS, "--cov", "--cov-report=", *session.posargs]
    run_beside_tests(session, *tests)
    report = ["coverage", "report", f"--include={','.join(DECIDES)}", "--fail-under=100"]
    run_beside_tests(session, *report)


@nox.session
def checked(session: nox.Session) -> None:
    """Run the tests of the native modules on a build that checks every index."""
    tools = nox.project.dependency_groups(PYPROJECT, "test")
    session.install("-q", ".", *tools, env={"AIOPRODUCER_CHECKED": "1"})
    outside = Path(session.create_tmp(), "outside")  # in the tree, the package beside the tests would be imported
    shutil.rmtree(outside, ignore_errors=True)
    shutil.copytree(ROOT / "tests", outside / "tests")
    shutil.copy(ROOT / "pyproject.toml", outside)
    with session.chdir(outside):
        session.run("pytest", "tests/native", *session.posargs)


@nox.session(python=False)
def chaos(session: nox.Session) -> None:
    """Kill real brokers under load, and check what their logs hold: `nox -s chaos -- --minutes 30 [--kafka 4.3.1]`."""
    run_beside_tests(session, "tests.programs.chaos", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Fuzz every decoder: `-- --minutes 10`, by libFuzzer with `--engine atheris`."""
    install(session, group="fuzz")
    session.run("python", "-m", "tests.programs.fuzz", *session.posargs)


@nox.session(python=False)
def sanitizers(session: nox.Session) -> None:
    """Run the native tests, journeys and the fuzzer on a build with AddressSanitizer and UBSan: `-- --minutes 1`."""
    run_beside_tests(session, "tests.programs.sanitizers", *session.posargs)


@nox.session(python=False)
def soak(session: nox.Session) -> None:
    """Load real brokers at 70 % of the highest rate, a fault a minute: `nox -s soak -- --minutes 45`."""
    run_beside_tests(session, "tests.programs.soak", *session.posargs)


@nox.session(python=False)
def examples(session: nox.Session) -> None:
    """Run every example against the embedded cluster."""
    run_beside_tests(session, "pytest", "tests/examples", *session.posargs)


# -------------------------------------------------------------------------------------------------- checks


@nox.session
def lint(session: nox.Session) -> None:
    """Check format, style, native sources and spelling."""
    install(session, group="lint", package=False)
    run_all(
        session,
        ["ruff", "format", "--check", "."],
        ["ruff", "check", "."],
        ["cython-lint", "aioproducer"],
        ["codespell"],
    )


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of the package; by two checkers, and whole, those of the public interface as users see it."""
    install(session, group="types", package=False)
    python = str(environment_of_tests(session) / "bin" / "python")  # whose packages are looked at
    completeness = ".ci/check_type_completeness.py"
    checked_by_mypy = [
        "aioproducer",
        "pytest_aioproducer.py",
        ".ci/check_machine.py",
        completeness,
        *present("tests/typing"),
    ]
    run_all(
        session,
        ["mypy", "--python-executable", python, *checked_by_mypy],
        ["basedpyright", "--pythonpath", python, *present("tests/typing")],
        [python, completeness],
    )


@nox.session
def architecture(session: nox.Session) -> None:
    """Check that imports go downward, that sizes hold and that the public names are those promised."""
    install(session, group="architecture", package=False)
    python = str(environment_of_tests(session) / "bin" / "python")
    tests = ["pytest", "-q", "tests/test_architecture.py", "tests/test_exports.py", *session.posargs]
    run_all(session, ["lint-imports", "--no-logo"], [python, "-m", *tests])


@nox.session
def docs(session: nox.Session) -> None:
    """Make a site of the documentation in build/docs, without a warning; check its names, its code, what is made."""
    install(session, group="docs", package=False)
    site = ["sphinx-build", "-n", "-W", "--keep-going", "-q", "-d", "build/docs/doctrees", "docs", "build/docs/html"]
    session.run(*site)
    session.log("the site: build/docs/html/index.html")
    generated = ["tests/test_configuration_reference.py", "tests/test_performance_page.py"]
    tests = present("tests/test_docs.py", "tests/docs", *generated)
    run_beside_tests(session, "pytest", "-q", *tests, *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Build the sdist, the wheel from it, and import that wheel outside the tree."""
    install(session, group="build", package=False)
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", "dist", silent=True)
    (wheel,) = (ROOT / "dist").glob("*.whl")
    session.run("check-wheel-contents", str(wheel))
    session.install("-q", "--force-reinstall", f"{wheel}[cli]")
    with session.chdir(session.create_tmp()):
        session.run("python", "-c", "import aioproducer; print(aioproducer.__file__)")
        session.run("aioproducer", "--help", silent=True)


# ------------------------------------------------------------------------------------------ how they do it


def install(
    session: nox.Session,
    home: Path | None = None,
    *,
    extras: str = "",
    group: str = "",
    package: bool = True,
    env: dict[str, str] | None = None,
) -> None:
    """Install the project (editable) and a dependency group, unless nothing changed since the last time.

    Args:
        session: whose environment it goes into, if `home` is not given.
        home: folder of a virtual environment.
        extras: of the project, comma-separated.
        group: name in [dependency-groups].
        package: install the project itself too.
        env: of what compiles it.
    """
    home = home or Path(session.virtualenv.location)
    stamp = home / ".installed"
    state = f"{source_digest()} {extras} {group} {package}"
    if stamp.exists() and stamp.read_text("utf-8") == state:
        return
    python = str(home / "bin" / "python")
    if package:
        session.run(python, CHECK_MACHINE, external=True, log=False)
        session.log("compiles the native modules, which takes minutes and is done again when they change")
    requirements = nox.project.dependency_groups(PYPROJECT, group) if group else []
    build = PYPROJECT["build-system"]["requires"] if package else []
    pip = [python, "-m", "pip", "install", "-q", "--no-compile"]  # bytecode: of what is imported, when it is
    session.run(*pip, *build, *requirements, external=True, env=PIP)
    if package:  # built in this environment, not in one made for it alone and thrown away
        project = f".[{extras}]" if extras else "."
        session.run(*pip, "--no-build-isolation", "-e", project, external=True, env=PIP | (env or {}))
    stamp.write_text(state, "utf-8")


def test_on(session: nox.Session, found: dict[str, str]) -> None:
    """Run the suite on each of these interpreters, and name the supported ones that are not on this machine."""
    for version in PYTHONS:
        if version not in found and version != OWN_VERSION:
            session.warn(f"Python {version} is not on this machine: its tests are skipped")
    failed = [version for version, interpreter in found.items() if not passes_tests(session, version, interpreter)]
    if failed:
        session.error(f"failed on Python {', '.join(failed)}")


def passes_tests(session: nox.Session, version: str, interpreter: str) -> bool:
    """Run the suite on one interpreter, in an environment of its own; that of `tests` where it is the one we run on."""
    try:
        home = environment_of_tests(session, version, interpreter)
        cache = home / "pytest-cache"  # its own: other interpreters may be at work beside us
        was_run = cache.exists() and "--last-failed" in session.posargs
        codes = [0, NO_TESTS_COLLECTED] if was_run else [0]  # where all has passed, nothing is left to run again
        pytest = [str(home / "bin" / "python"), "-m", "pytest", "-o", f"cache_dir={cache}"]
        session.run(*pytest, *session.posargs, external=True, success_codes=codes)
    except nox.command.CommandFailed:
        return False
    return True


def environment_of_tests(session: nox.Session, version: str = OWN_VERSION, interpreter: str = sys.executable) -> Path:
    """Bring up to date, and return the folder of, the environment the suite runs in on one interpreter."""
    is_ours = version == OWN_VERSION
    home = ROOT / ".nox" / ("tests" if is_ours else f"tests-{version}")
    if not home.exists():
        python = sys.executable if is_ours else interpreter
        session.run(sys.executable, "-m", "virtualenv", "-q", "-p", python, str(home), external=True)
    quick = None if is_ours else {"AIOPRODUCER_OPTIMISE": "-O1"}  # `tests` is for what the package is built as
    install(session, home, extras="demo", group="test", env=quick)
    return home


def run_beside_tests(session: nox.Session, module: str, *arguments: str, env: dict[str, str] | None = None) -> None:
    """Run a module in the environment of the tests, so that no other has to be made and compiled for."""
    python = str(environment_of_tests(session) / "bin" / "python")
    session.run(python, "-m", module, *arguments, external=True, env=env)


def source_digest() -> str:
    """Changes when an installed environment has to be brought up to date."""
    sources = [
        ROOT / "pyproject.toml",
        ROOT / "setup.py",
        *sorted((ROOT / "aioproducer" / "_native").glob("*.p[yx][xd]")),
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def run_all(session: nox.Session, *commands: list[str]) -> None:
    """Run every command, also after one failed, and then fail if one did."""
    failed = []
    for command in commands:
        try:
            session.run(*command, external=True)
        except nox.command.CommandFailed:
            failed.append(command[0])
    if failed:
        session.error(f"failed: {', '.join(failed)}")


def present(*paths: str) -> list[str]:
    """Those of the paths that exist."""
    return [path for path in paths if (ROOT / path).exists()]


def interpreters() -> dict[str, str]:
    """Supported versions found on PATH or among pyenv's, each with a program that runs and can build the project."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = {}
    for version in PYTHONS:
        candidates = [
            shutil.which(f"python{version}"),
            *sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python"))),
        ]
        usable = [program for program in candidates if program and can_build(program)]
        if usable:
            found[version] = usable[-1]
    return found


def can_build(program: str) -> bool:
    """Whether an interpreter starts, has its headers and finds a compiler; a pyenv shim may do neither."""
    return subprocess.run([program, CHECK_MACHINE], capture_output=True, check=False).returncode == 0
