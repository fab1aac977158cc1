"""Addresses to answers. No part of an address reaches the file system: the files of the page are read once, by name."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import latflow
from latflow.errors import LatflowError
from latflow.page import music, runs, text
from latflow.page.guard import LOOPBACK, Guard, body_of
from latflow.page.inputs import MOST_STEPS, MOST_SYMBOLS, Fields
from latflow.page.jobs import Busy, Desk, Job, Work
from latflow.page.shelf import Shelf
from latflow.plain import plain

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
CLIENT = re.compile(r"[A-Za-z0-9-]{8,64}")
ANSWERS: dict[str, Callable[[Shelf, Fields], Work]] = {
    "text/surprise": text.surprises,
    "text/next": text.following,
    "text/draw": text.draws,
    "music/surprise": music.surprises,
    "music/draw": music.draws,
    "music/file": music.file,
    "runs/sample": runs.sample,
}


class Streamed(Response):
    """A job as lines of JSON: how far it is, then its result or its error. If it fails before the first line, the
    status says so; if the client goes away, the job is cancelled."""

    def __init__(self, desk: Desk, job: Job):
        self.desk, self.job = desk, job
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = asyncio.create_task(self._watch(receive))
        try:
            event = await self.job.events.get()
            if "error" in event:
                await _answer(event)(scope, receive, send)
                return
            if isinstance(event.get("result"), bytes):
                await Response(event["result"], media_type="application/octet-stream")(scope, receive, send)
                return
            headers = [(b"content-type", b"application/x-ndjson"), (b"x-accel-buffering", b"no")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while True:
                last = "result" in event or "error" in event
                line = json.dumps(plain(event), ensure_ascii=False, allow_nan=False).encode() + b"\n"
                await send({"type": "http.response.body", "body": line, "more_body": not last})
                if last:
                    return
                event = await self.job.events.get()
        finally:
            watch.cancel()
            self.desk.cancel(self.job)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.desk.cancel(self.job)


def application(
    folders: Sequence[str | Path] = (), *, names: Collection[str] = LOOPBACK, desk: Desk | None = None
) -> ASGIApp:
    """The page with the shipped models and these runs, for a server that is called one of `names`."""
    shelf, kept = Shelf(folders), Desk() if desk is None else desk
    curves = runs.Curves(shelf)

    async def about(request: Request) -> Response:
        limits = {"symbols": MOST_SYMBOLS, "steps": MOST_STEPS}
        models = [book.about() for book in shelf.books.values()]
        return JSONResponse({"version": latflow.__version__, "limits": limits, "models": models})

    async def read_curves(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(curves.answer))

    async def answer(request: Request) -> Response:
        kind = request.path_params["kind"]
        wanted = "audio/midi" if kind == "music/read" else "application/json"
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != wanted:
            raise HTTPException(415, f"the body must be {wanted}")
        client = request.headers.get("x-latflow-client", "")
        if not CLIENT.fullmatch(client):
            raise HTTPException(400, "the header X-Latflow-Client must be 8 to 64 letters, digits or hyphens")
        body = await request.body()
        if kind == "music/read":
            work = music.read(shelf, request.query_params.get("model", ""), body)
        elif kind in ANSWERS:
            work = ANSWERS[kind](shelf, Fields(body))
        else:
            raise HTTPException(404)
        return Streamed(kept, kept.submit(client, work))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        kept.submit("the server itself", lambda tell: _warm(shelf))
        yield
        await run_in_threadpool(kept.close)

    files = {path.name: path for path in sorted(STATIC.iterdir()) if path.suffix in TYPES}
    routes = [Route(f"/static/{name}", _file(path)) for name, path in files.items()]
    routes += [
        Route("/", _file(files["index.html"])),
        Route("/api/about", about),
        Route("/api/runs", read_curves),
        Route("/api/{kind:path}", answer, methods=["POST"]),
    ]
    handlers: dict[Any, Any] = {HTTPException: _http, LatflowError: _mistake, Busy: _busy}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, names)


def _file(path: Path) -> Callable[[Request], Any]:
    content, kind = path.read_bytes(), TYPES[path.suffix]

    async def give(request: Request) -> Response:
        return Response(content, media_type=kind)

    return give


def _warm(shelf: Shelf) -> None:
    for book in shelf.books.values():
        if book.shipped:
            model = book.model()
            if book.run.spec.kind == "text":
                text.warm(model)


def _answer(event: dict[str, Any]) -> Response:
    return Response(body_of(event["error"]), event["status"], media_type="application/json")


async def _http(request: Request, error: HTTPException) -> Response:
    words = {
        404: "there is nothing at this address",
        405: "this address does not take such a request",
    }.get(error.status_code, error.detail)
    return Response(body_of(words), error.status_code, error.headers, "application/json")


async def _mistake(request: Request, error: LatflowError) -> Response:
    return Response(body_of(str(error)), 400, media_type="application/json")


async def _busy(request: Request, error: Busy) -> Response:
    words = "busy: others are being served; try again in a few seconds"
    return Response(body_of(words), 503, {"Retry-After": "3"}, "application/json")
