"""The inspector's page in a real browser, Chromium; skipped with the reason where there is none."""

import shutil
from collections.abc import AsyncIterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

from aioproducer import Producer
from aioproducer.integrations.asgi import inspector
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.asgi_server import on_port

if TYPE_CHECKING:
    from playwright import async_api as playwright
else:
    playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NARROW: "playwright.ViewportSize" = {"width": 390, "height": 844}
WIDE: "playwright.ViewportSize" = {"width": 1280, "height": 900}
LONG_MS = 30_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timing,  # a browser is a process of its own
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


@pytest.fixture
async def browser() -> AsyncIterator["playwright.Browser"]:
    async with playwright.async_playwright() as driver:
        running = await driver.chromium.launch(executable_path=CHROMIUM)
        yield running
        await running.close()


class Seen:
    """A page, and what it asked for and complained about."""

    def __init__(self, page: "playwright.Page") -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.set_default_timeout(LONG_MS)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    async def has(self, selector: str, text: str, *, number: int = 0) -> None:
        found = self.page.locator(selector).nth(number)
        await playwright.expect(found).to_contain_text(text, timeout=LONG_MS)

    async def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(await self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


async def opened(browser: "playwright.Browser", url: str, size: "playwright.ViewportSize") -> Seen:
    seen = Seen(await browser.new_page(viewport=size))
    await seen.page.goto(url)
    return seen


async def test_page_tells_why_records_wait_while_a_broker_is_stopped(
    cluster: FakeCluster, browser: "playwright.Browser"
) -> None:
    cluster.create_topic("orders", 3, replication_factor=1)
    async with Producer(cluster.bootstrap_servers, client_id="web") as producer, on_port(inspector(producer)) as url:
        seen = await opened(browser, url, WIDE)
        await seen.has("h1", "web")
        await seen.has(".badge", "running")
        await seen.has("header p", "Nothing waits.")
        await producer.send("orders", b"v", partition=0)
        await seen.has("[data-is=rate-more]", "1 in all")
        stopped = cluster.leader_of("orders", 0)
        await cluster.kill(stopped)
        producer.send("orders", b"v", partition=0)
        await seen.has("[data-is=partitions] td.name", "orders-0")
        await seen.has("[data-is=partitions] td.words", "the partition has no leader")
        await seen.has("[data-is=reasons] td.words", "the partition has no leader")
        await seen.has("header p", "1 record: the partition has no leader")
        await seen.has("[data-is=nodes] tr", "gone: the cluster no longer names it", number=stopped - 1)
        await cluster.restart(stopped)
        await seen.has("header p", "Nothing waits.")
        await seen.has("[data-is=rate-more]", "2 in all")

        assert seen.complaints == []
    assert [request for request in seen.requests if request not in {f"{url}/", f"{url}/?state", "data:,"}] == []


def state_of(**fields: object) -> dict[str, object]:
    """Return an answer for a producer that does nothing, with other values for some of its fields."""
    zero = "acknowledged", "bytes", "requests", "failed", "retried", "refused", "buffer_used", "waiting_records"
    state: dict[str, object] = dict.fromkeys(zero, 0)
    state |= {"client_id": "web", "state": "running", "note": "", "buffer_total": 1, "metadata_error": None}
    state |= {"bounds_s": [1], "request_latency": [0, 0], "queue_time": [0, 0]}
    for name in ("nodes", "reasons", "partitions"):
        state |= {name: [], f"{name}_left": 0}
    return state | fields


async def test_page_shows_latency_of_the_last_second_and_buffer(browser: "playwright.Browser") -> None:
    """Each second, 10 requests are answered within 20 ms, and 4 records leave after 20 to 100 ms."""
    at = count(1)

    async def answer(route: "playwright.Route") -> None:
        now = next(at)
        state = state_of(bounds_s=[0.02, 0.1], request_latency=[10 * now, 0, 0], queue_time=[0, 4 * now, 0])
        state |= {"buffer_total": 6_000_000, "buffer_used": 4_500_000, "waiting_records": 7_000}
        await route.fulfill(json={"at": now, "producers": [state]})

    async with on_port(inspector(Producer("localhost:9092"))) as url:
        seen = Seen(await browser.new_page(viewport=WIDE))
        await seen.page.route("**/?state", answer)
        await seen.page.goto(url)
        await seen.has("[data-is=latency]", "10 ms")
        await seen.has("[data-is=latency-more]", "p99 20 ms · in the buffer: p50 60 ms, p99 99 ms")
        await seen.has("[data-is=buffer]", "75 %")
        await seen.has("[data-is=buffer-more]", "4.5 MB of 6.0 MB · 7,000 records to be acknowledged")

        assert seen.complaints == []


async def test_page_shows_hostile_texts_as_text(browser: "playwright.Browser") -> None:
    """Names of topics and errors come from elsewhere; long ones fit a phone."""
    hostile = "<img src=x onerror=hacked=1><script>hacked=1</script>"
    long = "x" * 249
    row: dict[str, object] = {
        "node": 1,
        "reason": "response",
        "batches": 1,
        "records": 1,
        "size": 1,
        "attempts": 0,
        "until_s": None,
    }
    row |= {"age_s": 2.0, "deadline_s": 100.0, "words": hostile, "partition": 0}
    node = {"id": 1, "place": hostile, "state": "down", "detail": hostile, "in_flight": 0, "requests": 0}
    state = state_of(client_id=hostile, state="failed", note=hostile, waiting_records=1)
    state |= {"nodes": [{**node, "responses": 0, "latency_s": 0.0}], "nodes_left": 0}
    state |= {"reasons": [{"words": hostile, "records": 1, "oldest_s": 2.0}], "reasons_left": 0}
    state |= {"partitions": [{**row, "topic": hostile}, {**row, "topic": long}], "partitions_left": 0}
    at = iter(range(1, 1000))
    async with on_port(inspector(Producer("localhost:9092"))) as url:
        seen = Seen(await browser.new_page(viewport=NARROW))
        await seen.page.route("**/?state", lambda route: route.fulfill(json={"at": next(at), "producers": [state]}))
        await seen.page.goto(url)
        for selector in ("h1", "header p", "[data-is=nodes]", "[data-is=reasons]", "[data-is=partitions]"):
            await seen.has(selector, hostile)
        await seen.has("[data-is=partitions]", long)

        assert await seen.page.evaluate("typeof hacked") == "undefined"
        assert await seen.page.locator("img").count() == 0
        assert await seen.overflow() == 0
        assert seen.complaints == []


async def test_page_fits_a_phone(cluster: FakeCluster, browser: "playwright.Browser") -> None:
    """Also with two producers, and more partitions than it shows at first."""
    cluster.faults.stall(Where(api=ApiKey.PRODUCE))
    first = Producer(cluster.bootstrap_servers, client_id="first")
    second = Producer("127.0.0.1:1", client_id="second")
    cluster.create_topic("clicks", 30)
    async with first:
        await second.start(wait=False)
        for partition in range(30):
            await first.enqueue("clicks", b"v", partition=partition)
        async with on_port(inspector(first, second)) as url:
            seen = await opened(browser, url, NARROW)
            await seen.has("h1", "second", number=1)
            await seen.has("header p", "cannot connect", number=1)
            rows = seen.page.locator("[data-is=partitions] >> nth=0 >> tr")
            await playwright.expect(rows).to_have_count(12)
            await seen.page.get_by_role("button", name="show 18 more").click()
            await playwright.expect(rows).to_have_count(30)
            assert await seen.overflow() == 0
            assert seen.complaints == []
        cluster.faults.clear()
    await second.close()


async def test_page_says_that_no_one_answers_and_recovers(browser: "playwright.Browser") -> None:
    producer = Producer("localhost:9092", client_id="new")
    async with on_port(inspector(producer)) as url:
        seen = await opened(browser, url, WIDE)
        await seen.has(".badge", "new")
        await seen.page.context.set_offline(True)
        await seen.has("#gone", "No answer for")
        await seen.page.context.set_offline(False)
        await playwright.expect(seen.page.locator("#gone")).to_be_hidden(timeout=LONG_MS)
        await seen.page.route("**/?state", lambda route: route.fulfill(status=401, body="log in"))
        await seen.has("#gone", "the server answers 401: reload the page")
