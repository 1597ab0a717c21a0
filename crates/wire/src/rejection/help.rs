//! Cause of each reason code, and what to do: the one source of `docs/reasons.md` and of
//! `explain`.

use super::Rejection;

/// Help for clients and operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Help {
    /// The cause, in plain words.
    pub cause: &'static str,
    /// The steps to take.
    pub action: &'static str,
}

impl Rejection {
    /// Returns cause and action. Text between backticks is code.
    #[expect(clippy::too_many_lines, reason = "a table, one row for each rejection")]
    pub const fn help(self) -> Help {
        let (cause, action) = match self {
            Self::PathNotCanonical => (
                "The path holds what two programs may read differently: a dot segment (`/../`, `%2e%2e`), a backslash, a control byte, a broken escape (`%zz`), a double escape (`%252f`), or a fragment.",
                "Send the path in its plain form, `/static/a.css`. If a client library or a proxy in front rewrites paths, `sidecar explain` shows what arrives. There is no setting that lets such a path through.",
            ),
            Self::PathTooLong => (
                "The path, without the query, is longer than 8 KiB.",
                "Put long values into the query or the body.",
            ),
            Self::RequestDestination => (
                "The `Destination` of a COPY or MOVE, or of a request whose method is not certain, names another host than the request, stands twice, or has no path that a request could have.",
                "Send a path, or a URL with the host that `Host` has. If a gateway in front rewrites `Host`, let it keep it.",
            ),
            Self::RequestFraming => (
                "It is unclear where the message ends: `Content-Length` with `Transfer-Encoding`, a repeated or listed length, another transfer coding than `chunked`, bare line feeds, control characters in the size line of a chunk, or such a line without a size. Or `Connection` names what no hop may remove (`Content-Length`, `Transfer-Encoding`, `Host`, `X-Forwarded-For`, `-Host`, `-Proto`, or what the decision reads beside a token, as `Origin`), what is no field name, or more than nine fields.",
                "Fix the client or the proxy that builds the message: one `Content-Length`, or `Transfer-Encoding: chunked`, never both. `Connection` is for fields of one hop, such as `Keep-Alive`. An unexpected wave of these is an attempt of request smuggling.",
            ),
            Self::RequestMalformed => (
                "What arrived is no HTTP/1.1 request: a broken request line or header field, a blank in the target that is not escaped, TLS or HTTP/2 on a plain HTTP/1.1 port, two `Host` fields, a `Host` that is no host and port, or another one than `:authority` names, or over HTTP/2 a blank at an end of a value.",
                "Look at what is sent (`curl -v`). `https://` sent to a plain port, or an HTTP/2-only client, is the usual reason. A client that names two hosts, or a proxy that rewrites one of them, has to settle for one.",
            ),
            Self::HostMissing => (
                "A request came without a `Host` field, or with an empty one, which RFC 9112 §3.2 leaves to targets without a host. HTTP/1.0 may leave the field out; the service then gets `Host: localhost`.",
                "Let the client send `Host`, as every HTTP library does. Hand-written health checks often leave it out: point them to `/livez` and `/readyz` of the admin port.",
            ),
            Self::MethodNotAllowed => (
                "The path does not take this method: the current user is for GET and HEAD, a login for POST; TRACE and CONNECT are allowed nowhere.",
                "Use a method that the `Allow` field of the response names.",
            ),
            Self::UpgradeNotAllowed => (
                "An upgrade was requested where no user is known: a WebSocket without a token on a path that needs none, or over a connection to the service that cannot carry one.",
                "Open the WebSocket with an access token, on a path that is not on the pass list.",
            ),
            Self::RequestHeaderTooLarge => (
                "The header block or the request target is longer than this program reads (sidecar 64 KiB, auth server 16 KiB).",
                "Look for what grows: cookies mostly, then a query that belongs into a body.",
            ),
            Self::RequestTimeout => (
                "The header or the body did not arrive in time.",
                "A slow or broken client or network; a client that opens a connection and sends nothing for long. Raise `--request-header-timeout` or `--request-body-timeout` (sidecar) or `--request-timeout` (auth server) only if honest clients are that slow.",
            ),
            Self::CrossSite => (
                "A browser sent the cookie that holds the token (`--token-cookie`), or for which a proxy in front adds it (`token-header`), with a request that may change something, and the page that made it do so belongs to another site.",
                "Nothing, if it was an attack. A page of your own on another origin: name it with `--cookie-origin`, or send the token in the Authorization header. If your own pages are rejected over plain http, a gateway in front rewrites `Host`, which `Origin` is compared with: let it keep `Host`, or name the pages' origin with `--cookie-origin`.",
            ),
            Self::TokenMissing => (
                "The path needs an access token and the request has none.",
                "Log in (`POST /auth/oauth/jwt/token`) and send `Authorization: Bearer <token>`. If the path is meant to be open, add a pattern to `--public-path`, relative to the context path; `sidecar explain` shows which pattern matches. A browser can send the token of a WebSocket only in `Sec-WebSocket-Protocol: bearer, TOKEN`: `--websocket-token`. A proxy in front may also have dropped the field.",
            ),
            Self::AuthorizationRepeated => (
                "The request has more than one `Authorization` field, more than one of the headers that tables name as `token-header`, two values for the cookie of `--token-cookie`, or `bearer` twice among its WebSocket protocols.",
                "Send one. Often a client library adds its own to the one that was set by hand, or a proxy in front does. Of two cookies with one name, the old one has another `Path` or `Domain`: delete it with just these.",
            ),
            Self::AuthorizationTooLarge => (
                "The `Authorization` field, or the token in another place, is longer than 16 KiB (at the auth server 8 KiB).",
                "Put less into the token.",
            ),
            Self::AuthorizationScheme => (
                "The `Authorization` field has another scheme than `Bearer`. At the auth server any path that it does not serve requires it, such as `/oauth/token/`.",
                "Send `Authorization: Bearer <token>`: the word, a space, the token.",
            ),
            Self::TokenMalformed => (
                "What follows `Bearer`, or stands in another place of a token, is no compact JWS: not three base64url parts without padding and with dots between them, JSON that cannot be read or that has a member twice, quotes or spaces around the token.",
                "Compare what is sent with what the login returned: a token cut off by a copy, a variable that was empty, quotes around it. `auth-server token inspect` reads one from standard input.",
            ),
            Self::TokenAlgorithm => (
                "The token was signed with another kind of key than this program trusts (`alg`).",
                "Auth server and sidecar need the same `--signing-type`; a key of another issuer is used with the `alg` that it states, else RS256, ES256, ES384 or EdDSA by its type; `algorithms` of a table may allow fewer. A token with `alg: none`, or with HMAC where RSA is expected, is a forgery.",
            ),
            Self::TokenHeader => (
                "The token's header has a member that is always rejected (`crit`, `b64: false`, `zip`, `enc`), a `typ` other than `JWT` or `at+jwt`, or an unusable `kid`.",
                "Use an access token: not an ID token, and not an encrypted one. `sidecar explain` names the member.",
            ),
            Self::TokenKeyUnknown => (
                "The token names a key (`kid`) that is not, or no longer, among the verification keys.",
                "Log in again: the key was revoked, or its retirement is over. If new tokens fail too, this program does not see the issuer's keys: compare `auth-server keys show` with the key names on the status page, and check that `--auth-server` leads to the server that issues the tokens.",
            ),
            Self::TokenSignature => (
                "The signature does not fit the token and the key: the token was changed, or signed by another key.",
                "Log in again, at the auth server that this program gets its key from. Two environments mixed up (a token of staging in production) look like this, and so does a forgery.",
            ),
            Self::TokenExpired => (
                "The token's time (`exp`, plus the leeway of 30 s by default) is over.",
                "Log in again. If fresh tokens fail, compare the clocks of both machines (`date -u`): with `--at` `sidecar explain` shows when the token would be valid. The lifetime is `--token-lifetime` of the auth server.",
            ),
            Self::TokenNotYetValid => (
                "The token is not valid yet (`nbf`, less the leeway): the clock here is behind the issuer's.",
                "Synchronise the clocks (NTP); compare `date -u` on both machines. `--leeway` bridges up to 300 seconds.",
            ),
            Self::TokenClaimMissing => (
                "The token lacks a claim that is required: `exp`; `username` or `userId` of the auth server's, and of another issuer's what `id` and `account` come from (`sub`).",
                "`sidecar explain` names the claim. `claim` takes another one (`id=…`, several in order); for tokens without `exp` there is `--allow-no-exp`.",
            ),
            Self::TokenClaimInvalid => (
                "A claim has the wrong type or an impossible value: a date that is no number, an empty `username` or `userId`, an `extraInfo` that is no map of strings.",
                "`sidecar explain` names the claim and what it holds: map another with `claim`, or fix the issuer.",
            ),
            Self::TokenIssuer => (
                "The token comes from another issuer (`iss`) than `--issuer` or one of the `[[issuer]]` tables requires, or in another place than the table of its issuer names (`token-header`).",
                "Compare `iss` of the token with `--issuer`, or `issuer` of the tables, here and on the auth server (`auth` by default there). A token of another environment looks like this.",
            ),
            Self::TokenAudience => (
                "The token is meant for another audience (`aud`) than `--audience` requires; or it is an application's (`typ: at+jwt` with an `aud`), and no `--audience` is set.",
                "Ask the issuer for a token of this audience, or set `--audience` to what its tokens say. Where they have it in another claim than `aud`, `audience-claim` of the `[[issuer]]` names it.",
            ),
            Self::TokenBound => (
                "The token has a member `cnf`: its issuer bound it to a key or a certificate of the client (DPoP, mutual TLS), so that it is worth nothing to a thief. No proof of the key is checked here, so as a bearer token it would serve the thief as well.",
                "Have the issuer give the client plain bearer tokens for this service, or accept these as such with `--accept-bound-tokens on` where the proof was checked in front.",
            ),
            Self::TokenUser => (
                "The id or the account of the token's user begins with the `user-prefix` of another issuer, or with `system:` beside an issuer `kubernetes:///`: the service would take it for a user of that one.",
                "Give the issuer of the token a `user-prefix` of its own, or the other one another; a changed prefix makes new users for the service.",
            ),
            Self::TokenRevoked => (
                "The token was ended before its expiry: by its own bearer (`POST /auth/oauth/revoke`), or with `auth-server revoke`, or because its user was disabled or removed.",
                "Log in again, if the user still may. For operators: the audit line `token_revoked`, `user_revoked`, `application_revoked` or `everyone_revoked` of a server or a command.",
            ),
            Self::InsufficientScope => (
                "The token is valid, and a `[[rule]]` for this method and path requires a scope that it does not have: neither in `scope` nor in `scp`. `WWW-Authenticate` names the scopes of the rule; one of them is enough.",
                "Get a token with the scope from the issuer. If the token should be enough, `sidecar explain` lists the rules of the request with what each requires and what it found; a path that programs may read differently has to satisfy every rule.",
            ),
            Self::ClaimNotAllowed => (
                "The token is valid, and a `[[rule]]` for this method and path requires another value of a claim: a role, a group, a tenant, or, as `iss`, the issuer that the rule names.",
                "Give the user the role, then log in again: a token keeps the claims of its time. `sidecar explain` lists the rules of the request with what each requires and what it found. A nested claim is named by a JSON Pointer, `/realm_access/roles`.",
            ),
            Self::NoRule => (
                "With `default-rule = \"deny\"` a request with a token needs a `[[rule]]` for its method and path, and there is none.",
                "Add a rule for it; one without `scope` and `claims` lets every valid token through.",
            ),
            Self::AuthKeysUnavailable => (
                "No verification key has been fetched since the start, so no token can be verified; or the key that this token names is not fetched yet, because its issuer is away or many tokens named unknown keys within seconds. Pass-listed paths are served.",
                "Look at `/readyz` of the admin port and at the log line `verification key not fetched`: it names the cause (address, TLS, application id and secret, signing type). The line and `Retry-After` say when the next try is.",
            ),
            Self::AuthKeysStale => (
                "The verification keys were last fetched longer ago than `--max-key-age` allows.",
                "Bring the auth server back, or the way to it; the log line `verification key not fetched` names the cause.",
            ),
            Self::RevocationsStale => (
                "With `--revocations required` no token counts unless the revocation list was fetched within `--max-revocation-age`.",
                "Bring the auth server back, or the way to it; the log line `revocation list not fetched` names the cause. A list with a number below the known one comes from a restored store: `auth-server revoke --jti none` gives it a later number. An auth server that publishes no list is too old, or another implementation: use `--revocations on`.",
            ),
            Self::IdentityTooLarge => (
                "The user of the token does not fit into the user header (6 KiB, together with those of `--claim-header`).",
                "Shorten what makes it large: an avatar that is a data URL, mostly.",
            ),
            Self::UpstreamUnavailable => (
                "The service behind the sidecar cannot be reached, or broke off before its response.",
                "Is the service running, and listening where `--upstream` points to (127.0.0.1 and the port)? The log line's `cause` says what failed.",
            ),
            Self::UpstreamMalformed => (
                "The service's response is not valid HTTP, is too large, or opens a tunnel without a request.",
                "The log line's `cause` names the field and the rule. Where it names the status line, something else than the service may listen on that port, or it speaks TLS (`--upstream https://…`) or HTTP/2 alone, as gRPC does (`--upstream h2c://…`): `sidecar check --online` tells.",
            ),
            Self::UpstreamTimeout => (
                "The service accepted the request and did not respond in time.",
                "Find out what the service is busy with. `--upstream-connect-timeout` and `--upstream-read-timeout` are the limits; responses that are slow on purpose (long polling) need a higher one.",
            ),
            Self::LoginIncomplete => (
                "The login has no body, or username or password is empty.",
                "Send `{\"username\": \"…\", \"password\": \"…\"}` with `Content-Type: application/json`.",
            ),
            Self::BodyMalformed => (
                "The body is not the JSON object that this endpoint takes: broken JSON, a member twice, a value of another type.",
                "Send the object as docs/api.md describes it.",
            ),
            Self::BodyTooLarge => (
                "The body is larger than this endpoint reads.",
                "Send the few members that it takes.",
            ),
            Self::MediaTypeUnsupported => (
                "The body has another media type than `application/json`.",
                "Send `Content-Type: application/json`. A form is not accepted.",
            ),
            Self::BodyEncoding => (
                "The body is compressed (`Content-Encoding`).",
                "Send the body without a `Content-Encoding`.",
            ),
            Self::FormMalformed => (
                "The body is not `application/x-www-form-urlencoded`: another media type, a broken escape, a control character, a parameter that stands there twice, or more than 32 of them.",
                "Send each parameter once, encoded as a form, with `Content-Type: application/x-www-form-urlencoded`, as OAuth libraries do.",
            ),
            Self::ParameterMissing => (
                "`appId` or `appSecret` of a key retrieval, `grant_type` or `refresh_token` of a token request, or the `token` to revoke, is missing, empty, given twice or unreadable.",
                "Send `appId` and `appSecret`, once, in the query or as `X-App-Id` and `X-App-Secret`; in the form, `grant_type=client_credentials` for a token and `token` for a revocation.",
            ),
            Self::ApplicationUnknown => (
                "The application is not registered with the auth server, or its secret is wrong; the response is the same for both.",
                "Compare `auth-server application list` with `--app-id`. For a fresh secret: `auth-server application rotate-secret`, then give it to the sidecar.",
            ),
            Self::CredentialsAmbiguous => (
                "A token request has `client_secret` in the form beside `Authorization: Basic`, or two different ids.",
                "Choose one of the two ways; OAuth libraries call them `client_secret_basic` and `client_secret_post`.",
            ),
            Self::GrantUnsupported => (
                "The token endpoint issues tokens to applications (`client_credentials`) and, with `--refresh-tokens on`, for refresh tokens (`refresh_token`); it knows no other grant type.",
                "Users log in with `POST /auth/oauth/jwt/token`. The `grant_types_supported` of the discovery document lists what is supported.",
            ),
            Self::GrantNotAllowed => (
                "The application may fetch keys, and was given no audience to obtain tokens for; or a user has its id as account or id.",
                "`auth-server application grant --app-id ID --audience NAME` gives it one; `application list` shows what it has. Where a user has the same name, register the application under another id.",
            ),
            Self::GrantInvalid => (
                "The refresh token is unknown or expired, was used before (which ends its session), or its user logged out, was disabled or revoked, or has another password.",
                "Log in again. If it happens often, two parts of the client use the same token: each response brings a new one, which takes the place of the former. The audit line `session_ended` has the `cause`.",
            ),
            Self::ScopeNotGranted => (
                "The `scope` of the token request is not part of what the application or the user was given, or is no list of scopes with spaces between them.",
                "Leave `scope` out for all that was given, which `auth-server application list` shows, or widen that with `application grant --scope`; for a user, with `scope` in the users file.",
            ),
            Self::LoginFailed => (
                "The account is unknown or disabled, or the password is wrong; the response is the same for all.",
                "Try again with the right password. For operators: `auth-server user list` shows the accounts; the audit line `login_failed` names the account, or says that there is none.",
            ),
            Self::TooManyAttempts => (
                "Too many failed attempts at this account from this address or its network, or with this application, or too many logins from this address.",
                "Wait as long as `Retry-After` says. Behind a gateway that `--trusted-proxy` does not name, all clients have its address and wait for the failures of all. `--login-rate-limit` matters where many people share one address.",
            ),
            Self::ServerBusy => (
                "Auth server: too many logins wait for their password check, or requests that arrive in pieces fill the memory reserved for them. Sidecar: as many requests as `--max-requests` allows are on their way to the service already.",
                "Try again after `Retry-After`. If it lasts, a client tries passwords in bulk, or the service responds too slowly; the program needs more cores or a replica.",
            ),
            Self::NotFound => (
                "Nothing is served under this path.",
                "Check the path, the context path in front of it (`/auth`) and the trailing slash.",
            ),
            Self::UsersStale => (
                "The users file is mounted alone and was replaced on the host, so this server cannot read who may log in now; or another server has read a newer file, which lacks the user or has another password.",
                "Mount the directory of the file and restart. Issued tokens go on; `/readyz` of the admin port names the file. During a roll-out, send the same request again.",
            ),
            Self::StoreUnavailable => (
                "The auth server has not reached its key store yet, so it has no key to sign with.",
                "Bring the store back (`--store`); `/readyz` of the admin port and the log name the cause. The server goes on trying by itself.",
            ),
            Self::StoreOutcomeUnknown => (
                "The store did not say whether it made the change of this request: a connection broke, or it was too slow.",
                "Send the same request again after `Retry-After`; where the change was made, the response is the same. Where it lasts, the log and `/readyz` name the cause. After a login with a verification code use the next code.",
            ),
            Self::Internal => (
                "This program failed in a way that it should not.",
                "The log holds the cause, at the time of the response. Please report it.",
            ),
        };
        Help { cause, action }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_cause_and_action_in_whole_sentences() {
        for rejection in Rejection::ALL {
            let Help { cause, action } = rejection.help();
            for text in [cause, action] {
                assert!(
                    text.ends_with('.') && text.len() > 20,
                    "{rejection}: {text}"
                );
                assert_eq!(text.matches('`').count() % 2, 0, "{rejection}: {text}");
                assert!(!text.contains('\n'), "{rejection}: {text}");
            }
        }
    }
}
