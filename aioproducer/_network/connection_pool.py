"""Which nodes there are: from metadata, and from the bootstrap addresses.

Nodes known from metadata have their own ids. The bootstrap addresses are nodes too, with the ids -1, -2, ...: they
are asked until metadata names real ones, and again when none of those can be reached (KIP-899), or when the client
is told, or tells itself, to begin anew (KIP-1102). A bootstrap connection to an address at which metadata says a
node listens becomes that node's; the others close.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aioproducer._network.connection import IdleConnectionError
from aioproducer._network.node_connection import NodeConnection

if TYPE_CHECKING:
    from aioproducer._network.context import NetworkContext
    from aioproducer.cluster import Node
    from aioproducer.errors import KafkaError


class ConnectionPool:
    """The links by node id, and the news about them.

    Args:
        bootstrap: nodes with negative ids.
        environment: shared by all links.
    """

    def __init__(self, bootstrap: Sequence[Node], environment: NetworkContext) -> None:
        self._environment = environment
        self._links: dict[int, NodeConnection] = {}
        self._leaving: set[NodeConnection] = set()  # not in `_links` any more, requests still in flight
        self._asks_known = True
        self._is_closed = False
        self._waiting: dict[asyncio.Future[None], None] = {}
        for node in bootstrap:
            self._add(node)

    def get(self, node_id: int) -> NodeConnection | None:
        """Return the link to a node, or None if it is unknown."""
        return self._links.get(node_id)

    def candidates(self) -> list[NodeConnection]:
        """Return the links that may be asked about the cluster, or for a producer id; none after `close`."""
        if self._is_closed:
            return []
        known = self.known() if self._asks_known else []
        if known and not all(link.has_failed for link in known):
            return known
        return known + self.bootstrap()

    def known(self) -> list[NodeConnection]:
        """Return the links to the nodes that metadata names."""
        return [link for link in self._links.values() if link.node.id >= 0]

    def bootstrap(self) -> list[NodeConnection]:
        """Return the links to the bootstrap addresses; none after `close`."""
        return [] if self._is_closed else [link for link in self._links.values() if link.node.id < 0]

    def tries_in_vain(self) -> bool:
        """Tell whether a node that metadata names has failed, and is being tried again."""
        return any(link.has_failed and link.is_connecting for link in self.known())

    def update(self, nodes: Mapping[int, Node]) -> None:
        """Take the nodes that metadata names, by id."""
        if not nodes:
            return
        for node_id, link in list(self._links.items()):
            if node_id >= 0 and not _is_same_place(nodes.get(node_id), link.node):
                self._let_go(link)
        adoptable = {
            link.place: link for link in reversed(self.bootstrap()) if link.is_open or link.is_connecting
        }  # reversed: of two links to one address the first is taken
        for node in nodes.values():
            if node.id not in self._links:
                self._adopt_or_add(node, adoptable.pop((node.host, node.port), None))
        for link in self._links.values():
            if link.node.id < 0 and self._asks_known:
                link.retire()

    def forget_known(self) -> None:
        """Ask only the bootstrap addresses until `ask_known`."""
        self._asks_known = False
        self._announce()

    def ask_known(self) -> None:
        """Ask the nodes that metadata names, as at first."""
        self._asks_known = True

    async def wait_for_change(self, timeout_s: float) -> None:
        """Wait until some link is connected, failed or lost, or the time is over."""
        future: asyncio.Future[None] = self._environment.loop.create_future()
        self._waiting[future] = None
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            pass
        finally:
            self._waiting.pop(future, None)  # who gives up leaves; a change in the same turn has taken it out already

    async def close(self, error: KafkaError) -> None:
        """Close all links and wait until they are."""
        self._is_closed = True
        await asyncio.gather(*(link.close(error) for link in (*self._links.values(), *self._leaving)))

    def abandon(self) -> None:
        """Close all links without waiting; the loop may be closed."""
        self._is_closed = True
        for link in (*self._links.values(), *self._leaving):
            with contextlib.suppress(RuntimeError):  # the loop is closed: an attempt cannot be cancelled there
                link.retire()
            link.disconnect(IdleConnectionError("the producer cannot go on"))

    def _add(self, node: Node) -> None:
        self._links[node.id] = NodeConnection(node, self._environment, self._note_change)

    def _adopt_or_add(self, node: Node, link: NodeConnection | None) -> None:
        if link is None:
            self._add(node)
            return
        self._add(link.node)  # a fresh link for the bootstrap address
        link.become(node)
        self._links[node.id] = link

    def _let_go(self, link: NodeConnection) -> None:
        del self._links[link.node.id]
        link.retire()
        if link.connection is not None:
            self._leaving.add(link)

    def _note_change(self, link: NodeConnection) -> None:
        if not link.is_open:
            self._leaving.discard(link)
        if link.has_failed and link.node.id >= 0 and self._links.get(link.node.id) is link:
            self._environment.events.node_failed()
        self._announce()

    def _announce(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)
        self._environment.events.wake()

    def __repr__(self) -> str:
        """Show how many links there are, and how many wait for a change."""
        return f"<NodeLinks {len(self._links)} waiting={len(self._waiting)}>"


def _is_same_place(node: Node | None, other: Node) -> bool:
    return node is not None and (node.host, node.port) == (other.host, other.port)
