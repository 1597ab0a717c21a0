// An issuer: the certified `oidc-provider`, with discovery, a key set and client credentials; with pages
// and registration, if it is to have them. Its tokens are bound to the key of a proof (RFC 9449), and those of
// `mutual` to the certificate that a gateway would pass on (RFC 8705).
//
// argv: the audience of its tokens; `pages` for a login of people, whose audience is the requested
// resource; a URI to which it sends the logouts of the client `shop` (Back-Channel Logout 1.0), whose access
// tokens name their session. stdout: `listening on ADDRESS`.
import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import { Provider } from 'oidc-provider';

const [audience, pages, logoutUri] = process.argv.slice(2);

// Issuers that know nothing of each other give their keys the same names.
const key = {
  ...generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' }),
  kid: 'key-1',
  alg: 'RS256',
  use: 'sig',
};

const resourceServer = {
  audience,
  scope: 'orders:read',
  accessTokenFormat: 'jwt',
  accessTokenTTL: 300,
  jwt: { sign: { alg: 'RS256' } },
};

const client = (id, authentication) => ({
  client_id: id,
  client_secret: 'a secret of the test, and of nothing else',
  grant_types: ['client_credentials'],
  redirect_uris: [],
  response_types: [],
  token_endpoint_auth_method: authentication,
});

const shop = {
  ...client('shop', 'client_secret_post'),
  grant_types: ['authorization_code'],
  redirect_uris: ['http://127.0.0.1:9/callback'],
  response_types: ['code'],
  backchannel_logout_uri: logoutUri,
  backchannel_logout_session_required: true,
};

const provider = (issuer) => new Provider(issuer, {
  jwks: { keys: [key] },
  clients: [
    client('jobs', 'client_secret_post'),
    client('agent', 'client_secret_basic'),
    { ...client('mutual', 'client_secret_post'), tls_client_certificate_bound_access_tokens: true },
    ...(logoutUri ? [shop] : []),
  ],
  extraTokenClaims: (_, token) => (token.sid ? { sid: token.sid } : undefined),
  // Without its protection from requests to the loopback address.
  fetch: (url, { dispatcher, ...options }) => fetch(url, options),
  enabledJWA: { dPoPSigningAlgValues: ['ES256', 'ES384', 'Ed25519', 'EdDSA', 'RS256', 'PS256'] },
  scopes: ['openid', 'offline_access', 'orders:read'],
  features: {
    backchannelLogout: { enabled: Boolean(logoutUri) },
    clientCredentials: { enabled: true },
    dPoP: { enabled: true },
    mTLS: {
      enabled: true,
      certificateBoundAccessTokens: true,
      getCertificate: (context) => decodeURIComponent(context.get('x-client-cert')) || undefined,
    },
    devInteractions: { enabled: pages === 'pages' },
    registration: { enabled: pages === 'pages' },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => 'urn:orders',
      getResourceServerInfo: (_, resource) => (
        pages === 'pages' ? { ...resourceServer, audience: resource } : resourceServer
      ),
    },
  },
}).callback();

const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const address = `127.0.0.1:${server.address().port}`;
  server.on('request', provider(`http://${address}`));
  console.log(`listening on ${address}`);
});
