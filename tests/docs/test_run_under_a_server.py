"""The files of docs/how-to/run_under_a_server.md, and Django's of common_questions.md, each run under its server.

They are fenced with tildes, so that they are not run here, inside a test, as the other blocks are.
"""

import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioproducer.testing import FakeCluster, ThreadedFakeCluster
from aioproducer.testing.kafka.server_properties import free_ports

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/how-to/run_under_a_server.md"
QUESTIONS = ROOT / "docs/how-to/common_questions.md"
FILE_OF_DJANGO = re.compile(
    r"^~~~python\n# (?P<name>kafka\.py|asgi\.py)(?:, beside settings\.py| of Django)\n(?P<code>.*?)^~~~",
    re.DOTALL | re.MULTILINE,
)
FILE = re.compile(r"^~~~python\n# (?P<name>\S+)\n(?P<code>.*?)^~~~", re.DOTALL | re.MULTILINE)
PATIENCE_S = 60

pytestmark = [pytest.mark.slow, pytest.mark.timing]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedFakeCluster]:
    with FakeCluster.in_thread(1, topics={"orders": 1}) as running:
        yield running


@pytest.fixture
def files(cluster: ThreadedFakeCluster, tmp_path: Path) -> Path:
    """The files of the page, in a folder of their own."""
    for match in FILE.finditer(PAGE.read_text("utf-8")):
        code = match["code"].replace("localhost:9092", cluster.bootstrap_servers)
        (tmp_path / match["name"]).write_text(code, "utf-8")
    return tmp_path


@contextlib.contextmanager
def running(folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program until the block ends, and end it as a service manager does."""
    with (folder / "output").open("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-W", "always::ResourceWarning", "-m", *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()
            output.seek(0)
            print(output.read())  # shown if the test fails


def post(port: int, path: str, order: bytes, *, answer: int = http.HTTPStatus.CREATED) -> bytes:
    """Post an order as soon as the server listens."""
    until = time.monotonic() + PATIENCE_S
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        try:
            connection.request("POST", path, order)
            response = connection.getresponse()
            assert response.status == answer
            return response.read()
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        finally:
            connection.close()


def values(cluster: ThreadedFakeCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("orders", 0)]


def all_were_closed(folder: Path) -> bool:
    return "was not closed" not in (folder / "output").read_text()


def test_page_has_the_files_of_every_server(files: Path) -> None:
    names = {file.name for file in files.iterdir()}

    assert names == {"app.py", "gunicorn.conf.py", "tasks.py", "send_all.py", "service.py"}


def test_gunicorn(files: Path, cluster: ThreadedFakeCluster) -> None:
    before, port = len(values(cluster)), free_ports(1)[0]
    patience = ("--graceful-timeout", "3")  # of a worker that is still booting, gunicorn misses the end
    with running(files, "gunicorn", "app:app", "--bind", f"127.0.0.1:{port}", *patience) as gunicorn:
        offsets = [int(post(port, "/", b"g%d" % number)) for number in range(8)]

    assert gunicorn.returncode == 0
    assert all_were_closed(files)
    assert offsets == list(range(before, before + 8))
    assert values(cluster)[before:] == [b"g%d" % number for number in range(8)]


def test_gunicorn_without_brokers_answers_503(files: Path, cluster: ThreadedFakeCluster) -> None:
    port, broker = free_ports(2)
    app = (files / "app.py").read_text("utf-8")
    (files / "app.py").write_text(app.replace(cluster.bootstrap_servers, f"127.0.0.1:{broker}"), "utf-8")
    with running(files, "gunicorn", "app:app", "--bind", f"127.0.0.1:{port}", "--graceful-timeout", "3"):
        post(port, "/", b"g", answer=http.HTTPStatus.SERVICE_UNAVAILABLE)

    assert "cannot connect to bootstrap broker" in (files / "output").read_text()


def test_celery(files: Path, cluster: ThreadedFakeCluster) -> None:
    """With a broker of files in place of Redis."""
    before = len(values(cluster))
    queue = files / "queue"
    for folder in (queue, files / "results"):
        folder.mkdir()
    tasks = (files / "tasks.py").read_text()
    options = f'{{"data_folder_in": "{queue}", "data_folder_out": "{queue}", "control_folder": "{files}/control"}}'
    tasks = tasks.replace('broker="redis://localhost"', 'broker="filesystem://"').replace(
        'backend="redis://localhost"', f'backend="file://{files}/results"'
    )
    (files / "tasks.py").write_text(f"{tasks}\n\ncelery.conf.broker_transport_options = {options}\n")
    (files / "place.py").write_text(
        textwrap.dedent(f"""
            from tasks import place_order
            placed = [place_order.delay(f"c{{number}}") for number in range(8)]
            print(sorted(each.get(timeout={PATIENCE_S}) for each in placed))
            """)
    )
    with running(files, "celery", "-A", "tasks", "worker", "--concurrency", "2", "--without-mingle", "-l", "info"):
        placed = subprocess.run(
            [sys.executable, "place.py"], cwd=files, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    assert all_were_closed(files)
    assert placed.stdout == f"{list(range(before, before + 8))}\n", placed.stderr
    assert sorted(str(value) for value in values(cluster)[before:]) == [f"b'c{number}'" for number in range(8)]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(files: Path, cluster: ThreadedFakeCluster, method: str) -> None:
    before = len(values(cluster))
    with running(files, "send_all", method) as program:
        program.wait(PATIENCE_S)

    assert program.returncode == 0
    assert "100 delivered\n" in (files / "output").read_text()
    assert sorted(map(str, values(cluster)[before:])) == sorted(f"b'order {number}'" for number in range(100))


def test_uvicorn(files: Path, cluster: ThreadedFakeCluster) -> None:
    before, port = len(values(cluster)), free_ports(1)[0]
    with running(files, "uvicorn", "service:app", "--workers", "2", "--port", str(port)):
        offsets = [int(post(port, "/orders", b"u%d" % number)) for number in range(8)]

    assert all_were_closed(files)
    assert offsets == list(range(before, before + 8))
    assert values(cluster)[before:] == [b"u%d" % number for number in range(8)]


@pytest.fixture
def shop(cluster: ThreadedFakeCluster, tmp_path: Path) -> Path:
    """A Django project with the files of the page, whose view only enqueues, and a linger that no test waits for."""
    package = tmp_path / "shop"
    package.mkdir()
    for match in FILE_OF_DJANGO.finditer(QUESTIONS.read_text("utf-8")):
        code = match["code"].replace('"localhost:9092"', f'"{cluster.bootstrap_servers}", linger_ms=60_000')
        (package / match["name"]).write_text(code, "utf-8")
    (package / "settings.py").write_text('SECRET_KEY, ROOT_URLCONF, ALLOWED_HOSTS = "x", "shop.urls", ["*"]\n')
    (package / "urls.py").write_text(
        textwrap.dedent("""
            import asyncio

            from django.http import HttpResponse
            from django.urls import path

            from shop.kafka import producer


            async def place_order(request):
                await asyncio.to_thread(producer.enqueue, "orders", request.body)
                return HttpResponse(status=201)


            urlpatterns = [path("orders", place_order)]
            """)
    )
    return tmp_path


@pytest.mark.parametrize(
    "server",
    [
        pytest.param(["uvicorn", "--port"], id="uvicorn"),
        pytest.param(["gunicorn", "--worker-class", "uvicorn.workers.UvicornWorker", "--bind"], id="gunicorn"),
    ],
)
def test_asynchronous_django_delivers_at_sigterm(shop: Path, cluster: ThreadedFakeCluster, server: list[str]) -> None:
    before, port = len(values(cluster)), free_ports(1)[0]
    address = str(port) if server[0] == "uvicorn" else f"127.0.0.1:{port}"
    with running(shop, *server, address, "shop.asgi:application"):
        for number in range(5):
            post(port, "/orders", b"d%d" % number)

    assert values(cluster)[before:] == [b"d%d" % number for number in range(5)]
