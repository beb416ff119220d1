"""Server-sent events: read from bytes split anywhere, and written."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass
class Event:
    data: str
    event: str = "message"
    id: str | None = None
    retry: int | None = None


def written(data: str, event: str | None = None, id: str | None = None, retry: int | None = None) -> bytes:
    lines = [f"event: {event}"] if event else []
    lines += [f"id: {id}"] if id is not None else []
    lines += [f"retry: {retry}"] if retry is not None else []
    lines += [f"data: {line}" for line in data.split("\n")]
    return ("\n".join(lines) + "\n\n").encode()


class Reader:
    """Takes bytes and returns whole events. Counts and drops comments."""

    def __init__(self) -> None:
        self.rest = b""
        self.lines: list[str] = []
        self.comments = 0

    def feed(self, data: bytes) -> list[Event]:
        self.rest += data
        *whole, self.rest = re.split(rb"\r\n|\n|\r(?!$)", self.rest)
        found = []
        for line in whole:
            if line:
                self.lines.append(line.decode())
            else:
                event = self.take()
                if event:
                    found.append(event)
        return found

    def take(self) -> Event | None:
        fields, data = {}, []
        for line in self.lines:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "":
                self.comments += 1
            elif name == "data":
                data.append(value)
            else:
                fields[name] = value
        self.lines = []
        if not data and "id" not in fields:
            return None
        retry = int(fields["retry"]) if fields.get("retry", "").isdigit() else None
        return Event("\n".join(data), fields.get("event", "message"), fields.get("id"), retry)
