"""A gRPC service of all four kinds, without generated code: it counts, repeats and tells who called."""

from concurrent.futures import ThreadPoolExecutor

import grpc


def user(context):
    fields = dict(context.invocation_metadata())
    return fields.get("x-current-user", "nobody").encode()


def unary(request, context):
    context.set_trailing_metadata((("x-trailer", "unary"),))
    return request + b" from " + user(context)


def server_stream(request, context):
    for number in range(int(request)):
        yield str(number).encode()


def client_stream(requests, context):
    return str(sum(len(request) for request in requests)).encode()


def bidirectional(requests, context):
    for request in requests:
        yield request


def reject(request, context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today")


handlers = grpc.method_handlers_generic_handler(
    "echo.Echo",
    {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "ServerStream": grpc.unary_stream_rpc_method_handler(server_stream),
        "ClientStream": grpc.stream_unary_rpc_method_handler(client_stream),
        "Bidirectional": grpc.stream_stream_rpc_method_handler(bidirectional),
        "Reject": grpc.unary_unary_rpc_method_handler(reject),
    },
)
options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
server = grpc.server(ThreadPoolExecutor(max_workers=64), handlers=[handlers], options=options)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(f"listening on 127.0.0.1:{port}", flush=True)
server.wait_for_termination()
