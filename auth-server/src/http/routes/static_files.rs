//! `GET {ctx}/static/**` and `{ctx}/assets/**` (contract §4.4), from `static` and `assets` below
//! `--static-dir`: no listings, no hidden files, nothing outside of the two.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use postern_contract::rejection::Rejection;
use postern_http::path::canonical::RequestPath;
use tower::ServiceExt;
use tower_http::services::ServeFile;
use tracing::debug;

use crate::config::TREES;
use crate::http::app::App;
use crate::http::response::ErrorResponse;

const INDEX: &str = "index.html";

/// Finds the file for a path below the context.
async fn find(root: &Path, below_context: &str) -> Option<PathBuf> {
    let relative = below_context.strip_prefix('/')?;
    if relative.split('/').any(|segment| segment.starts_with('.')) {
        return None;
    }
    let name = relative.split('/').next()?;
    if !TREES.contains(&name) {
        return None;
    }
    // A tree may itself be a symbolic link, by which an operator names the current release.
    let tree = tokio::fs::canonicalize(root.join(name)).await.ok()?;
    let mut path = root.join(relative);
    if relative.ends_with('/') {
        path.push(INDEX);
    }
    // The path is resolved first, and then compared: a link inside the tree may lead outside.
    let file = tokio::fs::canonicalize(path).await.ok()?;
    let is_file = tokio::fs::metadata(&file).await.ok()?.is_file();
    (is_file && file.starts_with(tree)).then_some(file)
}

pub(crate) async fn static_file(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ErrorResponse> {
    let requested = request.uri().path();
    let Ok(path) = RequestPath::parse(requested.as_bytes()) else {
        return Err(Rejection::NotFound.into());
    };
    let canonical = path.canonical().ok_or(Rejection::NotFound)?;
    let below_context = canonical
        .strip_prefix(app.config.context_path.as_str())
        .ok_or(Rejection::NotFound)?;
    let name = below_context.strip_prefix('/').unwrap_or_default();
    if TREES.contains(&name) {
        // Relative links of an index page need the slash.
        return Ok(Redirect::permanent(&format!("{requested}/")).into_response());
    }
    let root = app.config.static_root.as_ref().ok_or(Rejection::NotFound)?;
    let file = find(root, below_context).await.ok_or(Rejection::NotFound)?;
    send(&file, request).await
}

/// Serves a file with media type, ranges and conditional requests.
async fn send(file: &Path, request: Request) -> Result<Response, ErrorResponse> {
    let Ok(response) = ServeFile::new(file).oneshot(request).await;
    let status = response.status();
    if status == StatusCode::NOT_FOUND || status.is_server_error() {
        debug!(file = %file.display(), %status, "a static file cannot be sent");
        return Err(Rejection::NotFound.into());
    }
    Ok(response.map(Body::new))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// `static/{a.css, ä b.txt, sub/index.html, .hidden, escape -> ../secret}`, `secret`
    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        fs::create_dir_all(at("static/sub")).unwrap();
        for file in [
            "static/a.css",
            "static/ä b.txt",
            "static/sub/index.html",
            "static/.hidden",
            "secret",
        ] {
            fs::write(at(file), "x").unwrap();
        }
        symlink(at("secret"), at("static/escape")).unwrap();
        symlink(at("static/a.css"), at("static/inside.css")).unwrap();
        directory
    }

    #[tokio::test]
    async fn a_tree_that_is_a_link_is_served_wherever_it_leads() {
        let releases = directory();
        let one = releases.path().join("static");
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("static");
        symlink(&one, &link).unwrap();
        let root = directory.path().canonicalize().unwrap();
        for (path, found) in [
            ("/static/a.css", true),
            ("/static/inside.css", true),
            ("/static/sub/", true),
            ("/static/escape", false),
            ("/static/.hidden", false),
        ] {
            assert_eq!(find(&root, path).await.is_some(), found, "{path}");
        }
        fs::remove_file(&link).unwrap();
        symlink(one.join("sub"), &link).unwrap();
        assert!(find(&root, "/static/index.html").await.is_some());
        assert!(find(&root, "/static/a.css").await.is_none());
    }
}
