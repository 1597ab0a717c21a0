"""A WebSocket service that repeats what it gets, and first says who is there."""

import asyncio

from websockets.asyncio.server import serve


async def repeat(connection):
    await connection.send(connection.request.headers.get("X-Current-User", "nobody"))
    async for message in connection:
        await connection.send(message)


async def main():
    options = {"subprotocols": ["chat"], "max_size": None, "ping_interval": None}
    # A client may offer none of our protocols.
    options["select_subprotocol"] = lambda _, offered: "chat" if "chat" in offered else None
    async with serve(repeat, "127.0.0.1", 0, **options) as server:
        port = server.sockets[0].getsockname()[1]
        print(f"listening on 127.0.0.1:{port}", flush=True)
        await server.serve_forever()


asyncio.run(main())
