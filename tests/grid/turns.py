"""Turns at a server: many at once, or one exclusively."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """A log line of a 2026-07-28 server over stdio does not name its call: while calls of several clients are in flight there,
    no client gets it. So features about log lines have such a server to themselves."""

    def __init__(self) -> None:
        self.changed = asyncio.Condition()
        self.inside = 0
        self.waiting = 0

    @asynccontextmanager
    async def take(self, alone: bool) -> AsyncIterator[None]:
        async with self.changed:
            if alone:
                self.waiting += 1
                await self.changed.wait_for(lambda: self.inside == 0)
                self.waiting -= 1
            else:
                await self.changed.wait_for(lambda: self.inside >= 0 and not self.waiting)
            self.inside = -1 if alone else self.inside + 1
        try:
            yield
        finally:
            async with self.changed:
                self.inside = 0 if alone else self.inside - 1
                self.changed.notify_all()
