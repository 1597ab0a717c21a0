"""WebSockets through the sidecar: {"address", "token"} on stdin, what came out as JSON on stdout."""

import asyncio
import json
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

given = json.load(sys.stdin)
url = f"ws://{given['address']}/orders/ws"
bearer = {"Authorization": "Bearer " + given["token"]}
options = {"max_size": None, "ping_interval": None}


async def conversation(**more):
    async with connect(url, **options, **more) as socket:
        user = await socket.recv()
        await socket.send("hello")
        text = await socket.recv()
        binary = bytes(range(256)) * 40_000
        await socket.send(binary)
        same = await socket.recv() == binary
        await (await socket.ping())
        return {"user": user, "text": text, "binary": same, "protocol": socket.subprotocol}


async def status(**more):
    try:
        async with connect(url, **options, **more):
            return 101
    except InvalidStatus as rejection:
        return rejection.response.status_code


async def main():
    protocols = ["bearer", given["token"]]
    json.dump(
        {
            "header": await conversation(additional_headers=bearer),
            "protocol": await conversation(subprotocols=protocols),
            "both": await conversation(subprotocols=protocols + ["chat"]),
            "anonymous": await status(),
            "forged": await status(subprotocols=["bearer", "a.b.c"]),
        },
        sys.stdout,
    )


asyncio.run(main())
