"""One call that does not reach a service: {"address", "token"} on stdin, code and details as JSON on stdout."""

import json
import sys

import grpc

given = json.load(sys.stdin)
channel = grpc.insecure_channel(given["address"])
known = (("authorization", "Bearer " + given["token"]),)
try:
    channel.unary_unary("/echo.Echo/Unary")(b"hello", metadata=known, timeout=60)
except grpc.RpcError as error:
    json.dump([error.code().name, error.details()], sys.stdout)
