// The discovery and the login of an MCP client (its TypeScript SDK) before a protected server: from the
// challenge to the resource's metadata, to the issuer's, to a token.
//
// stdin: {"server": URL, "issuer": URL, "id": text, "secret": text, "scope": text}
// stdout: {"before": status, "metadata": URL, "resource": URL, "issuer": URL, "after": status}
import { text } from 'node:stream/consumers';
import { auth, extractWWWAuthenticateParams } from '@modelcontextprotocol/sdk/client/auth.js';
import { ClientCredentialsProvider } from '@modelcontextprotocol/sdk/client/auth-extensions.js';

const task = JSON.parse(await text(process.stdin));
const refused = await fetch(task.server);
const { resourceMetadataUrl } = extractWWWAuthenticateParams(refused);
let found;
const provider = new ClientCredentialsProvider({
  clientId: task.id,
  clientSecret: task.secret,
  scope: task.scope,
  expectedIssuer: task.issuer,
});
provider.saveDiscoveryState = (state) => { found = state; };
await auth(provider, { serverUrl: task.server, resourceMetadataUrl });
const headers = { Authorization: `Bearer ${provider.tokens().access_token}` };
const accepted = await fetch(task.server, { headers });
console.log(JSON.stringify({
  before: refused.status,
  metadata: resourceMetadataUrl.href,
  resource: found.resourceMetadata.resource,
  issuer: found.authorizationServerMetadata.issuer,
  after: accepted.status,
}));
