"""Rules of a strict client for its server: pure checks, each yielding its violations as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from words import CACHED, META, MRTR, R24, R25A, R25B, R25C, R26, declares

NOTICES = {
    "notifications/progress", "notifications/message", "notifications/cancelled", "notifications/tools/list_changed",
    "notifications/prompts/list_changed", "notifications/resources/list_changed", "notifications/resources/updated",
}  # fmt: skip
CHANGES = {
    "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed",
    "notifications/resources/updated", "notifications/elicitation/complete",
}  # fmt: skip
QUESTIONS = {"elicitation/create", "sampling/createMessage", "roots/list"}
MODERN_ONLY = ("resultType", "ttlMs", "cacheScope", "inputRequests", "requestState")
CAPABILITIES = {
    R24: {"logging", "prompts", "resources", "tools", "experimental"},
    R25C: {"logging", "prompts", "resources", "tools", "experimental", "completions", "tasks", "extensions"},
    R26: {"logging", "prompts", "resources", "tools", "experimental", "completions", "extensions"},
}


def contents(revision: str) -> set[str]:
    found = {"text", "image", "resource"}
    found |= {"audio"} if revision >= R25A else set()
    return found | ({"resource_link"} if revision >= R25B else set())


def capabilities(revision: str, given: dict) -> Iterator[str]:
    known = CAPABILITIES.get(revision, CAPABILITIES[R25C] - {"tasks", "extensions"})
    if not given.keys() <= known:
        yield f"capabilities {sorted(given.keys() - known)} in {revision}"


def result(revision: str, method: str, value: object) -> Iterator[str]:
    """Checks one result by its revision."""
    if not isinstance(value, dict):
        yield f"`{method}`: the result is {value!r}"
        return
    if revision < R26:
        for key in MODERN_ONLY:
            if key in value:
                yield f"`{method}`: {key} in a result of {revision}"
        for key in value.get("_meta", {}):
            if key.startswith(META) and not key.endswith("related-task"):
                yield f"`{method}`: {key} in the _meta of {revision}"
    else:
        yield from modern_result(method, value)
    if method == "tools/list":
        for tool in value.get("tools", []):
            yield from definition(revision, tool)
    if method == "tools/call" and value.get("resultType", "complete") == "complete":
        yield from called(revision, value)


def modern_result(method: str, value: dict) -> Iterator[str]:
    kind = value.get("resultType")
    if kind not in ("complete", "input_required"):
        yield f"`{method}`: resultType {kind!r}"
    if kind == "input_required":
        if method not in MRTR:
            yield f"`{method}`: input_required"
        if "ttlMs" in value or "cacheScope" in value:
            yield f"`{method}`: caching hints on input_required"
        if not value.get("inputRequests") and "requestState" not in value:
            yield f"`{method}`: input_required without questions or state"
    elif method in CACHED:
        ttl = value.get("ttlMs")
        if isinstance(ttl, bool) or not isinstance(ttl, int) or ttl < 0:
            yield f"`{method}`: ttlMs {ttl!r}"
        if value.get("cacheScope") not in ("public", "private"):
            yield f"`{method}`: cacheScope {value.get('cacheScope')!r}"
    if method != "subscriptions/listen" and META + "serverInfo" not in value.get("_meta", {}):
        yield f"`{method}`: no serverInfo"


def definition(revision: str, tool: dict) -> Iterator[str]:
    if revision < R25B and "outputSchema" in tool:
        yield f"{tool['name']}: outputSchema in {revision}"
    if revision != R25C and "execution" in tool:
        yield f"{tool['name']}: execution in {revision}"
    if not isinstance(tool.get("inputSchema"), dict) or tool["inputSchema"].get("type") != "object":
        yield f"{tool['name']}: inputSchema {tool.get('inputSchema')}"


def called(revision: str, value: dict) -> Iterator[str]:
    content = value.get("content")
    if not isinstance(content, list):
        yield f"content {content!r}"
        return
    for block in content:
        # Audio passes on purpose: see `expect.content`.
        if block.get("type") not in contents(revision) | {"audio"}:
            yield f"content of type {block.get('type')!r} in {revision}"
    if "structuredContent" in value and revision < R25B:
        yield f"structuredContent in {revision}"
    if revision < R26 and not isinstance(value.get("structuredContent", {}), dict):
        yield f"structuredContent {value['structuredContent']!r} in {revision}"


def question(revision: str, declared: dict, method: str, params: dict) -> Iterator[str]:
    """Checks a question of the server, as a request or in `inputRequests`."""
    if method == "ping" and revision < R26:
        return
    if method not in QUESTIONS:
        yield f"asks `{method}`"
        return
    kind = kind_of(method, params)
    if not declares(declared, kind):
        yield f"asks for {kind}, which was not declared"
    if kind == "url":
        if ("elicitationId" in params) != (revision == R25C):
            yield f"url elicitation in {revision} with {sorted(params)}"
    for key in params.get("_meta", {}):
        if key.startswith(META) and not key.endswith("related-task"):
            yield f"{key} in a question"
    if revision < R25C and kind == "form":
        for name, field in params.get("requestedSchema", {}).get("properties", {}).items():
            if "oneOf" in field or field.get("type") == "array":
                yield f"field {name} of a form in {revision}: {field}"
            if "default" in field and field.get("type") != "boolean":
                yield f"field {name} of a form in {revision} has a default"


def kind_of(method: str, params: dict) -> str:
    if method == "elicitation/create":
        return params.get("mode", "form")
    return "sampling" if method == "sampling/createMessage" else "roots"


def notice(revision: str, message: dict) -> Iterator[str]:
    method = message["method"]
    known = NOTICES | ({"notifications/elicitation/complete"} if revision == R25C else set())
    if revision >= R26:
        known |= {"notifications/subscriptions/acknowledged"}
    if method not in known:
        yield f"notification `{method}` in {revision}"
