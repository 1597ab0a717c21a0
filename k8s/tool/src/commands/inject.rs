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
/// The sidecar's variables that hold no secret, one a line: a test compares them with its help.
const KNOWN: &str = include_str!("../../sidecar_variables.txt");
const STANDARD_INPUT: &str = "-";

/// Runs the command.
///
/// # Errors
/// For input that cannot be read, and for an object that cannot have a sidecar.
pub(crate) fn run(args: &InjectArgs) -> Result<(), ExitError> {
    let settings = settings(&args.sidecars)?;
    let mut documents = documents(&args.files)?;
    let mut warnings = Vec::new();
    let is_renewed = args.sidecars != SidecarsArgs::default();
    if args.remove {
        warnings = remove(&mut documents, |_| true);
    } else {
        if is_renewed {
            warnings = remove(&mut documents, |object| object.is_protected());
        }
        let injected = inject(&mut documents, &settings);
        let notes = injected.map_err(|error| ExitError::Config(error.to_string()))?;
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

/// Returns the settings of the sidecars, whose variables have to be settings of `serve`.
pub(super) fn settings(args: &SidecarsArgs) -> Result<Settings, ExitError> {
    let mut pairs = Vec::new();
    for pair in &args.set {
        let (name, value) = pair.split_once('=').ok_or_else(|| {
            ExitError::Usage(format!("--set '{pair}': expected POSTERN_NAME=VALUE"))
        })?;
        if !KNOWN.lines().any(|known| known == name) {
            let line = format!("--set: {name} is no setting of the sidecar, or a secret one");
            return Err(ExitError::Usage(line));
        }
        pairs.push((name.to_owned(), value.to_owned()));
    }
    Settings::new(args.image.clone(), &pairs, args.secret.clone())?.with_resources(&args.resources)
}

/// Reads the documents of the files, or of standard input where none is named.
pub(super) fn documents(files: &[String]) -> Result<Vec<Document>, ExitError> {
    let standard = [STANDARD_INPUT.to_owned()];
    let files = if files.is_empty() { &standard } else { files };
    let mut all = Vec::new();
    for file in files {
        let read = yaml::documents(file, &text(file)?);
        all.extend(read.map_err(|error| ExitError::Config(error.to_string()))?);
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
