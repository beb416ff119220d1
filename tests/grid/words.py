"""The revisions and their features; the names that harness, servers, and clients share. Pure."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

R24, R25A, R25B, R25C, R26 = "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"
REVISIONS = [R24, R25A, R25B, R25C, R26]
LEGACY = REVISIONS[:-1]
SHORT = {R24: "24", R25A: "25a", R25B: "25b", R25C: "25c", R26: "26"}
TRANSPORTS = ["stdio", "sse", "http"]

# The first revision that has each kind of question.
SINCE = {"form": R25B, "url": R25C, "sampling": R24, "roots": R24}
KINDS = list(SINCE)
# Forms that differ only in their fields.
FORMS = ("form", "rich", "many", "who")

META = "io.modelcontextprotocol/"
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
MARK = re.compile(r"mark[0-9a-f]{12}")
# Methods that the modern revision removed, and methods that the older ones never had.
GONE = {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
MRTR = {"tools/call", "prompts/get", "resources/read"}
LISTS = {"tools/list", "prompts/list", "resources/list", "resources/templates/list"}
CACHED = LISTS | {"resources/read", "server/discover"}


def modern(revision: str) -> bool:
    return revision >= R26


def plain_kind(kind: str) -> str:
    return "form" if kind in FORMS else kind


def has(revision: str, kind: str) -> bool:
    """Whether a revision knows this kind of question at all."""
    return revision >= SINCE[plain_kind(kind)]


def new_mark() -> str:
    return f"mark{random.getrandbits(48):012x}"


def marks(text: str) -> set[str]:
    return set(MARK.findall(text))


@dataclass(frozen=True)
class Peer:
    """One side of a pair: a revision over a transport."""

    revision: str
    transport: str

    @property
    def alias(self) -> str:
        return f"u{SHORT[self.revision]}-{self.transport}"

    @property
    def modern(self) -> bool:
        return modern(self.revision)

    def has(self, kind: str) -> bool:
        return has(self.revision, kind)

    def __str__(self) -> str:
        return f"{SHORT[self.revision]}/{self.transport}"


def peers(transports: list[str] = TRANSPORTS) -> list[Peer]:
    """Every revision on each of its transports: only revisions with a handshake have HTTP+SSE."""
    return [
        Peer(revision, transport)
        for transport in transports
        for revision in REVISIONS
        if not (transport == "sse" and modern(revision))
    ]


def capabilities(revision: str, kinds: list[str]) -> dict:
    """The capabilities that a client of this revision declares to answer these kinds of questions."""
    declared: dict = {}
    usable = [kind for kind in kinds if has(revision, kind)]
    if "roots" in usable:
        declared["roots"] = {} if modern(revision) else {"listChanged": True}
    if "sampling" in usable:
        declared["sampling"] = {}
    if "form" in usable or "url" in usable:
        modes = {mode: {} for mode in ("form", "url") if mode in usable}
        declared["elicitation"] = modes if has(revision, "url") else {}
    return declared


def declares(declared: dict, kind: str) -> bool:
    """Whether declared client capabilities include a kind of question."""
    kind = plain_kind(kind)
    if kind in ("roots", "sampling"):
        return kind in declared
    elicitation = declared.get("elicitation")
    if elicitation is None:
        return False
    return kind in elicitation or (kind == "form" and "url" not in elicitation)
