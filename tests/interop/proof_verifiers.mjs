// Two others that verify DPoP proofs: the userinfo endpoint of `oidc-provider`, and Auth0's
// `express-oauth2-jwt-bearer`. Both are at `https://api.example/orders/1`, as a gateway names it.
//
// argv: the JWK of the issuer of the JWTs.
// stdout: `listening on USERINFO BEARER`. `GET /token?jkt=…` at the first mints an opaque token with this
// thumbprint.
import { createServer } from 'node:http';
import express from 'express';
import { auth } from 'express-oauth2-jwt-bearer';
import { Provider } from 'oidc-provider';

const keys = { keys: [JSON.parse(process.argv[2])] };
const ALGORITHMS = ['ES256', 'ES384', 'EdDSA', 'PS256', 'RS256'];

const provider = new Provider('https://api.example', {
  clients: [{
    client_id: 'jobs', client_secret: 'a secret', redirect_uris: ['https://a.example/'], response_types: ['code'],
    grant_types: ['authorization_code'],
  }],
  enabledJWA: { dPoPSigningAlgValues: ALGORITHMS },
  // Each proof is sent once.
  features: { dPoP: { enabled: true, allowReplay: true } },
  findAccount: (_, accountId) => ({ accountId, claims: () => ({ sub: accountId }) }),
  routes: { userinfo: '/orders/1' },
});
provider.proxy = true;

async function mint(jkt) {
  const grant = new provider.Grant({ accountId: 'ada', clientId: 'jobs' });
  grant.addOIDCScope('openid');
  const token = new provider.AccessToken({
    accountId: 'ada', client: await provider.Client.find('jobs'), grantId: await grant.save(), scope: 'openid',
    gty: 'authorization_code',
  });
  token.setThumbprint('jkt', jkt);
  return token.save();
}

const userinfo = provider.callback();
const first = createServer(async (request, response) => {
  const url = new URL(request.url, 'http://localhost');
  if (url.pathname === '/keys') return response.end(JSON.stringify(keys));
  if (url.pathname !== '/token') return userinfo(request, response);
  return response.end(JSON.stringify({ token: await mint(url.searchParams.get('jkt')) }));
});

// Its keys are fetched from the first one.
const bearer = (address) => {
  const app = express();
  app.set('trust proxy', true);
  app.use(auth({
    issuer: 'https://idp', audience: 'orders', jwksUri: `http://${address}/keys`, tokenSigningAlg: 'ES256',
    dpop: { enabled: true, required: true, iatOffset: 60, iatLeeway: 30 },
  }));
  app.get('/orders/1', (_, response) => response.send('ok'));
  app.use((error, _, response, next) => response.status(error.status ?? 500).send(error.message) && next);
  return createServer(app);
};

const addressOf = (server) => `127.0.0.1:${server.address().port}`;
first.listen(0, '127.0.0.1', () => {
  const second = bearer(addressOf(first));
  second.listen(0, '127.0.0.1', () => console.log(`listening on ${addressOf(first)} ${addressOf(second)}`));
});
