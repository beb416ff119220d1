"""The results: what passed, what failed, and why."""

from __future__ import annotations

import re

from words import MARK, Peer, peers


class Report:
    """Counts cells by pair; prints failures and violations as lines."""

    def __init__(self) -> None:
        self.passed, self.failed = 0, 0
        self.rows: dict[Peer, dict[Peer, list[str]]] = {}
        self.times: list[tuple[float, str]] = []

    def line(self, what: str, fault: str | None, seconds: float) -> None:
        """Counts one cell, by its name."""
        self.times.append((seconds, what))
        if fault is None:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAIL {what} ({seconds:.1f} s): {' '.join(fault.split())[:700]}", flush=True)

    def cell(self, down: Peer, up: Peer, feature: str, fault: str | None, seconds: float) -> None:
        """Counts one cell of the table."""
        failed = self.rows.setdefault(down, {}).setdefault(up, [])
        if fault is not None:
            failed.append(feature)
        self.line(f"{down} -> {up}  {feature}", fault, seconds)

    def lines(self, what: str, found: list[str]) -> None:
        """Prints violations: one line for those that differ only in marks and numbers."""
        groups: dict[str, list[str]] = {}
        for line in found:
            groups.setdefault(re.sub(r"\d+", "0", MARK.sub("mark", line)), []).append(line)
        for alike in groups.values():
            self.failed += 1
            print(f"FAIL {what}, {len(alike)} times: {alike[0]}", flush=True)

    def slowest(self) -> None:
        print("slowest cells:", ", ".join(f"{what} {seconds:.1f} s" for seconds, what in sorted(self.times)[:-6:-1]))

    def table(self, ups: list[Peer]) -> None:
        print("failed cells, clients down, servers across:")
        print(" " * 12 + "".join(f"{str(up):>11}" for up in ups))
        for down, row in ((peer, self.rows[peer]) for peer in peers() if peer in self.rows):
            counts = (str(len(row[up]) or ".") if up in row else "" for up in ups)
            print(f"{str(down):>12}" + "".join(f"{count:>11}" for count in counts))
