//! Tokens that are bound to a key (DPoP, RFC 9449) or to a certificate (RFC 8705), through a sidecar.

mod announcements;
mod certificates;
mod differential;
mod gateways;
mod nonces;
mod peers;
mod proofs;

use serde_json::json;
use tests::actors::client::Request;
use tests::actors::proving_client::ProvingClient;
use tests::actors::sidecar::Sidecar;
use tests::actors::stack::ForgedStack;
use tests::keys::Algorithm;
use tests::wire::clock;
use tests::wire::message::Message;
use tests::wire::raw_client::exchange;

const RESOURCE: [&str; 2] = ["--resource", "https://api.example/orders"];
const PATH: &str = "/orders/1";
const URL: &str = "https://api.example/orders/1";

/// A sidecar that verifies proofs, a client with a key, and its token.
struct Proving {
    stack: ForgedStack,
    client: ProvingClient,
    token: String,
}

impl Proving {
    fn start(flags: &[&str]) -> Self {
        Self::of(
            ForgedStack::with_flags([&RESOURCE, flags].concat()),
            Algorithm::ES256,
        )
    }

    fn of(stack: ForgedStack, algorithm: Algorithm) -> Self {
        let client = ProvingClient::new(algorithm);
        let claims = json!({"cnf": client.cnf()});
        Self {
            token: stack.forge.token(clock::now(), &claims),
            stack,
            client,
        }
    }

    /// Returns the lines of a good request with GET.
    fn lines(&self) -> [String; 2] {
        self.client.lines("GET", URL, &self.token)
    }

    fn get(&self, lines: &[String]) -> Message {
        get(&self.stack.sidecar, PATH, lines)
    }
}

fn get(sidecar: &Sidecar, path: &str, lines: &[String]) -> Message {
    let request = Request::new("GET", path).lines(lines);
    sidecar.anonymous().send(&request)
}

/// Sends a request that the OpenAPI document does not describe, such as one outside of the context
/// path.
fn send(sidecar: &Sidecar, request: &Request, method: &str) -> Message {
    exchange(sidecar.address(), method, &request.bytes("api.example"))
}
