"""Others' OAuth clients with refresh tokens of our logins.

stdin: {"endpoint": URL, "authlib": refresh token, "requests-oauthlib": refresh token}
stdout: for each client the tokens of two refreshes, and the error of a token that was used before.
"""

import json
import os
import sys

# The server of the test speaks plain HTTP on loopback.
os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"
os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session as AuthlibSession
from oauthlib.oauth2 import InvalidGrantError
from requests_oauthlib import OAuth2Session

task = json.load(sys.stdin)
endpoint = task["endpoint"]
result = {}

clients = {
    "authlib": (AuthlibSession("app", token_endpoint_auth_method="none"), OAuthError),
    "requests-oauthlib": (OAuth2Session("app"), InvalidGrantError),
}
for name, (client, rejection) in clients.items():
    first = client.refresh_token(endpoint, refresh_token=task[name])
    second = client.refresh_token(endpoint, refresh_token=first["refresh_token"])
    try:
        client.refresh_token(endpoint, refresh_token=task[name])
        error = "accepted"
    except rejection as rejected:
        error = rejected.error
    result[name] = {
        "tokens": [first["access_token"], second["access_token"]],
        "expires_in": second["expires_in"],
        "error": error,
    }
json.dump(result, sys.stdout)
