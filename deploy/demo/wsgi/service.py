#!/usr/bin/env python3
"""A small WSGI application without authentication: it responds with the caller and the request, as JSON.
Flask and Django stand on WSGI, and read headers as it gives them.

WSGI takes over CGI's names: a header becomes a key in which every hyphen is an underscore, and
X_Current_User would share the key of X-Current-User. The sidecar removes all such look-alikes.

    service.py [ADDRESS:PORT]      (127.0.0.1:0 or nothing: a free port)
"""

import json
import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server


def current_user(environ):
    """The user that the sidecar verified; None where a path needs no login."""
    header = environ.get("HTTP_X_CURRENT_USER")
    return json.loads(header) if header else None


def application(environ, start_response):
    response = {
        "service": "wsgi",
        "method": environ["REQUEST_METHOD"],
        "path": environ["PATH_INFO"],
        "user": current_user(environ),
    }
    body = json.dumps(response).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


def main():
    host, port = (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:0").split(":")
    with make_server(host, int(port), application, handler_class=Quiet) as server:
        print(f"listening on {host}:{server.server_port}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
