//! `postern-k8s inject`: manifests in, manifests with sidecars out.

use std::io::Read;
use std::path::Path;

use runtime::command_line;
use runtime::files::bounded_read;
use runtime::process::exit::ExitError;
use runtime::process::output;

use crate::cli::{InjectArgs, Only, SidecarsArgs};
use crate::inject::{inject, remove};
use crate::object::Object;
use crate::settings::Settings;
use crate::yaml::{self, Document};

/// Far more than a cluster's manifests.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
const STANDARD_INPUT: &str = "-";

/// Runs the command.
///
/// # Errors
/// For input that cannot be read, and for an object that cannot have a sidecar.
pub(crate) fn run(args: &InjectArgs) -> Result<(), ExitError> {
    let settings = Settings::new(&args.sidecars)?;
    let mut documents = documents(&args.files)?;
    let mut warnings = Vec::new();
    let is_renewed = args.sidecars != SidecarsArgs::default();
    if args.remove {
        warnings = remove(&mut documents, |_| true);
    } else {
        if is_renewed {
            warnings = remove(&mut documents, |object| object.is_protected());
        }
        let notes = inject(&mut documents, &settings)?;
        warnings.extend(notes.warnings);
        if args.only != Some(Only::Services) {
            warnings.extend(notes.missing);
        }
        if args.only.is_none() {
            warnings.extend(notes.early);
        }
    }
    documents.retain(|each| {
        let is_service = Object::new(&each.value).kind() == "Service";
        args.only
            .is_none_or(|only| (only == Only::Services) == is_service)
    });
    command_line::warn(&warnings);
    output::print(&yaml::stream(documents.iter().map(|each| &each.value)))
}

/// Reads the documents of the files, or of standard input where none is named.
pub(super) fn documents(files: &[String]) -> Result<Vec<Document>, ExitError> {
    let standard = [STANDARD_INPUT.to_owned()];
    let files = if files.is_empty() { &standard } else { files };
    let mut all = Vec::new();
    for file in files {
        all.extend(yaml::documents(file, &text(file)?)?);
    }
    Ok(all)
}

fn text(file: &str) -> Result<String, ExitError> {
    let unreadable = |problem: String| ExitError::Config(format!("-f {file}: {problem}"));
    let bytes = if file == STANDARD_INPUT {
        let mut bytes = Vec::new();
        let read = std::io::stdin().take(MAX_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|error| unreadable(error.to_string()))?;
        bytes
    } else {
        let read = bounded_read::read(Path::new(file), MAX_BYTES);
        let mut read = read.map_err(|error| unreadable(error.to_string()))?;
        std::mem::take(&mut *read.bytes)
    };
    if bytes.len() as u64 > MAX_BYTES {
        return Err(unreadable(format!("has more than {MAX_BYTES} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| unreadable("is not UTF-8".to_owned()))?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned())
}
