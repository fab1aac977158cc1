"""A stand-in for the Hub's HTTP interface, as far as fetching and pushing a model uses it: repositories in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


@dataclass
class Hub:
    """What is stored, and what was asked."""

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    address: str = ""
    token: str = "hf_secret"


SHA = "0" * 39 + "1"


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, format, *args):
        pass

    def answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def json(self, value: object, code: int = 200) -> None:
        self.answer(code, json.dumps(value).encode(), Content_Type="application/json")

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/[^/]+)?", path):
            name = found[1]
            if name not in self.hub.files:
                return self.answer(404, b"{}", X_Error_Code="RepoNotFound")
            files = [{"rfilename": f, "size": len(b)} for f, b in self.hub.files[name].items()]
            return self.json({"id": name, "modelId": name, "sha": SHA, "private": False, "siblings": files})
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/[^/]+", path):
            tree = [
                {"type": "file", "path": f, "size": len(b), "oid": hashlib.sha1(b).hexdigest()}
                for f, b in self.hub.files[found[1]].items()
            ]
            return self.json(tree)
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            content = self.hub.files.get(found[1], {}).get(found[2])
            if content is None:
                return self.answer(404, b"", X_Error_Code="EntryNotFound", X_Repo_Commit=SHA)
            tag = f'"{hashlib.sha1(content).hexdigest()}"'
            return self.answer(200, content, ETag=tag, X_Repo_Commit=SHA)
        return self.answer(404)

    def do_POST(self):
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"POST {path}")
        body = self.body()
        if self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            return self.json({"error": "Invalid credentials"}, 401)
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            self.hub.files.setdefault(name, {})
            return self.json({"url": f"{self.hub.address}/{name}", "name": name, "id": name})
        if re.fullmatch(r"/api/models/.+/preupload/main", path):
            files = json.loads(body)["files"]
            return self.json(
                {
                    "files": [
                        {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                        for f in files
                    ]
                }
            )
        if found := re.fullmatch(r"/api/models/(.+)/commit/main", path):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    value = line["value"]
                    self.hub.files[found[1]][value["path"]] = base64.b64decode(value["content"])
            url = f"{self.hub.address}/{found[1]}/commit/{SHA}"
            return self.json({"success": True, "commitOid": SHA, "commitUrl": url})
        return self.json({}, 200)


@contextmanager
def standing_in() -> Iterator[Hub]:
    """Serve on a free port of this machine."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
