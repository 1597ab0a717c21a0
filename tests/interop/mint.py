"""Mints tokens with PyJWT and a key pair of its own: another implementation of the contract.

stdin: {"algorithm": "RS256" | "ES256"}
stdout: {"key": PEM, "accepted": {name: JWT}, "rejected": {name: JWT}}
"""

import datetime
import json
import sys

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

algorithm = json.load(sys.stdin)["algorithm"]


def generate():
    if algorithm == "RS256":
        return rsa.generate_private_key(public_exponent=65537, key_size=3072)
    return ec.generate_private_key(ec.SECP256R1())


key, foreign = generate(), generate()
now = datetime.datetime.now(datetime.timezone.utc)
hour = datetime.timedelta(hours=1)
user = {"username": "žofie", "nickName": "小明", "userId": "42", "extraInfo": {"userType": "member", "tenantId": "t-7"}}


def mint(claims, headers=None, signing_key=key):
    return jwt.encode(claims, signing_key, algorithm=algorithm, headers=headers)


accepted = {
    "the plainest": mint({**user, "exp": now + hour}),
    "everything": mint({**user, "exp": now + hour, "iat": now, "nbf": now, "iss": "x", "sub": "42", "aud": ["y", "orders"], "jti": "1"}),
    "a foreign kid": mint({**user, "exp": now + hour}, {"kid": "key-of-2019"}),
    "no typ": mint({**user, "exp": now + hour}, {"typ": None}),
    "typ at+jwt": mint({**user, "exp": now + hour}, {"typ": "at+jwt"}),
    "extra claims": mint({**user, "exp": now + hour, "roles": ["a", "b"], "nested": {"x": [1, None]}}),
    "nulls in extraInfo": mint({**user, "exp": now + hour, "extraInfo": {"userType": "member", "avatar": None}}),
    "a fractional exp": mint({**user, "exp": (now + hour).timestamp()}),
}
rejected = {
    "for another": mint({**user, "exp": now + hour, "aud": "y"}),
    "a foreign key": mint({**user, "exp": now + hour}, signing_key=foreign),
    "expired": mint({**user, "exp": now - hour}),
    "not yet valid": mint({**user, "exp": now + 2 * hour, "nbf": now + hour}),
    "no exp": mint(user),
    "crit": mint({**user, "exp": now + hour}, {"crit": ["x"], "x": 1}),
    "no signature": jwt.encode({**user, "exp": now + hour}, None, algorithm="none"),
}
public = key.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)
json.dump({"key": public.decode(), "accepted": accepted, "rejected": rejected}, sys.stdout)
