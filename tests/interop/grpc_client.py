"""Calls of all four kinds: {"address", "token"} on stdin, what came out of them as JSON on stdout."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

given = json.load(sys.stdin)
options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
channel = grpc.insecure_channel(given["address"], options=options)
known = (("authorization", "Bearer " + given["token"]), ("x-current-user", "forged"))
SECONDS = 60


def path(name):
    return "/echo.Echo/" + name


def code_of(call, *arguments, metadata):
    try:
        call(*arguments, metadata=metadata, timeout=SECONDS)
    except grpc.RpcError as error:
        return [error.code().name, error.details()]
    return ["OK", ""]


unary = channel.unary_unary(path("Unary"))
response, call = unary.with_call(b"hello", metadata=known, timeout=SECONDS)
large = b"x" * 20_000_000
bidirectional = channel.stream_stream(path("Bidirectional"))
with ThreadPoolExecutor(50) as pool:
    at_once = list(
        pool.map(lambda n: unary(str(n).encode(), metadata=known, timeout=SECONDS), range(200))
    )

json.dump(
    {
        "unary": response.decode(),
        "trailer": dict(call.trailing_metadata()).get("x-trailer"),
        "server_stream": len(
            list(channel.unary_stream(path("ServerStream"))(b"1000", metadata=known, timeout=SECONDS))
        ),
        "client_stream": int(
            channel.stream_unary(path("ClientStream"))(
                iter([b"x" * 1000] * 1000), metadata=known, timeout=SECONDS
            )
        ),
        "bidirectional": [
            part.decode()
            for part in bidirectional(iter([b"a", b"b", b"c"]), metadata=known, timeout=SECONDS)
        ],
        "large": len(next(bidirectional(iter([large]), metadata=known, timeout=SECONDS))),
        "at_once": sum(response.startswith(str(n).encode()) for n, response in enumerate(at_once)),
        "rejected_by_service": code_of(channel.unary_unary(path("Reject")), b"", metadata=known),
        "without_token": code_of(unary, b"hello", metadata=()),
        "bad_token": code_of(unary, b"hello", metadata=(("authorization", "Bearer a.b.c"),)),
    },
    sys.stdout,
)
