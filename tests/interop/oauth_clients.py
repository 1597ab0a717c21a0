"""Others' OAuth clients at our token endpoint, and others' readers of our discovery documents.

stdin: {"issuer": URL, "context": path, "id": text, "secret": text, "scope": text}
stdout: one token for each client, and what the metadata says.
"""

import json
import os
import sys

# The server of the test speaks plain HTTP on loopback.
os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"
os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

import requests
from authlib.integrations.requests_client import OAuth2Session as AuthlibSession
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata, get_well_known_url
from authlib.oidc.discovery import get_well_known_url as get_oidc_url
from oauthlib.oauth2 import BackendApplicationClient, InvalidClientError, InvalidScopeError
from requests_oauthlib import OAuth2Session

task = json.load(sys.stdin)
result = {}

oidc = requests.get(get_oidc_url(task["issuer"], external=True), timeout=30).json()
oauth = requests.get(get_well_known_url(task["issuer"], external=True), timeout=30).json()
result["same"] = oidc == oauth
result["issuer"] = oidc["issuer"]
keys = requests.get(oidc["jwks_uri"], timeout=30).json()["keys"]
result["keys"] = len(keys)


class Metadata(AuthorizationServerMetadata):
    """The checks of RFC 8414, but for https, which the test does not have."""

    def validate_issuer(self):
        assert self["issuer"] == task["issuer"]

    def validate_token_endpoint(self):
        assert self["token_endpoint"].startswith(task["issuer"])

    def validate_jwks_uri(self):
        assert self["jwks_uri"].startswith(task["issuer"])


Metadata(oauth).validate()
endpoint = oauth["token_endpoint"]

for method in oauth["token_endpoint_auth_methods_supported"]:
    with AuthlibSession(
        task["id"], task["secret"], token_endpoint_auth_method=method, scope=task["scope"]
    ) as client:
        token = client.fetch_token(endpoint, grant_type="client_credentials")
        result["authlib " + method] = token["access_token"]

client = OAuth2Session(client=BackendApplicationClient(client_id=task["id"], scope=task["scope"]))
token = client.fetch_token(endpoint, client_id=task["id"], client_secret=task["secret"])
result["requests-oauthlib"] = token["access_token"]
result["expires_in"] = token["expires_in"]
result["scope"] = token["scope"]

rejections = {}
for name, secret, scope, error in (
    ("secret", "wrong", task["scope"], InvalidClientError),
    ("scope", task["secret"], "admin", InvalidScopeError),
):
    client = OAuth2Session(client=BackendApplicationClient(client_id=task["id"], scope=scope))
    try:
        client.fetch_token(endpoint, client_id=task["id"], client_secret=secret)
        rejections[name] = "accepted"
    except error as rejection:
        rejections[name] = rejection.error
result["rejections"] = rejections
json.dump(result, sys.stdout)
