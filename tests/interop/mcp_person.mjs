// The login of a person by the official TypeScript SDK of MCP: registration, authorization code with
// PKCE, and a tool. The script takes the part of the browser at the pages of the issuer.
//
// stdin: {"server": URL}
// stdout: {"issuer": URL, "scope": text, "tools": [name], "sum": number}
import { text } from 'node:stream/consumers';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { Person } from './person.mjs';

const task = JSON.parse(await text(process.stdin));
const redirectUrl = 'http://127.0.0.1:9/callback';
const kept = {};
let page;
const authProvider = {
  redirectUrl,
  clientMetadata: {
    client_name: 'postern-interop',
    redirect_uris: [redirectUrl],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    token_endpoint_auth_method: 'none',
  },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  redirectToAuthorization: (url) => { page = url; },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
  saveDiscoveryState: (state) => { kept.found = state; },
};

const transport = () => new StreamableHTTPClientTransport(new URL(task.server), { authProvider });
const client = new Client({ name: 'postern-interop', version: '1.0.0' });
const first = transport();
await client.connect(first).catch((error) => {
  if (!(error instanceof UnauthorizedError)) throw error;
});
const answered = (await new Person().visit(page, redirectUrl)).searchParams;
await first.finishAuth(answered.get('code'));
await client.connect(transport());
const { tools } = await client.listTools();
const { content } = await client.callTool({ name: 'add', arguments: { a: 20, b: 22 } });
await client.close();
console.log(JSON.stringify({
  issuer: kept.found.authorizationServerMetadata.issuer,
  scope: kept.tokens.scope,
  tools: tools.map((tool) => tool.name),
  sum: Number(content[0].text),
}));
