"""Who may ask, and how much: what is checked before any answer is thought of.

A page on loopback is within reach of every site that the same browser shows. So the Host must be a name of this server
(else a foreign name could be made to point here), the Origin must be that Host (else another site asks), and a body is
counted before it is kept.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
JSON_BYTES = 1 << 18
MIDI_BYTES = 1 << 20
BODY_SECONDS = 10.0
"""For a body to arrive."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    """A request that gets no answer but a status and a sentence."""

    def __init__(self, status: int, words: str):
        super().__init__(words)
        self.status, self.words = status, words


def body_of(words: str) -> bytes:
    return json.dumps({"error": words}, ensure_ascii=False).encode()


def named(host: str) -> str:
    """The name in a Host header, without its port; "" if it is none."""
    found = re.fullmatch(r"(\[[0-9a-f:.]+\]|[^\s:\[\]@/]+)(:\d{1,5})?", host)
    return found[1] if found else ""


class Guard:
    """Wraps an application: refuses or passes on, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, names: Collection[str] = LOOPBACK):
        self.app, self.names = app, {name.lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # a web socket: nothing here speaks it
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            headers = _headers(scope)
            self._check(scope, headers)
            body = await _body(scope, headers, receive)
        except Refused as refused:
            await _refuse(refused, send)
            return
        sent = False

        async def replay() -> Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_encoded(HEADERS)]
            await send(message)

        await self.app(scope, replay, with_headers)

    def _check(self, scope: Scope, headers: Mapping[str, str]) -> None:
        host = headers.get("host", "").lower()
        if named(host) not in self.names:
            raise Refused(421, f"this server is not called {host[:80]!r}; it answers to {_list(self.names)}")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            raise Refused(
                403, f"the request comes from {origin[:80]!r}; this server answers its own page only"
            )
        site = headers.get("sec-fetch-site", "same-origin")
        opened = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("same-origin", "none") and not opened:
            raise Refused(403, "the request comes from another site; this server answers its own page only")


def _headers(scope: Scope) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        if key in ("host", "origin", "content-length", "sec-fetch-site") and key in found:
            raise Refused(400, f"the header {key} stands twice in the request")
        found[key] = value.decode("latin-1")
    return found


async def _body(scope: Scope, headers: Mapping[str, str], receive: Receive) -> bytes:
    """The whole body, no larger and no slower than is allowed; a length that is too large is refused unread."""
    midi = scope["path"] == "/api/music/read"
    most = 0 if scope["method"] in ("GET", "HEAD") else MIDI_BYTES if midi else JSON_BYTES
    told = headers.get("content-length", "0")
    if not (told.isascii() and told.isdigit()):
        raise Refused(400, f"Content-Length is {told[:40]!r}; it must be a whole number")
    if len(told) > 12 or int(told) > most:
        raise Refused(413, f"a body of {told[:12]} bytes; at most {most} are taken here")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refused(400, "the request was broken off")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most:
                    raise Refused(413, f"a body of over {most} bytes; at most that many are taken here")
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {BODY_SECONDS:g} seconds") from None


async def _refuse(refused: Refused, send: Send) -> None:
    body = body_of(refused.words)
    headers = {**HEADERS, "Content-Type": "application/json", "Content-Length": str(len(body))}
    if refused.status in (408, 413):
        headers["Connection"] = "close"
    await send({"type": "http.response.start", "status": refused.status, "headers": _encoded(headers)})
    await send({"type": "http.response.body", "body": body})


def _encoded(headers: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), str(value).encode()) for name, value in headers.items()]


def _list(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
