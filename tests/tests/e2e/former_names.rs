//! Former names of settings: as flag, variable and key of the file they do what the present ones do,
//! and are reported.

use std::collections::BTreeSet;
use std::fs;

use tests::auth_server::AuthServerPlan;
use tests::keys::SigningType;
use tests::process::{CommandLine, Finished, Process};
use tests::programs::{Program, repository};
use tests::stack::ForgedStack;
use tests::wait;
use toml::{Table, Value};

use super::command_line::SIDECAR;

/// The end of each report.
const REPORT: &str = "now; the next release knows only that";

/// Returns the present and the former names of settings, as the flags are declared with clap.
fn renamed(program: Program) -> BTreeSet<(String, String)> {
    let sources = repository().join(program.name()).join("src/cli");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(sources).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        for declaration in text.split("#[arg(").skip(1) {
            let (attributes, field) = declaration.split_once("pub(crate) ").unwrap_or_default();
            let former = attributes.split("alias = \"").nth(1);
            let former = former.and_then(|former| former.split('"').next());
            let present = field.split(':').next().unwrap().replace('_', "-");
            names.extend(former.map(|former| (present, former.to_owned())));
        }
    }
    names
}

/// Runs `check --strict` with whatever the settings require.
fn check(program: Program, prepare: impl FnOnce(CommandLine) -> CommandLine) -> Finished {
    let command = CommandLine::new(program.path()).arguments(["check", "--strict"]);
    let command = match program {
        Program::Sidecar => command
            .arguments(&SIDECAR[1..])
            .arguments(["--pod-ip", "127.0.0.1"]),
        Program::AuthServer => command,
    };
    prepare(command).run()
}

fn printed(end: &Finished) -> Table {
    let settings = end.stdout.parse();
    settings.unwrap_or_else(|error| panic!("{error}: {}{}", end.stdout, end.stderr))
}

/// Returns another value than the default.
fn changed(default: Option<&Value>) -> Value {
    match default {
        Some(Value::Boolean(on)) => (!on).into(),
        Some(Value::Array(_)) => vec!["/former/**"].into(),
        Some(Value::String(_)) => "7s".into(),
        _ => 7.into(),
    }
}

/// Returns the text of a value on the command line and in a variable.
fn text(value: &Value) -> String {
    match value {
        Value::Array(items) => items.iter().map(text).collect(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[test]
fn a_former_name_counts_as_flag_variable_and_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("former.toml");
    for program in Program::ALL {
        let defaults = printed(&check(program, |command| command));
        let value = |present: &String| changed(defaults.get(present));
        let names = renamed(program);
        let by_flag = |command: CommandLine, name: &String, value: &Value| {
            command.arguments([format!("--{name}={}", text(value))])
        };
        let expected = check(program, |command| {
            let names = names.iter();
            names.fold(command, |command, (present, _)| {
                by_flag(command, present, &value(present))
            })
        });
        let mut former = Table::new();
        for (present, name) in &names {
            assert_eq!(printed(&expected)[present], value(present), "{present}");
            former.insert(name.clone(), value(present));
        }
        fs::write(&file, former.to_string()).unwrap();
        for (source, end) in [
            (
                "flag",
                check(program, |command| {
                    let settings = former.iter();
                    settings.fold(command, |command, (name, value)| {
                        by_flag(command, name, value)
                    })
                }),
            ),
            (
                "variable",
                check(program, |command| {
                    let settings = former.iter();
                    settings.fold(command, |command, (name, value)| {
                        let name = name.to_uppercase().replace('-', "_");
                        command.environment(&format!("POSTERN_{name}"), text(value))
                    })
                }),
            ),
            (
                "key",
                check(program, |command| {
                    command.arguments(["--config".as_ref(), file.as_os_str()])
                }),
            ),
        ] {
            assert_eq!(printed(&end), printed(&expected), "{source}");
            assert_eq!(end.code, expected.code, "{source}: {}", end.stderr);
            let reports = end.stdout.lines().filter(|line| line.ends_with(REPORT));
            assert_eq!(reports.count(), names.len(), "{source}: {}", end.stdout);
        }
    }
}

#[test]
fn the_variable_of_the_present_name_counts_beside_the_former() {
    let end = check(Program::Sidecar, |command| {
        command
            .environment("POSTERN_PASS", "/former/**")
            .environment("POSTERN_PUBLIC_PATH", "/present/**")
    });
    assert_eq!(printed(&end)["public-path"], vec!["/present/**"].into());
    let report =
        "# warning: POSTERN_PASS is ignored: POSTERN_PUBLIC_PATH, its present name, is set";
    assert!(
        end.stdout.lines().any(|line| line == report),
        "{}",
        end.stdout
    );
    assert_eq!(end.code, Some(78), "{}", end.stderr);
}

/// Waits until the log has the report.
fn reported(process: &Process) {
    let report = format!("--pass is named --public-path {REPORT}");
    wait::until(&report, || process.stderr().contains(&report).then_some(()));
}

#[test]
fn servers_with_former_names_serve_and_report_them() {
    let stack = ForgedStack::with(SigningType::Ecdsa, |plan| {
        plan.flags(["--pass", "/static/**"])
    });
    let anonymous = stack.sidecar.anonymous();
    assert_eq!(anonymous.get("/static/a").status(), 200);
    assert_eq!(anonymous.get("/list").status(), 401);
    reported(stack.sidecar.process());

    let stack = ForgedStack::with(SigningType::Ecdsa, |plan| {
        plan.environment("POSTERN_PASS", "/static/**")
    });
    assert_eq!(stack.sidecar.anonymous().get("/static/a").status(), 200);

    let server = AuthServerPlan::new()
        .flags([
            "--pass",
            "/public/**",
            "--store-reread",
            "1",
            "--rotation-lead",
            "150",
        ])
        .start()
        .ready();
    assert_eq!(server.anonymous().get("/public/a").status(), 404);
    assert_eq!(server.anonymous().get("/list").status(), 401);
    reported(server.process());
}
