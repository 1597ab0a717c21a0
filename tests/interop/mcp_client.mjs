// The discovery and the login of a program by the official TypeScript SDK of MCP: from the challenge to
// the resource's metadata, to the issuer's, to a token, and to a tool.
//
// stdin: {"server": URL, "issuer": URL, "id": text, "secret": text, "scope": text}
// stdout: {"metadata": URL, "resource": URL, "issuer": URL, "scope": text, "tools": [name], "sum": number}
import { text } from 'node:stream/consumers';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { ClientCredentialsProvider } from '@modelcontextprotocol/sdk/client/auth-extensions.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const task = JSON.parse(await text(process.stdin));
const authProvider = new ClientCredentialsProvider({
  clientId: task.id,
  clientSecret: task.secret,
  scope: task.scope,
  expectedIssuer: task.issuer,
});
let found;
authProvider.saveDiscoveryState = (state) => { found = state; };
const client = new Client({ name: 'postern-interop', version: '1.0.0' });
await client.connect(new StreamableHTTPClientTransport(new URL(task.server), { authProvider }));
const { tools } = await client.listTools();
const { content } = await client.callTool({ name: 'add', arguments: { a: 20, b: 22 } });
await client.close();
console.log(JSON.stringify({
  metadata: found.resourceMetadataUrl,
  resource: found.resourceMetadata.resource,
  issuer: found.authorizationServerMetadata.issuer,
  scope: authProvider.tokens().scope,
  tools: tools.map((tool) => tool.name),
  sum: Number(content[0].text),
}));
