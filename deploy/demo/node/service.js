#!/usr/bin/env node
// A small HTTP service that knows nothing of authentication: it says who calls and what was asked
// for, as JSON. Nothing but Node's standard library.
//
//     node service.js [ADDRESS:PORT]      (127.0.0.1:0 or nothing: a free port)
"use strict";
const http = require("node:http");

// The user the sidecar vouches for; null where a path needs no login.
function currentUser(request) {
  const header = request.headers["x-current-user"];
  return header ? JSON.parse(header) : null;
}

const server = http.createServer((request, response) => {
  const answer = JSON.stringify({
    service: "node",
    method: request.method,
    path: request.url,
    user: currentUser(request),
  });
  response.writeHead(200, { "Content-Type": "application/json" });
  response.end(answer);
});

const [host, port] = (process.argv[2] ?? "127.0.0.1:0").split(":");
server.listen(Number(port), host, () => {
  console.log(`listening on ${host}:${server.address().port}`);
});
process.on("SIGTERM", () => server.close());
