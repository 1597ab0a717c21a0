//! What requests are held to, as a whole that can be exchanged while the program runs.
//!
//! A request takes the rules of the moment when it begins and keeps them to its end.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::auth::authorize::AuthPolicy;
use crate::config::effective::EffectiveConfig;
use crate::upstream::request::UpstreamRequestPolicy;

/// What the configuration says about requests.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) auth_policy: AuthPolicy,
    pub(crate) upstream_request: UpstreamRequestPolicy,
    /// The same for the status page.
    pub(crate) protected: EffectiveConfig,
}

/// The rules of the moment, shared by all requests without a lock.
#[derive(Debug)]
pub(crate) struct CurrentRules(ArcSwap<Rules>);

impl CurrentRules {
    pub(crate) fn new(rules: Rules) -> Self {
        Self(ArcSwap::from_pointee(rules))
    }

    /// The rules from now on; those that they replace stay with who has taken them.
    pub(crate) fn load(&self) -> Arc<Rules> {
        self.0.load_full()
    }

    /// New requests are held to `rules`. Only the reload calls it.
    pub(crate) fn replace(&self, mut rules: Rules) {
        rules
            .auth_policy
            .next_generation(&self.0.load().auth_policy);
        self.0.store(Arc::new(rules));
    }
}
