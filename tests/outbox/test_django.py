"""A project of Django with the code of the page: its migration, its model, and `enqueue` in its transactions."""

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from aioproducer.outbox import Outbox
from aioproducer.testing import FakeCluster
from tests.outbox.postgres import Postgres, missing_for_postgres
from tests.outbox.test_relay import relaying, sent, until_empty

pytestmark = pytest.mark.timing

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "outbox.md"
SETTINGS = """
SECRET_KEY = "test"
USE_TZ = True
INSTALLED_APPS = ["shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": %r}
"""
ORDER = """

class Order(models.Model):
    customer = models.TextField()
    item = models.TextField()
"""
MIGRATION_OF_ORDER = """
from django.db import migrations, models


class Migration(migrations.Migration):
    operations = [
        migrations.CreateModel(
            "Order",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("customer", models.TextField()),
                ("item", models.TextField()),
            ],
        )
    ]
"""
REQUESTS = """
import django

django.setup()

from django.db import connection, transaction
from aioproducer.outbox import NotInTransactionError
from shop.models import Order, OutboxRow
from shop.orders import outbox, place_order

place_order("customer-7", "tea")
try:
    with transaction.atomic():
        place_order("customer-7", "gold")
        raise KeyError("sold out")
except KeyError:
    pass
try:
    outbox.enqueue(connection.cursor(), "orders", "alone")
except NotInTransactionError as error:
    assert "transaction.atomic" in str(error), error
else:
    raise AssertionError("it was inserted")
with transaction.atomic():
    OutboxRow.objects.create(topic="orders", key=b"customer-7", value=b"of a model")
assert Order.objects.count() == 1
assert [bytes(row.value) for row in OutboxRow.objects.order_by("id")] == [b'{"order":1,"item":"tea"}', b"of a model"]
"""


@pytest.fixture(params=["sqlite", "postgres"])
async def engine(request: pytest.FixtureRequest, database: Path) -> AsyncIterator[AsyncEngine]:
    if request.param == "sqlite":
        made = create_async_engine(f"sqlite+aiosqlite:///{database}")
        yield made
        await made.dispose()
        return
    if reason := missing_for_postgres():
        pytest.skip(reason)
    server = Postgres()
    made = create_async_engine(server.url("asyncpg"))
    yield made
    await made.dispose()
    server.stop()


def block_with(text: str) -> str:
    """Return the one block of the page that has a text."""
    (found,) = [
        block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL) if text in block
    ]
    return str(found)


def django_database(engine: AsyncEngine) -> dict[str, object]:
    url = engine.url
    if url.get_backend_name() == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.database}
    names = {"NAME": url.database, "USER": url.username, "HOST": url.host, "PORT": url.port}
    return {"ENGINE": "django.db.backends.postgresql", **names}


def run_python(folder: Path, *arguments: str) -> str:
    path = os.pathsep.join([str(folder), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "settings"}
    command = [sys.executable, *arguments]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.slow(seconds=25)
async def test_rows_of_a_django_project_are_sent(engine: AsyncEngine, outbox: Outbox, tmp_path: Path) -> None:
    migrations = tmp_path / "shop" / "migrations"
    migrations.mkdir(parents=True)
    url = engine.url.render_as_string(hide_password=False)
    files = {
        tmp_path / "settings.py": SETTINGS % django_database(engine),
        tmp_path / "shop" / "__init__.py": "",
        tmp_path / "shop" / "models.py": block_with("class OutboxRow") + ORDER,
        tmp_path / "shop" / "orders.py": block_with("def place_order"),
        migrations / "__init__.py": "",
        migrations / "0001_initial.py": MIGRATION_OF_ORDER,
        migrations / "0002_outbox.py": block_with("migrations.RunSQL"),
        migrations / "outbox.sql": run_python(tmp_path, "-m", "aioproducer", "outbox", "create", url, "--print"),
        tmp_path / "requests.py": REQUESTS,
    }
    for file, text in files.items():
        file.write_text(text, "utf-8")
    run_python(tmp_path, "-m", "django", "migrate")
    run_python(tmp_path, "requests.py")

    async with (
        FakeCluster(nodes=1, topics={"orders": 1}, auto_create_topics=False) as kafka,
        relaying(outbox, engine, kafka),
    ):
        await until_empty(engine)
        assert sent(kafka) == [b'{"order":1,"item":"tea"}', b"of a model"]
        assert kafka.records("orders", 0)[0].key == b"customer-7"
