//! Standard combinations of actors.

use serde_json::{Value, json};

use crate::actors::auth_server::{AuthServer, ECDSA};
use crate::actors::sidecar::{Sidecar, SidecarPlan};
use crate::actors::token_forge::Forge;
use crate::keys::SigningType;
use crate::services::echo_service::EchoService;
use crate::services::fake_auth_server::FakeAuthServer;
use crate::wire::clock;
use crate::wire::raw_client::head_with_token;

/// The product in its usual setup: a service, a sidecar in front of it, an auth server.
#[derive(Debug)]
pub struct Stack {
    /// Sidecar in front of `service`.
    pub sidecar: Sidecar,
    /// Issuer of the tokens.
    pub auth_server: AuthServer,
    /// Service without any knowledge of tokens.
    pub service: EchoService,
}

impl Stack {
    /// Starts all three and waits until they are ready.
    pub fn start() -> Self {
        let service = EchoService::start();
        let auth_server = AuthServer::start();
        let sidecar = SidecarPlan::new(&service, &auth_server.url()).ready();
        Self {
            sidecar,
            auth_server,
            service,
        }
    }
}

/// A sidecar that trusts the forge's key, so that a test can mint any token.
#[derive(Debug)]
pub struct ForgedStack {
    /// Sidecar that trusts `forge`.
    pub sidecar: Sidecar,
    /// Server of the forge's key.
    pub auth_server: FakeAuthServer,
    /// Service without any knowledge of tokens.
    pub service: EchoService,
    /// Holder of the trusted key.
    pub forge: Forge,
}

impl ForgedStack {
    /// Starts a stack with ECDSA keys, which are quick to generate.
    pub fn start() -> Self {
        Self::with(|plan| plan)
    }

    /// Starts a stack with ECDSA keys and these flags of the sidecar.
    pub fn with_flags<F: AsRef<str>>(flags: impl IntoIterator<Item = F>) -> Self {
        Self::with(|plan| plan.flags(flags))
    }

    /// Starts a stack with ECDSA keys whose sidecar has another service and these flags.
    pub fn before(upstream: &str, flags: &[&str]) -> Self {
        Self::with(|plan| plan.upstream(upstream).flags(flags))
    }

    /// Starts a stack with ECDSA keys whose sidecar has this configuration file.
    pub fn configured(config: &str) -> Self {
        Self::with(|plan| plan.config(config))
    }

    /// Starts a stack with the public path `/public/**` and these flags of the sidecar.
    pub fn with_public<F: AsRef<str>>(flags: impl IntoIterator<Item = F>) -> Self {
        Self::with(|plan| plan.public_paths(["/public/**"]).flags(flags))
    }

    /// Starts a stack with ECDSA keys and a sidecar that `prepare` changes.
    pub fn with(prepare: impl FnOnce(SidecarPlan) -> SidecarPlan) -> Self {
        Self::of(SigningType::Ecdsa, prepare)
    }

    /// Starts a stack with keys of this type and a sidecar that `prepare` changes.
    pub fn of(signing_type: SigningType, prepare: impl FnOnce(SidecarPlan) -> SidecarPlan) -> Self {
        let forge = Forge::new(signing_type);
        let service = EchoService::start();
        let auth_server = FakeAuthServer::serving(&forge.trusted().served());
        let plan = SidecarPlan::new(&service, &auth_server.url());
        let sidecar = prepare(plan.flags(signing_flags(signing_type))).with_all_keys();
        Self {
            sidecar,
            auth_server,
            service,
            forge,
        }
    }

    /// Returns a further sidecar in front of `upstream` that trusts the forge's ECDSA key.
    pub fn plan(&self, upstream: &str) -> SidecarPlan {
        SidecarPlan::to(upstream, &self.auth_server.url()).flags(ECDSA)
    }

    /// Starts a further sidecar in front of `upstream` with these flags.
    pub fn in_front_of(&self, upstream: &str, flags: &[&str]) -> Sidecar {
        self.plan(upstream).flags(flags).ready()
    }

    /// Returns the head of a request with a valid token, and these header lines with their ends.
    pub fn head(&self, method: &str, target: &str, lines: &str) -> Vec<u8> {
        head_with_token(method, target, &self.token(), lines)
    }

    /// Returns a valid token of a user who does not fit into the user header.
    pub fn token_of_long_name(&self) -> String {
        let claims = json!({"nickName": "é".repeat(1_100)});
        self.forge.token(clock::now(), &claims)
    }

    /// Returns a valid token.
    pub fn token(&self) -> String {
        self.forge.token(clock::now(), &Value::Null)
    }
}

/// Returns the sidecar's flags for a signing type.
pub const fn signing_flags(signing_type: SigningType) -> &'static [&'static str] {
    match signing_type {
        SigningType::Rsa => &["--signing-type", "rsa"],
        SigningType::Ecdsa => &ECDSA,
        SigningType::Hmac => &["--signing-type", "hmac", "--trust-shared-secret"],
    }
}
