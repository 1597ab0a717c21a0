// The certified `openid-client` at our token endpoint, found by our discovery documents.
//
// stdin: {"issuer": URL, "id": text, "secret": text, "scope": text, "refresh": refresh token}
// stdout: {"tokens": [text], "expires_in": seconds, "scope": text, "rejection": text, "reused": text}
import { text } from 'node:stream/consumers';
import * as client from 'openid-client';

const task = JSON.parse(await text(process.stdin));
const issuer = new URL(task.issuer);
// The server of the test speaks plain HTTP on loopback.
const execute = [client.allowInsecureRequests];
const discover = (algorithm, id, authentication) =>
  client.discovery(issuer, id, undefined, authentication, { execute, algorithm });

const tokens = [];
let granted;
for (const algorithm of ['oidc', 'oauth2']) {
  for (const authentication of [client.ClientSecretBasic, client.ClientSecretPost]) {
    const config = await discover(algorithm, task.id, authentication(task.secret));
    granted = await client.clientCredentialsGrant(config, { scope: task.scope });
    tokens.push(granted.access_token);
  }
}

const wrong = await discover('oauth2', task.id, client.ClientSecretBasic('wrong'));
const rejection = await client.clientCredentialsGrant(wrong).catch((error) => error);

// A client without a secret, as of a login.
const user = await discover('oauth2', 'app', client.None());
const refreshed = await client.refreshTokenGrant(user, task.refresh);
const again = await client.refreshTokenGrant(user, refreshed.refresh_token);
const reused = await client.refreshTokenGrant(user, task.refresh).catch((error) => error);
tokens.push(refreshed.access_token, again.access_token);

console.log(JSON.stringify({
  tokens,
  expires_in: granted.expires_in,
  scope: granted.scope,
  rejection: `${rejection.status} ${rejection.cause?.[0]?.scheme}`,
  reused: `${reused.status} ${reused.error}`,
}));
