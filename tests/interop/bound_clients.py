"""Others' client that proves a key (RFC 9449): PyPI's `requests-oauth2client`.

stdin: {"issuer": URL, "id": text, "secret": text, "scope": text, "resource": URL}
stdout: {"token": text, "type": text, "statuses": [number], "posted": number}
"""

import json
import sys

import requests
from requests_oauth2client import OAuth2Client

task = json.load(sys.stdin)
client = OAuth2Client(
    task["issuer"] + "/token",
    client_id=task["id"],
    client_secret=task["secret"],
    dpop_bound_access_tokens=True,
    testing=True,
)
token = client.client_credentials(scope=task["scope"])
statuses = [
    requests.get(task["resource"] + query, auth=token, timeout=30).status_code
    for query in ("", "?page=2")
]
posted = requests.post(task["resource"], data="x", auth=token, timeout=30).status_code
json.dump(
    {
        "token": token.access_token,
        "type": token.token_type,
        "statuses": statuses,
        "posted": posted,
    },
    sys.stdout,
)
