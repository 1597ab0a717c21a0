//! One route, one file. Their paths stand here, below the context path.

pub(crate) mod authorize;
pub(crate) mod backchannel_logout;
pub(crate) mod current_user;
pub(crate) mod dev;
pub(crate) mod jwks;
pub(crate) mod login;
pub(crate) mod revocations;
pub(crate) mod revoke;
pub(crate) mod server_metadata;
pub(crate) mod static_files;
pub(crate) mod token;
pub(crate) mod verification_key;

pub(crate) const LOGIN_PATH: &str = "/oauth/jwt/token";
pub(crate) const AUTHORIZE_PATH: &str = "/oauth/authorize";
pub(crate) const TOKEN_PATH: &str = "/oauth/token";
pub(crate) const REVOKE_PATH: &str = "/oauth/revoke";
pub(crate) const BACKCHANNEL_LOGOUT_PATH: &str = "/oidc/backchannel-logout";
pub(crate) const VERIFICATION_KEY_PATH: &str = "/client/user/secret/key";
pub(crate) const JWKS_PATH: &str = "/.well-known/jwks.json";
pub(crate) const REVOCATIONS_PATH: &str = "/.well-known/revocations";
pub(crate) const DEV_PAGE_PATH: &str = "/dev/";
pub(crate) const DEV_TOKEN_PATH: &str = "/dev/token";
