"""The sessions that contributors and CI run: `nox -l` lists them, `nox -s tests` runs one.

A session has an environment of its own, or that of the tests, which is installed again only if pyproject.toml, setup.py
or a native source changed. `-- ARGUMENTS` go to the session's program: `nox -s tests -- -m "not kafka" -x`.
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
"""Supported versions, "3.11" first, from the classifiers."""

OWN_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version of the interpreter that runs nox."""

WORKERS = str(2 * (os.cpu_count() or 1))
"""Processes that share the suite: tests of real brokers mostly wait."""

NO_TESTS_COLLECTED = 5
"""pytest's exit code."""

TESTS = "test,kerberos" if shutil.which("krb5-config") else "test"
"""Groups of the suite; `check_machine.py` says what MIT Kerberos is needed for."""

PIP = {"PYTHONWARNINGS": "ignore", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
"""Environment of pip, without warnings that need no action."""

SANS_IO = next(each for each in PYPROJECT["tool"]["importlinter"]["contracts"] if each["id"] == "sans-io")
DECIDES = [
    f"{path}/*" if (ROOT / path).is_dir() else f"{path}.py"
    for path in (module.replace(".", "/") for module in SANS_IO["source_modules"])
]
"""Files of the modules in the sans-io contract."""

TESTS_OF_DECISIONS = [
    *("tests/accumulator", "tests/protocol", "tests/sender", "tests/timing", "tests/transactions"),
    *("tests/network/test_sealed_bytes.py", "tests/test_cluster.py", "tests/test_partitioners.py"),
    *("tests/producer/test_explain.py", "tests/producer/test_explain_calls.py", "tests/network/test_silence.py"),
    "tests/journeys/test_partitions_chosen.py",
    *(f"tests/spark/test_{name}.py" for name in ("commit", "commit_histories", "decision", "offsets", "write_choice")),
]

OLD_SPARKS = ("4.2.1", "4.0.5")
LONG_ON_SPARK = tuple(
    f"tests/spark/functions/test_{name}.py" for name in ("both_formats", "event_log", "load", "pipeline")
)
"""Tests with Spark that the gate leaves out."""

CRASH_ON_OLD_SPARKS = "tests/spark/crashes/test_driver_killed.py::test_driver_killed[4.4.0]"

SHOW_PROGRESS = str(ROOT / ".ci" / "show_progress.py")
CHECK_MACHINE = str(ROOT / ".ci" / "check_machine.py")


# ------------------------------------------------------------------------------------------------- programs


@nox.session
def demo(session: nox.Session) -> None:
    """Stream real flights through a producer while a broker dies: `-- --kafka 4.4.0`, `-- --transactions`."""
    install(session, extras="cli", group="demo")
    session.run("python", "-m", "examples.demo", *session.posargs)


@nox.session
def pipeline(session: nox.Session) -> None:
    """Run a data pipeline on Spark, whose driver is killed: `-- --kill-driver-at decision`, `-- --kafka 4.4.0`."""
    install(session, extras="cli,spark", group="pipeline")
    session.run("python", "-m", "examples.spark_pipeline", *session.posargs)


@nox.session(python=False)
def bench(session: nox.Session) -> None:
    """Measure this producer beside other clients: `-- --quick`, `-- --embedded --only hooks`, `-- --json FILE`."""
    run_beside_tests(session, "tests.benchmarks", *session.posargs)


# --------------------------------------------------------------------------------------------------- tests


@nox.session
def tests(session: nox.Session) -> None:
    """Run the whole suite on this interpreter, with real Kafka if Java and Maven are installed.

    In several processes, or in one if arguments are given.
    """
    install(session, extras="cli", group=TESTS)
    session.run("python", "-m", "pytest", *(session.posargs or ["-n", WORKERS, "--dist", "loadfile"]))


@nox.session(python=False)
def tests_all(session: nox.Session) -> None:
    """Run the suite on every supported interpreter found on this machine, and name those absent."""
    found = interpreters()
    for version in PYTHONS:
        if version not in found:
            session.warn(f"Python {version} is not on this machine: its tests are skipped")
    failed = [version for version, interpreter in found.items() if not passes_tests(session, version, interpreter)]
    if failed:
        session.error(f"failed on Python {', '.join(failed)}")


@nox.session(python=False)
def tests_newest(session: nox.Session) -> None:
    """Run the suite on the newest supported interpreter found other than the one that runs nox."""
    others = {version: path for version, path in interpreters().items() if version != OWN_VERSION}
    if not others:
        session.warn(f"no supported Python besides {OWN_VERSION} is on this machine: its tests are skipped")
        return
    newest = max(others, key=PYTHONS.index)
    if not passes_tests(session, newest, others[newest]):
        session.error(f"failed on Python {newest}")


@nox.session
def lowest(session: nox.Session) -> None:
    """Run the quick suite with the lowest version of every dependency that the package supports."""
    install(session, extras="cli", group="test")
    compiled = {} if shutil.which("krb5-config") else {"kerberos": []}
    extras = {**PYPROJECT["project"]["optional-dependencies"], "spark": [], **compiled}  # `spark` tests old ones itself
    requirements = [*PYPROJECT["project"]["dependencies"], *(each for extra in extras.values() for each in extra)]
    bounds = {each.partition(";")[0].strip().replace(">=", "==") for each in requirements if ">=" in each}
    # The newest SDK of OpenTelemetry, which tests use, does not work with an older API.
    bounds |= {each.replace("-api", "-sdk") for each in bounds if each.startswith("opentelemetry-api")}
    bounds.add("googleapis-common-protos<1.71")  # newer ones, which confluent-kafka brings, need protobuf 6
    session.install("-q", *sorted(bounds))
    # The stand-in has the newest aiokafka's signatures, and the agent for it needs the newest OpenTelemetry.
    newest = ["--deselect=tests/compat/test_aiokafka_signatures.py", "--ignore=tests/compat/test_opentelemetry.py"]
    session.run("pytest", *(session.posargs or ["-q", "-n", WORKERS, "-m", "not kafka and not slow", *newest]))


@nox.session(python=False)
def spark(session: nox.Session) -> None:
    """Run the tests of the data source for Spark: all of them, also on older Sparks; `-- --gate` those of each change.

    In environments of their own. Those of the other sessions have no pyspark, and run there what needs none, which
    `--gate` leaves to them.
    """
    if shutil.which("java") is None:
        session.warn("Java is not on this machine: the tests of Spark are skipped")
        return
    is_gate = "--gate" in session.posargs
    arguments = [each for each in session.posargs if each != "--gate"]
    tests = tests_with_pyspark() if is_gate else ["tests/spark"]
    chosen = ["-m", "gate or not kafka", *(f"--deselect={each}" for each in LONG_ON_SPARK)] if is_gate else []
    if not arguments:
        chosen += ["-n", "2", "--dist", "loadfile"]  # one process for tests of real brokers, one for the others
    home = environment_of_spark(session)
    python = str(home / "bin" / "python")
    cache = f"cache_dir={home / 'pytest-cache'}"  # its own: in CI other tests run at the same time
    if not arguments:  # first, or a second run of what failed below would be without them; in a session of their own
        pages = "tests/docs/test_docs_spark.py"
        session.run(python, "-m", "pytest", "-q", "-o", cache, pages, external=True)
    session.run(python, "-m", "pytest", "-q", "-o", cache, *tests, *chosen, *arguments, external=True)
    if is_gate or arguments:
        return
    for version in OLD_SPARKS:
        python = str(environment_of_spark(session, version) / "bin" / "python")
        session.run(python, "-m", "pytest", "-q", "tests/spark/functions", "-m", "not kafka", external=True)
        session.run(python, "-m", "pytest", "-q", CRASH_ON_OLD_SPARKS, external=True)


@nox.session(python=False)
def simulate(session: nox.Session) -> None:
    """Run many seeds in virtual time: `-- --seeds 1000 --jobs 2 [--schedule pct]`, or `-- --scenario all`."""
    arguments = session.posargs or ["--all", "--seeds", "100", "--jobs", "2"]
    chosen = [] if {"--all", "--family", "--scenario"} & set(arguments) else ["--all"]
    run_beside_tests(session, "tests.programs.simulation", *chosen, *arguments, env={"PYTHONHASHSEED": "0"})


@nox.session(python=False)
def mutants(session: nox.Session) -> None:
    """Put deliberate bugs into copies of the package, which tests must find: `-- NAME`, `-- --six HASH`."""
    run_beside_tests(session, "tests.programs.mutants", *session.posargs)


@nox.session(python=False)
def coverage(session: nox.Session) -> None:
    """Run the tests of the sans-io modules, which must reach every line and branch of them."""
    processes = ["-n", str(os.cpu_count() or 1)]
    tests = ["pytest", "-q", *processes, *TESTS_OF_DECISIONS, "--cov", "--cov-report=", *session.posargs]
    run_beside_tests(session, *tests)
    report = ["coverage", "report", f"--include={','.join(DECIDES)}", "--fail-under=100"]
    run_beside_tests(session, *report)


@nox.session
def checked(session: nox.Session) -> None:
    """Run the tests of the native modules on a build that checks every index."""
    tools = nox.project.dependency_groups(PYPROJECT, "test")
    session.install("-q", ".", *tools, env={"AIOPRODUCER_CHECKED": "1"})
    outside = Path(session.create_tmp(), "outside")  # inside the tree, its own unchecked package would be imported
    shutil.rmtree(outside, ignore_errors=True)
    shutil.copytree(ROOT / "tests", outside / "tests")
    shutil.copy(ROOT / "pyproject.toml", outside)
    with session.chdir(outside):
        session.run("pytest", "tests/native", *session.posargs)


@nox.session(python=False)
def chaos(session: nox.Session) -> None:
    """Kill real brokers under load, and check their logs: `-- --minutes 30` or `-- --client aiokafka`."""
    run_beside_tests(session, "tests.programs.chaos", *session.posargs)


@nox.session(python=False)
def outbox(session: nox.Session) -> None:
    """Kill relays of an outbox at each step, and what they use: `-- --database sqlite --kafka 3.9.1`."""
    run_beside_tests(session, "tests.programs.outbox", *session.posargs)


@nox.session(python=False)
def rotation(session: nox.Session) -> None:
    """Let sessions end and secrets change under load on real brokers: `nox -s rotation [-- --kafka 4.4.0]`."""
    run_beside_tests(session, "tests.programs.rotation", *session.posargs)


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
    """Load real brokers at 70 % of the highest rate, with a fault per minute: `nox -s soak -- --minutes 45`."""
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
    """Check the types of the package, and with two checkers and for completeness those of the public interface."""
    install(session, group="types", package=False)
    python = str(environment_of_tests(session) / "bin" / "python")  # whose packages the checkers read
    checked_by_mypy = [
        "aioproducer",
        "pyspark_aioproducer.py",
        "pytest_aioproducer.py",
        ".ci/check_machine.py",
        ".ci/show_progress.py",
        *present("tests/typing"),
    ]
    typed_programs = ["examples/demo", "examples/spark_pipeline", "tests/benchmarks"]
    run_all(
        session,
        ["mypy", "--python-executable", python, *checked_by_mypy],
        ["mypy", "--python-executable", python, "--explicit-package-bases", *typed_programs],
        ["basedpyright", "--pythonpath", python, *present("tests/typing")],
        ["basedpyright", "--pythonpath", python, "--verifytypes", "aioproducer", "--ignoreexternal"],
        env={"PYTHONPATH": str(ROOT)},  # the last one does not follow an editable install
    )


@nox.session
def architecture(session: nox.Session) -> None:
    """Check imports, sizes and public names, and that the pages made from docstrings are current."""
    install(session, group="architecture", package=False)
    session.run("lint-imports", "--no-logo")
    tests = ["tests/test_architecture.py", "tests/test_exports.py", "tests/docs/test_generated_pages.py"]
    run_beside_tests(session, "pytest", "-q", "-n", str(os.cpu_count() or 1), *tests)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation in build/docs without a warning, and test its names and code unless `-- --site-only`."""
    install(session, group="docs", package=False)
    site = ["sphinx-build", "-n", "-W", "--keep-going", "-q", "-d", "build/docs/doctrees", "docs", "build/docs/html"]
    session.run(*site)
    session.log("the site: build/docs/html/index.html")
    if session.posargs != ["--site-only"]:
        tests = present("tests/test_docs.py", "tests/docs")
        run_beside_tests(session, "pytest", "-q", *tests, *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Build the sdist and the wheel from it, and use that wheel outside the tree, bare and with its extras."""
    install(session, group="build", package=False)
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", "dist", silent=True)
    (wheel,) = (ROOT / "dist").glob("*.whl")
    session.run("check-wheel-contents", str(wheel))
    bare = Path(session.create_tmp(), "bare")
    session.run("python", "-m", "venv", "--clear", str(bare))
    python = str(bare / "bin" / "python")
    session.run(python, "-m", "pip", "install", "-q", str(wheel), external=True, env=PIP)
    session.run(python, "-P", "-c", "import aioproducer; print(aioproducer.__file__)", external=True)
    session.run(python, "-m", "pip", "install", "-q", f"{wheel}[cli]", external=True, env=PIP)
    session.run(python, "-P", ".ci/check_wheel.py", external=True)
    session.run(str(bare / "bin" / "aioproducer"), "--help", external=True, silent=True)


# ----------------------------------------------------------------------------------------- implementation


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
        session: the environment is its own, if `home` is not given.
        home: folder of a virtual environment.
        extras: of the project, comma-separated.
        group: names in [dependency-groups], comma-separated.
        package: install the project itself too.
        env: variables of the build.
    """
    home = home or Path(session.virtualenv.location)
    stamp = home / ".installed"
    state = f"{source_digest()} {extras} {group} {package}"
    if stamp.exists() and stamp.read_text("utf-8") == state:
        return
    python = str(home / "bin" / "python")
    if package:
        session.run_install(python, CHECK_MACHINE, external=True, log=False)
        session.log("compiling the native modules takes minutes, and is repeated only when they change:")
    requirements = nox.project.dependency_groups(PYPROJECT, *group.split(",")) if group else []
    build = PYPROJECT["build-system"]["requires"] if package else []
    # With -v pip says what it does, of which `show_progress.py` shows a line per step. Bytecode is written at the first
    # import.
    pip = [python, SHOW_PROGRESS, python, "-m", "pip", "install", "-v", "--no-compile"]
    session.run_install(*pip, *build, *requirements, external=True, env=PIP)
    if package:  # built in this environment, without a temporary one
        project = f".[{extras}]" if extras else "."
        session.run_install(*pip, "--no-build-isolation", "-e", project, external=True, env=PIP | (env or {}))
    stamp.write_text(state, "utf-8")


def passes_tests(session: nox.Session, version: str, interpreter: str) -> bool:
    """Run the suite on one interpreter, in an environment of its own, or that of `tests` for our own interpreter."""
    try:
        home = environment_of_tests(session, version, interpreter)
        cache = home / "pytest-cache"  # its own: another interpreter may run at the same time
        was_run = cache.exists() and "--last-failed" in session.posargs
        codes = [0, NO_TESTS_COLLECTED] if was_run else [0]  # a second run may have nothing to repeat
        pytest = [str(home / "bin" / "python"), "-m", "pytest", "-o", f"cache_dir={cache}"]
        session.run(*pytest, *session.posargs, external=True, success_codes=codes)
    except nox.command.CommandFailed:
        return False
    return True


def environment_of_tests(session: nox.Session, version: str = OWN_VERSION, interpreter: str = sys.executable) -> Path:
    """Update the environment of the suite on one interpreter, and return its folder."""
    is_ours = version == OWN_VERSION
    home = ROOT / ".nox" / ("tests" if is_ours else f"tests-{version}")
    if not home.exists():
        python = sys.executable if is_ours else interpreter
        session.run_install(sys.executable, "-m", "virtualenv", "-q", "-p", python, str(home), external=True)
    quick = None if is_ours else {"AIOPRODUCER_OPTIMISE": "-O1"}  # only `tests` is built as for release
    install(session, home, extras="cli", group=TESTS if is_ours else "test", env=quick)
    return home


def tests_with_pyspark() -> list[str]:
    """Return the tests of Spark that the environment of the tests skips, in whole or in part."""
    folder = ROOT / "tests" / "spark"
    skipped = [path for path in sorted(folder.glob("test_*.py")) if 'find_spec("pyspark")' in path.read_text("utf-8")]
    return [str(path.relative_to(ROOT)) for path in (folder / "functions", folder / "crashes", *skipped)]


def environment_of_spark(session: nox.Session, version: str = "") -> Path:
    """Update the environment of the tests of Spark, with the newest one or a version, and return its folder.

    It uses the native modules of the environment of the tests, which has the same interpreter.
    """
    environment_of_tests(session)
    home = ROOT / ".nox" / (f"spark-{version}" if version else "spark")
    if not home.exists():
        session.run_install(sys.executable, "-m", "virtualenv", "-q", str(home), external=True)
    install(session, home, extras="cli,spark", group="spark", env={"AIOPRODUCER_AS_BUILT": "1"})
    if version:
        python = str(home / "bin" / "python")
        session.run_install(python, "-m", "pip", "install", "-q", f"pyspark=={version}", external=True, env=PIP)
    return home


def run_beside_tests(session: nox.Session, module: str, *arguments: str, env: dict[str, str] | None = None) -> None:
    """Run a module in the environment of the tests, which saves another build."""
    python = str(environment_of_tests(session) / "bin" / "python")
    session.run(python, "-m", module, *arguments, external=True, env=env)


def source_digest() -> str:
    """Return a digest that changes when environments must be updated."""
    sources = [
        ROOT / "pyproject.toml",
        ROOT / "setup.py",
        *sorted((ROOT / "aioproducer" / "_native").glob("*.p[yx][xd]")),
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def run_all(session: nox.Session, *commands: list[str], env: dict[str, str] | None = None) -> None:
    """Run every command, and then fail if one of them failed."""
    failed = []
    for command in commands:
        try:
            session.run(*command, external=True, env=env)
        except nox.command.CommandFailed:
            failed.append(command[0])
    if failed:
        session.error(f"failed: {', '.join(failed)}")


def present(*paths: str) -> list[str]:
    """Return the paths that exist."""
    return [path for path in paths if (ROOT / path).exists()]


def interpreters() -> dict[str, str]:
    """Return supported versions on PATH or in pyenv, each with an interpreter that can build the project."""
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
    """Return whether an interpreter starts, has its headers and finds a compiler; a pyenv shim may not."""
    return subprocess.run([program, CHECK_MACHINE], capture_output=True, check=False).returncode == 0
