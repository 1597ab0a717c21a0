"""An MCP server of `fastmcp` as its documentation has it: it knows of no token.

stdout: `listening on ADDRESS`
"""

import socket

import uvicorn
from fastmcp import FastMCP

mcp = FastMCP("Orders")


@mcp.tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


listener = socket.create_server(("127.0.0.1", 0))
print("listening on", ":".join(map(str, listener.getsockname())), flush=True)
config = uvicorn.Config(mcp.http_app(), log_level="warning")
uvicorn.Server(config).run(sockets=[listener])
