//! The cost of further checks beside the token: other issuers, rules, revoked tokens.

use std::fmt::Write as _;
use std::path::Path;

use bench::keep_alive::{KeepAlive, get_with_token};
use bench::settings::Settings;
use bench::wrk::Tokens;
use tests::wait;

use crate::contestants::Running;
use crate::field::{Field, sidecar};
use crate::measurements::{PATH, good_turn, warm_up};
use crate::results::Results;
use crate::tokens::ISSUER;

const ISSUERS: usize = 16;
const RULES: usize = 100;
/// First number of the revoked tokens, which are in no file.
const REVOKED_TOKENS: usize = 20_000_000;

/// Configuration of a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Capability {
    /// The defaults.
    None,
    IssuersAndRules,
    Revocations,
}

impl Capability {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::None => "one issuer, no rule, nothing revoked",
            Self::IssuersAndRules => "16 issuers, 100 rules",
            Self::Revocations => "40 000 revoked tokens",
        }
    }
}

/// Measures a repeated token with each configuration.
pub(crate) fn measure(field: &Field, settings: &Settings, token: &str, results: &mut Results) {
    println!("capabilities");
    let home = tempfile::tempdir().expect("a temporary directory");
    let tables = home.path().join("tables.toml");
    let tables_text = tables_in(home.path(), field.issuer.jwk_set());
    std::fs::write(&tables, tables_text).expect("a writable file");
    let with_tables = ["--config".to_owned(), tables.display().to_string()];

    let count = settings.amount(40_000, 100);
    let revoked = REVOKED_TOKENS..REVOKED_TOKENS + count;
    let auth_server = field.issuer.revoking_auth_server(revoked);
    let revoking = sidecar(&field.upstream, &auth_server, &[]);
    wait_for_revocations(&revoking, &field.issuer.token(REVOKED_TOKENS));

    let sidecars = [
        (Capability::None, field.sidecar(&[])),
        (Capability::IssuersAndRules, field.sidecar(&with_tables)),
        (Capability::Revocations, revoking),
    ];
    for _ in 0..settings.rounds {
        for (capability, running) in &sidecars {
            warm_up(running.address, &get_with_token(PATH, token), settings);
            let (cpu, _) = good_turn(running, Tokens::One(token), PATH, settings);
            let (each, mib) = results.capabilities.entry(*capability).or_default();
            each.push(cpu);
            mib.push(running.resident_mib());
        }
    }
}

fn wait_for_revocations(running: &Running, revoked: &str) {
    wait::until("the revocation list", || {
        let mut connection = KeepAlive::connect(running.address).ok()?;
        let status = connection.exchange(&get_with_token(PATH, revoked)).ok()?;
        (status == 401).then_some(())
    });
}

/// Returns tables of issuers and rules; the rule for the path of the requests holds.
fn tables_in(home: &Path, jwk_set: &str) -> String {
    let jwks_file = home.join("jwks.json");
    std::fs::write(&jwks_file, jwk_set).expect("a writable file");
    let mut text = format!(
        "[[issuer]]\nname = 'own'\nissuer = '{ISSUER}'\nauth-server = true\nuser-prefix = ''\n"
    );
    for number in 1..ISSUERS {
        let _ = write!(
            text,
            "[[issuer]]\nname = 'issuer-{number}'\nissuer = 'https://issuer-{number}.example'\n\
             jwks = '{}'\naudience = ['orders']\nuser-prefix = 'issuer-{number}:'\n",
            jwks_file.display()
        );
    }
    text += "[[rule]]\nname = 'own'\npaths = ['/orders/**']\nclaims = { username = ['alice'] }\n";
    for number in 1..RULES {
        let _ = write!(
            text,
            "[[rule]]\nname = 'rule-{number}'\npaths = ['/area-{number}/**']\nscope = ['read']\n"
        );
    }
    text
}
