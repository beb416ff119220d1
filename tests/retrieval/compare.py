"""Compares three searches on one file of labelled queries. `run` calls it: compare.py frozen|tune FOUND."""
import asyncio
import json
import pathlib
import re
import sqlite3
import sys

from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools.base import Tool

HERE = pathlib.Path(__file__).parent
KINDS = ["agent", "words", "arg", "odd"]


def lists():
    """Returns the tools, as (server, definition)."""
    aliases = dict(reversed(line.split()) for line in (HERE / "servers.txt").read_text().splitlines())
    recorded = (HERE.parent / "fixtures/definitions/recorded.jsonl").read_text().splitlines()
    servers = [json.loads(line) for line in recorded]
    return [(aliases[s["package"]], tool) for s in servers if s["package"] in aliases for tool in s["tools"]]


def fastmcp(tools, queries):
    """FastMCP's own search, as a FastMCP server that mounts the others under their aliases runs it: `ALIAS_NAME`."""

    async def never():
        pass

    made = [
        Tool.from_function(never, name=f"{server}_{tool['name']}", description=tool.get("description")).model_copy(
            update={"parameters": tool["inputSchema"]}
        )
        for server, tool in tools
    ]
    ours = {f"{server}_{tool['name']}": f"{server}:{tool['name']}" for server, tool in tools}
    search = BM25SearchTransform(max_results=5)

    async def ask(query):
        return [ours[tool.name] for tool in await search._search(made, query)]

    return [asyncio.run(ask(query)) for query in queries]


def fts5(tools, queries):
    """SQLite's full text search: Porter stems, BM25, the name twice as heavy, any word of the query."""
    db = sqlite3.connect(":memory:")
    db.execute("create virtual table t using fts5(id unindexed, name, description, arguments, tokenize='porter unicode61')")
    for server, tool in tools:
        words = re.sub(r"([a-z])([A-Z])", r"\1 \2", f"{server} {tool['name']}").replace("_", " ").replace("-", " ")
        arguments = json.dumps(tool["inputSchema"].get("properties", {}), ensure_ascii=False)
        db.execute("insert into t values (?, ?, ?, ?)", (f"{server}:{tool['name']}", words, tool.get("description", ""), arguments))
    found = []
    for query in queries:
        words = re.findall(r"\w+", query)
        match = " OR ".join('"' + word + '"' for word in words)
        rows = db.execute("select id from t where t match ? order by bm25(t, 0, 2.0, 1.0, 0.5) limit 5", (match,))
        found.append([row[0] for row in rows])
    return found


def ours(which, path):
    """What the unit test printed."""
    rows = [line.split("\t") for line in pathlib.Path(path).read_text().splitlines()]
    return {row[2]: row[3].split() for row in rows if len(row) == 4 and row[0].endswith(which)}


def main():
    which, path = sys.argv[1:]
    rows = [line.split("\t") for line in (HERE / f"{which}.tsv").read_text().splitlines()]
    queries = [row[1] for row in rows]
    tools = lists()
    host = ours(which, path)
    missing = [query for query in queries if query not in host]
    if missing:
        raise SystemExit(f"retrieval: the test printed nothing for {missing[:3]}")
    found = {"mcp-host": [host[query] for query in queries], "FastMCP": fastmcp(tools, queries), "FTS5": fts5(tools, queries)}
    print(f"{len(tools)} tools, {len(queries)} queries ({which})\n")
    print(f"{'':10}" + "".join(f"{kind:>14}" for kind in ["all", *KINDS]) + "   recall@5 / hit@5")
    scores = {}
    for name, answers in found.items():
        cells = []
        for kind in [None, *KINDS]:
            chosen = [(row, got) for row, got in zip(rows, answers) if kind in (None, row[0])]
            recall = sum(len(set(r[2].split()) & set(got)) / len(r[2].split()) for r, got in chosen) / len(chosen)
            hit = sum(bool(set(r[2].split()) & set(got)) for r, got in chosen) / len(chosen)
            cells.append(f"{recall:6.2f} / {hit:.2f}")
            if kind is None:
                scores[name] = (recall, hit)
        print(f"{name:10}" + "".join(f"{cell:>14}" for cell in cells))
    if which == "tune":
        for row, got in zip(rows, found["mcp-host"]):
            if not set(row[2].split()) & set(got):
                print(f"missed: {row[1]}: {row[2]}, not {' '.join(got)}")
    best = max(scores["FastMCP"][0], scores["FTS5"][0])
    checks = {
        "recall@5 is 0.15 above the best other": scores["mcp-host"][0] >= best + 0.15,
        "recall@5 is 0.75 at least": scores["mcp-host"][0] >= 0.75,
        "hit@5 is 0.85 at least": scores["mcp-host"][1] >= 0.85,
    }
    print()
    for what, holds in checks.items():
        print(f"{'ok  ' if holds else 'FAIL'} {what}")
    failed = sum(not holds for holds in checks.values())
    print(f"{len(checks) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
