"""Servers that respond to each request with what they read: method, path and user, as JSON.

    echo_servers.py NAME [GATEWAY HOME]       (GATEWAY: the program of nginx or HAProxy; HOME: a directory for it)

stdout: `listening on ADDRESS`
"""

import asyncio
import json
import os
import random
import socket
import sys


def listen():
    # Below the ports that the system gives to others: a gateway takes it again, later.
    while True:
        try:
            return socket.create_server(("127.0.0.1", random.randrange(20_000, 30_000)))
        except OSError:
            pass


listener = listen()
address = ":".join(map(str, listener.getsockname()))


def echo(method, path, user):
    read = {"method": method, "path": path, "user": json.loads(user) if user else None}
    return json.dumps(read).encode()


def wsgi(environ, start_response):
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    user = environ.get("HTTP_X_CURRENT_USER")
    # WSGI has the bytes of a path as Latin-1, and decoded.
    body = echo(environ["REQUEST_METHOD"], environ["PATH_INFO"], user)
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


async def asgi(scope, receive, send):
    while scope["type"] == "lifespan":
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})
        if event == "lifespan.shutdown":
            return
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    users = [value for name, value in scope["headers"] if name == b"x-current-user"]
    path = scope["raw_path"].decode("latin-1").partition("?")[0]
    body = echo(scope["method"], path, b",".join(users))
    head = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})


def gunicorn():
    from gunicorn.app.base import BaseApplication

    class Application(BaseApplication):
        def load_config(self):
            self.cfg.set("bind", f"fd://{listener.fileno()}")
            for name, value in [("worker_class", "gthread"), ("threads", 4), ("loglevel", "critical")]:
                self.cfg.set(name, value)

        def load(self):
            return wsgi

    Application().run()


def uvicorn(http):
    import uvicorn

    config = uvicorn.Config(asgi, http=http, log_level="critical", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


def waitress():
    import waitress

    waitress.serve(wsgi, sockets=[listener], _quiet=True)


def hypercorn():
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    config = Config()
    config.bind, config.errorlog, config.accesslog = [f"fd://{listener.fileno()}"], None, None
    asyncio.run(serve(asgi, config))


def cheroot():
    from cheroot.wsgi import Server

    server = Server(listener.getsockname(), wsgi)
    server.error_log = lambda *_, **__: None
    server.bind = lambda *_: setattr(server, "socket", listener)
    server.start()


def gevent():
    from gevent.pywsgi import WSGIServer

    listener.setblocking(False)
    WSGIServer(listener, wsgi, log=None, error_log=None).serve_forever()


def aiohttp():
    from aiohttp import web

    async def respond(request):
        await request.read()
        user = request.headers.get("X-Current-User")
        path = request.raw_path.partition("?")[0]
        return web.Response(body=echo(request.method, path, user))

    async def serve():
        runner = web.ServerRunner(web.Server(respond))
        await runner.setup()
        await web.SockSite(runner, listener).start()
        await asyncio.Event().wait()

    asyncio.run(serve())


def tornado():
    import logging

    from tornado.httpserver import HTTPServer
    from tornado.httputil import HTTPHeaders, ResponseStartLine

    def respond(request):
        user = request.headers.get("X-Current-User")
        body = echo(request.method, request.path, user)
        if request.method == "HEAD":
            body = b""
        request.connection.write_headers(
            ResponseStartLine("HTTP/1.1", 200, "OK"),
            HTTPHeaders({"Content-Length": str(len(body))}),
            body,
        )
        request.connection.finish()

    logging.disable()

    async def serve():
        listener.setblocking(False)
        HTTPServer(respond).add_sockets([listener])
        await asyncio.Event().wait()

    asyncio.run(serve())


def gateway(template, *options):
    program, home = sys.argv[2:]
    text = open(os.path.join(os.path.dirname(__file__), template)).read()
    file = os.path.join(home, template)
    with open(file, "w") as configuration:
        configuration.write(text.replace("ADDRESS", address).replace("HOME", home))
    os.execv(program, [program, *options, file])


def nginx():
    gateway("echo_nginx.conf", "-p", sys.argv[3], "-c")


def haproxy():
    gateway("echo_haproxy.cfg", "-db", "-f")


name, _, variant = sys.argv[1].partition("-")
# A gateway opens its own: a connection to this one would be no sign that it listens.
if name in ("nginx", "haproxy"):
    listener.close()
print("listening on", address, flush=True)
globals()[name](*filter(None, [variant]))
