"""Rules of a strict server for its client: pure checks, each yielding its violations as sentences."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from words import GONE, LEVELS, META, MRTR, R25A, R25B, R26

LEGACY_METHODS = {
    "initialize", "ping", "tools/list", "tools/call", "prompts/list", "prompts/get", "resources/list", "resources/read",
    "resources/templates/list", "resources/subscribe", "resources/unsubscribe", "completion/complete",
    "logging/setLevel",
}  # fmt: skip
LEGACY_NOTICES = {
    "notifications/initialized", "notifications/cancelled", "notifications/progress",
    "notifications/roots/list_changed",
}  # fmt: skip
MODERN_METHODS = {
    "server/discover", "tools/list", "tools/call", "prompts/list", "prompts/get", "resources/list",
    "resources/templates/list", "resources/read", "completion/complete", "subscriptions/listen",
}  # fmt: skip
TOKEN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


def envelope(message: object) -> Iterator[str]:
    """Checks that this is one JSON-RPC message."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        yield f"not a message: {message}"
        return
    if "method" in message:
        if not isinstance(message["method"], str):
            yield "a method that is not a string"
        if "id" in message and (isinstance(message["id"], bool) or not isinstance(message["id"], (str, int))):
            yield f"a bad id: {message['id']!r}"
        if "params" in message and not isinstance(message["params"], dict):
            yield "params that are not an object"
        if "result" in message or "error" in message:
            yield "a request with an outcome"
    elif ("result" in message) == ("error" in message):
        yield f"neither result nor error, or both: {message}"
    elif "error" in message:
        error = message["error"]
        if not isinstance(error, dict) or not isinstance(error.get("code"), int) or "message" not in error:
            yield f"a bad error: {error}"


def initialize(params: dict) -> Iterator[str]:
    if not isinstance(params.get("protocolVersion"), str) or params["protocolVersion"] >= R26:
        yield f"initialize asks for {params.get('protocolVersion')!r}"
    if not isinstance(params.get("capabilities"), dict):
        yield "initialize without capabilities"
    info = params.get("clientInfo")
    if not isinstance(info, dict) or not isinstance(info.get("name"), str) or not isinstance(info.get("version"), str):
        yield f"initialize with clientInfo {info}"


def legacy_request(revision: str, message: dict) -> Iterator[str]:
    """Checks a request or notification inside a session."""
    method, params = message["method"], message.get("params", {})
    if method not in (LEGACY_METHODS if "id" in message else LEGACY_NOTICES):
        yield f"`{method}` does not exist in {revision}"
    meta = params.get("_meta", {})
    for key in meta:
        if key.startswith(META):
            yield f"`{method}` carries {key} to a server of {revision}"
    for key in ("inputResponses", "requestState", "resultType"):
        if key in params:
            yield f"`{method}` carries {key} to a server of {revision}"
    yield from token(meta)
    if method == "logging/setLevel" and params.get("level") not in LEVELS:
        yield f"log level {params.get('level')!r}"


def token(meta: dict) -> Iterator[str]:
    given = meta.get("progressToken", "")
    if isinstance(given, bool) or not isinstance(given, (str, int)):
        yield f"a bad progress token: {given!r}"


def legacy_headers(revision: str, headers: dict, first: bool, session: str | None) -> Iterator[str]:
    """Checks the headers of one HTTP request; `first`: those of `initialize` itself."""
    version = headers.get("mcp-protocol-version")
    for name in headers:
        if name in ("mcp-method", "mcp-name") or name.startswith("mcp-param-"):
            yield f"header {name} to a server of {revision}"
    if first:
        if version is not None and version >= R26:
            yield f"initialize with MCP-Protocol-Version {version}"
        if "mcp-session-id" in headers:
            yield "initialize with a session id"
        return
    if session != headers.get("mcp-session-id"):
        yield f"session {headers.get('mcp-session-id')!r}, not {session!r}"
    if revision >= R25B and version != revision:
        yield f"MCP-Protocol-Version {version!r}, not {revision}"
    if revision < R25B and version not in (None, revision):
        yield f"MCP-Protocol-Version {version} to a server of {revision}"


def posted(headers: dict) -> Iterator[str]:
    accepted = {part.split(";")[0].strip() for part in headers.get("accept", "").split(",")}
    if not {"application/json", "text/event-stream"} <= accepted:
        yield f"Accept: {headers.get('accept')}"
    if headers.get("content-type", "").split(";")[0].strip() != "application/json":
        yield f"Content-Type: {headers.get('content-type')}"


def modern_request(message: dict, stdio: bool) -> Iterator[str]:
    """Checks a request or notification of the stateless revision."""
    method, params = message["method"], message.get("params", {})
    if "id" not in message:
        if not (stdio and method == "notifications/cancelled"):
            yield f"notification `{method}`"
        return
    if method not in MODERN_METHODS:
        yield f"`{method}` {'is gone' if method in GONE else 'does not exist'}"
        return
    meta = params.get("_meta", {})
    if meta.get(META + "protocolVersion") != R26:
        yield f"`{method}` under protocolVersion {meta.get(META + 'protocolVersion')!r}"
    if not isinstance(meta.get(META + "clientCapabilities"), dict):
        yield f"`{method}` with clientCapabilities {meta.get(META + 'clientCapabilities')!r}"
    info = meta.get(META + "clientInfo", {"name": "", "version": ""})
    if not isinstance(info, dict) or not {"name", "version"} <= info.keys():
        yield f"`{method}` with clientInfo {info!r}"
    if meta.get(META + "logLevel", "info") not in LEVELS:
        yield f"`{method}` with logLevel {meta[META + 'logLevel']!r}"
    known = {META + name for name in ("protocolVersion", "clientCapabilities", "clientInfo", "logLevel")}
    for key in meta:
        if key.startswith(META) and key not in known:
            yield f"`{method}` carries {key}"
    yield from token(meta)
    if method not in MRTR and ("inputResponses" in params or "requestState" in params):
        yield f"`{method}` with inputResponses or requestState"


def decoded(value: str) -> str:
    if value.startswith("=?base64?") and value.endswith("?="):
        return base64.b64decode(value[9:-2]).decode()
    return value


def modern_headers(message: dict, headers: dict, mirrored: dict[str, str]) -> Iterator[str]:
    """Checks headers against the body; `mirrored`: arguments by header name, for the called tool."""
    method, params = message["method"], message.get("params", {})
    claim = params.get("_meta", {}).get(META + "protocolVersion")
    if headers.get("mcp-protocol-version") != claim:
        yield f"MCP-Protocol-Version {headers.get('mcp-protocol-version')!r} over {claim!r}"
    if headers.get("mcp-method") != method:
        yield f"Mcp-Method {headers.get('mcp-method')!r} over `{method}`"
    target = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}.get(method)
    name = headers.get("mcp-name")
    if target is None and name is not None:
        yield f"Mcp-Name on `{method}`"
    if target is not None and (name is None or not TOKEN.fullmatch(name) or decoded(name) != params.get(target)):
        yield f"Mcp-Name {name!r} over {params.get(target)!r}"
    if "mcp-session-id" in headers or "last-event-id" in headers:
        yield "Mcp-Session-Id or Last-Event-ID on a modern request"
    for header, argument in mirrored.items():
        given, value = headers.get(f"mcp-param-{header.lower()}"), params.get("arguments", {}).get(argument)
        if value is None and given is not None or value is not None and (given is None or decoded(given) != str(value)):
            yield f"Mcp-Param-{header} {given!r} over {value!r}"
    for name in headers:
        if name.startswith("mcp-param-") and name[10:] not in {header.lower() for header in mirrored}:
            yield f"header {name} for no argument"


def answer(kind: str, result: object) -> Iterator[str]:
    """Checks that a client's result fits the question."""
    if not isinstance(result, dict):
        yield f"{kind}: answered with {result!r}"
    elif kind in ("form", "url"):
        if result.get("action") not in ("accept", "decline", "cancel"):
            yield f"{kind}: action {result.get('action')!r}"
        if kind == "form" and result.get("action") == "accept" and not isinstance(result.get("content"), dict):
            yield f"{kind}: accepted with content {result.get('content')!r}"
    elif kind == "sampling":
        if result.get("role") not in ("user", "assistant") or "content" not in result or "model" not in result:
            yield f"{kind}: {result}"
    else:
        roots = result.get("roots")
        if not isinstance(roots, list) or not all(isinstance(root, dict) and "uri" in root for root in roots):
            yield f"{kind}: {result}"


def batches(revision: str) -> bool:
    return revision == R25A
