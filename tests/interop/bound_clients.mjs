// Others' clients that prove a key (RFC 9449): `oauth4webapi`, `openid-client`, `dpop`, `jose`, and the one
// of AT Protocol. Each gets a token of the issuer and sends it to the resource, which asks for a nonce.
//
// stdin: {"issuer": URL, "id": text, "secret": text, "scope": text, "resource": URL}
// stdout: {CLIENT: {"token": text, "type": text, "statuses": [number], "posted": number}}
import { text } from 'node:stream/consumers';
import { createHash, randomUUID } from 'node:crypto';
import { JoseKey } from '@atproto/jwk-jose';
import * as dpop from 'dpop';
import * as jose from 'jose';
import * as oauth from 'oauth4webapi';
import * as openid from 'openid-client';
// The package exports it with a whole session alone, which would need a network.
import { dpopFetchWrapper } from './node_modules/@atproto/oauth-client/dist/fetch-dpop.js';

const task = JSON.parse(await text(process.stdin));
const issuer = new URL(task.issuer);
const resource = new URL(task.resource);
const withQuery = new URL('?page=2#here', resource);
const form = () => new URLSearchParams({
  grant_type: 'client_credentials', client_id: task.id, client_secret: task.secret, scope: task.scope,
});
const results = {};

async function oauth4webapi() {
  const insecure = { [oauth.allowInsecureRequests]: true };
  const discovered = await oauth.discoveryRequest(issuer, insecure);
  const server = await oauth.processDiscoveryResponse(issuer, discovered);
  const client = { client_id: task.id };
  const DPoP = oauth.DPoP(client, await oauth.generateKeyPair('ES256'));
  const parameters = new URLSearchParams({ scope: task.scope });
  const secret = oauth.ClientSecretPost(task.secret);
  const options = { DPoP, ...insecure };
  const response = await oauth.clientCredentialsGrantRequest(server, client, secret, parameters, options);
  const granted = await oauth.processClientCredentialsResponse(server, client, response);
  const send = (method, url, body) => (
    oauth.protectedResourceRequest(granted.access_token, method, url, new Headers(), body, options)
  );
  // The first one is rejected for its nonce; the library keeps the one that it was given.
  const first = await send('GET', resource).catch((error) => error);
  const statuses = [(await send('GET', resource)).status, (await send('GET', withQuery)).status];
  if (!oauth.isDPoPNonceError(first)) throw first;
  const posted = await send('POST', resource, 'x');
  return { token: granted.access_token, type: granted.token_type, statuses, posted: posted.status };
}

async function openidClient() {
  const execute = [openid.allowInsecureRequests];
  const secret = openid.ClientSecretPost(task.secret);
  const config = await openid.discovery(issuer, task.id, undefined, secret, { execute });
  const DPoP = openid.getDPoPHandle(config, await openid.randomDPoPKeyPair('EdDSA'));
  const granted = await openid.clientCredentialsGrant(config, { scope: task.scope }, { DPoP });
  const send = (method, url, body) => (
    openid.fetchProtectedResource(config, granted.access_token, url, method, body, undefined, { DPoP })
  );
  const statuses = [(await send('GET', resource)).status, (await send('GET', withQuery)).status];
  const posted = await send('POST', resource, 'x');
  return { token: granted.access_token, type: granted.token_type, statuses, posted: posted.status };
}

// Of libraries that make proofs and nothing else.
async function withProofs(prove) {
  const grant = await fetch(new URL('/token', issuer), {
    method: 'POST', body: form(), headers: { DPoP: await prove('POST', new URL('/token', issuer)) },
  });
  const granted = await grant.json();
  let nonce;
  const send = async (method, url, body) => {
    const proof = await prove(method, resource, nonce, granted.access_token);
    const headers = { Authorization: `DPoP ${granted.access_token}`, DPoP: proof };
    const response = await fetch(url, { method, body, headers });
    nonce = response.headers.get('DPoP-Nonce');
    return response.status;
  };
  const asked = await send('GET', resource);
  if (asked !== 401) throw new Error(`without a nonce: ${asked}`);
  const statuses = [await send('GET', resource), await send('GET', withQuery)];
  return {
    token: granted.access_token, type: granted.token_type, statuses, posted: await send('POST', resource, 'x'),
  };
}

async function ofDpop() {
  const pair = await dpop.generateKeyPair('Ed25519');
  return withProofs((method, url, nonce, token) => dpop.generateProof(pair, url.href, method, nonce, token));
}

async function ofJose() {
  const { publicKey, privateKey } = await jose.generateKeyPair('ES384');
  const jwk = await jose.exportJWK(publicKey);
  return withProofs((method, url, nonce, token) => {
    const ath = token && createHash('sha256').update(token).digest('base64url');
    return new jose.SignJWT({ htm: method, htu: url.href, nonce, ath })
      .setProtectedHeader({ typ: 'dpop+jwt', alg: 'ES384', jwk })
      .setIssuedAt().setJti(randomUUID()).sign(privateKey);
  });
}

async function atproto() {
  const nonces = new Map();
  const store = { get: (origin) => nonces.get(origin), set: (origin, nonce) => nonces.set(origin, nonce) };
  const key = await JoseKey.generate(['ES256']);
  const fetchOf = (isAuthServer) => dpopFetchWrapper({
    key, nonces: store, isAuthServer, supportedAlgs: ['ES256'],
  });
  const granted = await (await fetchOf(true)(new URL('/token', issuer).href, {
    method: 'POST', body: form().toString(), headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
  })).json();
  const headers = { Authorization: `DPoP ${granted.access_token}` };
  const send = async (url, init) => (await fetchOf(false)(url.href, { headers, ...init })).status;
  const statuses = [await send(resource), await send(withQuery)];
  const posted = await send(resource, { method: 'POST', body: 'x' });
  return { token: granted.access_token, type: granted.token_type, statuses, posted };
}

for (const client of [oauth4webapi, openidClient, ofDpop, ofJose, atproto]) {
  results[client.name] = await client().catch((error) => ({ error: `${error.stack} ${error.cause}` }));
}
console.log(JSON.stringify(results));
process.exit();
