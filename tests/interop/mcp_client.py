"""The login of a program by the official Python SDK of MCP, and a call of a tool with its token.

stdin: {"server": URL, "issuer": URL, "id": text, "secret": text}
stdout: {"scope": the scope that it requested and got, "tools": [name], "sum": number}
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client

task = json.load(sys.stdin)


class Memory:
    """Keeps tokens for as long as the program runs."""

    tokens = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return None

    async def set_client_info(self, client_info):
        pass


async def main():
    memory = Memory()
    login = ClientCredentialsOAuthProvider(
        server_url=task["server"],
        storage=memory,
        client_id=task["id"],
        client_secret=task["secret"],
        issuer=task["issuer"],
    )
    async with httpx2.AsyncClient(auth=login) as http:
        transport = streamable_http_client(task["server"], http_client=http)
        async with Client(transport) as client:
            tools = await client.list_tools()
            result = await client.call_tool("add", {"a": 20, "b": 22})
    return {
        "scope": memory.tokens.scope,
        "tools": [tool.name for tool in tools.tools],
        "sum": json.loads(result.content[0].text),
    }


json.dump(asyncio.run(main()), sys.stdout)
