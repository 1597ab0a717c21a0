"""A service without authentication: it greets the user that the sidecar verified."""

import json
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Orders(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        user = json.loads(self.headers.get("X-Current-User", "null"))
        body = json.dumps({"path": self.path, "user": user}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


# Process 1 of a container has to handle the signal itself: nothing else ends it.
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
# The sidecar is in the same pod: no other client has to reach this port.
ThreadingHTTPServer(("127.0.0.1", 3000), Orders).serve_forever()
