"""Verifies a token with PyJWT and the key that our auth server serves.

stdin: {"key": PEM, "token": JWT, "algorithm": "RS256" | "ES256", "issuer": text}
stdout: {"header": {...}, "claims": {...}}; the exit code is not 0 where PyJWT rejects.
"""

import json
import sys

import jwt

task = json.load(sys.stdin)
claims = jwt.decode(
    task["token"],
    task["key"],
    algorithms=[task["algorithm"]],
    issuer=task["issuer"],
    options={"require": ["exp", "iat", "nbf", "iss", "sub", "jti"]},
)
json.dump({"header": jwt.get_unverified_header(task["token"]), "claims": claims}, sys.stdout)
