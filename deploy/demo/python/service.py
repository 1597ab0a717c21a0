#!/usr/bin/env python3
"""A small HTTP service that knows nothing of authentication.

It responds to every request with its content, as JSON. All it does about users is to read one
header, and that is all a service behind the sidecar has to do.

    service.py [[ADDRESS:]PORT [ORIGIN]]      (127.0.0.1, and 0 or nothing: a free port)

ORIGIN: its pages may read the responses in a browser (CORS).
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


def current_user(headers):
    """The user that the sidecar verified; None where a path needs no login."""
    header = headers.get("X-Current-User")
    return json.loads(header) if header else None


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections open for the sidecar's pool

    def __getattr__(self, name):
        # http.server looks up do_GET, do_POST and so on: every method gets the same response.
        if name.startswith("do_"):
            return self.respond
        raise AttributeError(name)

    def respond(self):
        target = urlsplit(self.path)
        received = {
            "service": "python",
            "method": self.command,
            "path": target.path,
            "query": parse_qs(target.query),
            "headers": [f"{name}: {value}" for name, value in self.headers.items()],
            "body": self.received_body().decode("utf-8", "replace"),
            "user": current_user(self.headers),
        }
        body = json.dumps(received).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.server.allowed_origin:
            self.send_header("Access-Control-Allow-Origin", self.server.allowed_origin)
            requested = self.headers.get("Access-Control-Request-Headers", "")
            self.send_header("Access-Control-Allow-Headers", requested)
            self.send_header("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE")
            self.send_header("Vary", "Origin")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def received_body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return body

    def log_message(self, *_):
        pass


def main():
    host, _, port = (sys.argv[1] if len(sys.argv) > 1 else "0").rpartition(":")
    host = host or "127.0.0.1"
    try:
        server = ThreadingHTTPServer((host, int(port)), Echo)
    except (OSError, OverflowError, ValueError) as error:
        sys.exit(f"{host}:{port}: {error}")
    server.allowed_origin = sys.argv[2] if len(sys.argv) > 2 else None
    print(f"listening on {host}:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
