"""An issuer made of Authlib's authorization server: discovery, a key set and client credentials.

argv: the audience of its tokens. stdout: `listening on ADDRESS`.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

# The issuer of the test speaks plain HTTP on loopback.
os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

from authlib.oauth2.rfc6749 import AuthorizationServer, ClientMixin, OAuth2Request
from authlib.oauth2.rfc6749.grants import ClientCredentialsGrant
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from joserfc.jwk import KeySet, RSAKey

AUDIENCE = sys.argv[1]
SECRET = "a secret of the test, and of nothing else"


# Issuers that know nothing of each other give their keys the same names.
KEYS = KeySet([RSAKey.generate_key(2048, {"kid": "key-1", "alg": "RS256", "use": "sig"})])


class Client(ClientMixin):
    def get_client_id(self):
        return "jobs"

    def get_allowed_scope(self, scope):
        return scope

    def check_client_secret(self, client_secret):
        return client_secret == SECRET

    def check_endpoint_auth_method(self, method, endpoint):
        return method == "client_secret_post"

    def check_grant_type(self, grant_type):
        return grant_type == "client_credentials"


class Grant(ClientCredentialsGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_post"]


class Generator(JWTBearerTokenGenerator):
    def get_jwks(self):
        return KEYS

    def get_audiences(self, client, user, scope):
        return AUDIENCE


class Request(OAuth2Request):
    def __init__(self, uri, fields, headers):
        super().__init__("POST", uri, headers=headers)
        self.payload = BasicOAuth2Payload(fields)
        self.fields = fields

    @property
    def args(self):
        return {}

    @property
    def form(self):
        return self.fields


class Server(AuthorizationServer):
    def query_client(self, client_id):
        return Client() if client_id == "jobs" else None

    def save_token(self, token, request):
        """A JWT is not looked up."""

    def send_signal(self, name, *args, **kwargs):
        """Nothing listens."""

    def create_oauth2_request(self, request):
        return request

    def handle_response(self, status, body, headers):
        return status, body


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/.well-known/openid-configuration":
            self.respond(200, {
                "issuer": ISSUER,
                "jwks_uri": ISSUER + "/jwks",
                "token_endpoint": ISSUER + "/token",
            })
        elif self.path == "/jwks":
            self.respond(200, KEYS.as_dict(private=False))
        else:
            self.respond(404, {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        request = Request(ISSUER + "/token", dict(parse_qsl(body)), self.headers)
        self.respond(*server.create_token_response(request))

    def respond(self, status, body):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """stderr is for faults."""


listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
ADDRESS = "%s:%d" % listener.server_address
ISSUER = "http://" + ADDRESS
server = Server()
server.register_grant(Grant)
server.register_token_generator("default", Generator(ISSUER))
print("listening on " + ADDRESS, flush=True)
listener.serve_forever()
