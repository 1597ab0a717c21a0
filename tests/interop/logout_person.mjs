// A person who logs in to the client `shop` of oidc_provider.mjs, and logs out at the end-session page.
//
// argv: the issuer. stdout: `token ACCESS_TOKEN`, then `logged out` after SIGHUP.
import { createHash, randomBytes } from 'node:crypto';
import { Person } from './person.mjs';

const [issuer] = process.argv.slice(2);
const callback = 'http://127.0.0.1:9/callback';
const resource = 'urn:orders';
const person = new Person();

const verifier = randomBytes(32).toString('base64url');
const login = new URLSearchParams({
  client_id: 'shop',
  redirect_uri: callback,
  response_type: 'code',
  scope: 'openid orders:read',
  resource,
  code_challenge: createHash('sha256').update(verifier).digest('base64url'),
  code_challenge_method: 'S256',
});
const back = await person.visit(`${issuer}/auth?${login}`, callback);
const response = await fetch(`${issuer}/token`, {
  method: 'POST',
  body: new URLSearchParams({
    grant_type: 'authorization_code',
    code: back.searchParams.get('code'),
    redirect_uri: callback,
    client_id: 'shop',
    client_secret: 'a secret of the test, and of nothing else',
    code_verifier: verifier,
    resource,
  }),
});
const tokens = await response.json();
const end = setInterval(() => {}, 1000);
process.on('SIGHUP', async () => {
  await person.visit(`${issuer}/session/end`, `${issuer}/session/end/success`);
  console.log('logged out');
  clearInterval(end);
});
console.log(`token ${tokens.access_token ?? JSON.stringify(tokens)}`);
