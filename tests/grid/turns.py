"""Turns at a server: many at once, or one alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """A log line of a server of 2026-07-28 over stdio does not say which call it is of: while calls of several clients are
    under way there, nobody gets it. So what is about log lines has such a server for itself."""

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
