//! The configuration reference, compared with the `--help` of every command.

use std::collections::BTreeSet;
use std::fs;

use tests::programs::{Program, repository};

use super::UPDATE;

const CONFIGURATION: &str = "docs/configuration.md";

/// Every command with help of its own.
pub(super) const COMMANDS: &[(Program, &str)] = &[
    (Program::AuthServer, ""),
    (Program::AuthServer, "serve"),
    (Program::AuthServer, "dev"),
    (Program::AuthServer, "check"),
    (Program::AuthServer, "healthcheck"),
    (Program::AuthServer, "keys"),
    (Program::AuthServer, "keys show"),
    (Program::AuthServer, "keys rotate"),
    (Program::AuthServer, "keys import"),
    (Program::AuthServer, "keys revoke"),
    (Program::AuthServer, "keys reencrypt"),
    (Program::AuthServer, "keys export-public"),
    (Program::AuthServer, "revoke"),
    (Program::AuthServer, "application"),
    (Program::AuthServer, "application add"),
    (Program::AuthServer, "application ensure"),
    (Program::AuthServer, "application list"),
    (Program::AuthServer, "application grant"),
    (Program::AuthServer, "application rotate-secret"),
    (Program::AuthServer, "application remove"),
    (Program::AuthServer, "token"),
    (Program::AuthServer, "token inspect"),
    (Program::AuthServer, "store"),
    (Program::AuthServer, "store backup"),
    (Program::AuthServer, "user"),
    (Program::AuthServer, "user add"),
    (Program::AuthServer, "user list"),
    (Program::AuthServer, "user set-password"),
    (Program::AuthServer, "user set-totp"),
    (Program::AuthServer, "user disable"),
    (Program::AuthServer, "user enable"),
    (Program::AuthServer, "user remove"),
    (Program::AuthServer, "completions"),
    (Program::Sidecar, ""),
    (Program::Sidecar, "serve"),
    (Program::Sidecar, "check"),
    (Program::Sidecar, "explain"),
    (Program::Sidecar, "healthcheck"),
    (Program::Sidecar, "drain"),
    (Program::Sidecar, "wait"),
    (Program::Sidecar, "completions"),
    (Program::Kubernetes, ""),
    (Program::Kubernetes, "inject"),
    (Program::Kubernetes, "lint"),
    (Program::Kubernetes, "webhook"),
];

pub(super) fn help(program: Program, command: &str) -> String {
    let end = program
        .command()
        .arguments(command.split_whitespace())
        .arguments(["--help"])
        .environment("COLUMNS", "100")
        .run();
    assert_eq!(
        end.code,
        Some(0),
        "{} {command} --help: {}",
        program.name(),
        end.stderr
    );
    let lines: Vec<&str> = end.stdout.lines().map(str::trim_end).collect();
    lines.join("\n").trim_end().to_owned()
}

/// Returns the names of the subcommands in a help text.
fn subcommands(help: &str) -> Vec<String> {
    let list = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    let names = list.filter_map(|line| {
        line.strip_prefix("  ")
            .filter(|line| !line.starts_with(' '))
    });
    names
        .filter_map(|line| line.split(' ').next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_configuration_reference_shows_the_help_of_every_command() {
    let path = repository().join(CONFIGURATION);
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let updated = COMMANDS
        .iter()
        .fold(text.clone(), |text, (program, command)| {
            let name = format!("{} {command}", program.name())
                .trim_end()
                .to_owned();
            replace_block(&text, &name, &documented_help(*program, command))
        });
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, updated).unwrap();
    } else {
        assert_eq!(
            text, updated,
            "{CONFIGURATION} is out of date: {UPDATE}=1 makes this test rewrite it"
        );
    }
    let sections = text.matches("<!-- help: ").count();
    assert_eq!(sections, COMMANDS.len(), "commands that are gone");
}

/// Returns the help of a command as the document has it: options described under `serve` only by
/// name.
fn documented_help(program: Program, command: &str) -> String {
    let text = help(program, command);
    if program == Program::Kubernetes {
        return text;
    }
    let serve = help(program, "serve");
    let Some((head, options)) = text.split_once("\nOptions:\n") else {
        return text;
    };
    let of_serve: BTreeSet<String> = options_of(&serve).map(in_one_line).collect();
    let is_shared =
        |option: &&str| flag_of(option).is_some() && of_serve.contains(&in_one_line(option));
    let (shared, own): (Vec<&str>, Vec<&str>) = options_of(options).partition(is_shared);
    if command == "serve" || shared.len() < 2 {
        return text;
    }
    let all = options_of(&serve).filter_map(flag_of).count();
    let named = if shared.len() == all {
        "      all of them".to_owned()
    } else {
        wrapped(shared.into_iter().filter_map(flag_of))
    };
    let own = own.concat();
    let own = own.trim_end();
    let serve = format!("{} serve", program.name());
    format!("{head}\nOptions:\n{own}\n\nOptions of `{serve}`, with the same meaning:\n{named}")
}

/// Returns each option of a help text with its description, without the headings.
fn options_of(help: &str) -> impl Iterator<Item = &str> {
    let is_option = |text: &str| text.trim_start().starts_with('-');
    let begins = move |line: &str| {
        let is_heading = !line.starts_with(' ') && !line.trim().is_empty();
        is_heading || is_option(line) && !line.starts_with("       ")
    };
    let lines = help.split_inclusive('\n');
    let starts = lines.scan(0, move |at, line| {
        let start = *at;
        *at += line.len();
        Some(begins(line).then_some(start))
    });
    let starts: Vec<usize> = starts.flatten().collect();
    let ends = starts.clone().into_iter().skip(1).chain([help.len()]);
    starts
        .into_iter()
        .zip(ends)
        .map(|(start, end)| &help[start..end])
        .filter(move |text| is_option(text))
}

/// Returns the `--flag` of an option; `None` for those with a short form, `--help` and `--version`.
fn flag_of(option: &str) -> Option<&str> {
    option
        .split_whitespace()
        .next()?
        .split('[')
        .next()
        .filter(|name| name.starts_with("--"))
}

/// Joins the lines of an option, which short and long help break in different places.
fn in_one_line(option: &str) -> String {
    option.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Wraps words to lines as wide as the help's.
fn wrapped<'w>(words: impl Iterator<Item = &'w str>) -> String {
    const INDENT: &str = "     ";
    let mut lines = Vec::new();
    let mut line = INDENT.to_owned();
    for word in words {
        if line.len() + word.len() >= 100 {
            lines.push(std::mem::replace(&mut line, INDENT.to_owned()));
        }
        line += &format!(" {word}");
    }
    lines.push(line);
    lines.join("\n")
}

/// Replaces the text between `<!-- help: NAME -->` and `<!-- end -->`.
fn replace_block(text: &str, name: &str, help: &str) -> String {
    let start = format!("<!-- help: {name} -->\n");
    let (before, rest) = text
        .split_once(&start)
        .unwrap_or_else(|| panic!("{CONFIGURATION} has no block `{name}`"));
    let (_, after) = rest
        .split_once("<!-- end -->")
        .unwrap_or_else(|| panic!("the block `{name}` has no end"));
    format!("{before}{start}```text\n{help}\n```\n<!-- end -->{after}")
}

#[test]
fn no_command_is_missing_from_the_configuration_reference() {
    for &(program, command) in COMMANDS {
        for below in subcommands(&help(program, command)) {
            let full = format!("{command} {below}").trim_start().to_owned();
            let known = COMMANDS.contains(&(program, full.as_str()));
            assert!(
                known,
                "{} {full} is not in the list of documented commands",
                program.name()
            );
        }
    }
}

#[test]
fn every_flag_of_serve_has_its_environment_variable() {
    for program in Program::ALL {
        let lines = help(program, "serve");
        // Long descriptions push the variable onto the next line, or break it in two.
        let text: String = lines.split_whitespace().collect::<Vec<_>>().join(" ");
        for flag in lines
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("--"))
        {
            let name = flag.split([' ', '[']).next().unwrap_or_default();
            let variable = format!("POSTERN_{}", name.to_uppercase().replace('-', "_"));
            // The help has no `=` where the value is a secret.
            let documented = ["=", "]"]
                .iter()
                .any(|end| text.contains(&format!("[env: {variable}{end}")));
            assert!(
                documented,
                "--{name} of {} has no {variable}",
                program.name()
            );
        }
    }
}

#[test]
fn the_kubernetes_tool_knows_the_sidecar_s_variables() {
    let path = repository().join("k8s/tool/sidecar_variables.txt");
    let text = help(Program::Sidecar, "serve");
    let variables: BTreeSet<&str> = text
        .split(|letter: char| !letter.is_ascii_uppercase() && letter != '_')
        .filter(|word| word.starts_with("POSTERN_") && *word != "POSTERN_CONFIG")
        .collect();
    // A secret has a twin that names its file.
    let is_public = |name: &&str| !variables.contains(&*format!("{name}_FILE"));
    let public: Vec<&str> = variables.iter().copied().filter(is_public).collect();
    let expected = public.join("\n") + "\n";
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let listed = fs::read_to_string(&path).unwrap();
    assert_eq!(listed, expected, "{UPDATE}=1 makes this test rewrite it");
}

/// Returns each heading of a help text that groups options, with their flags.
fn groups(help: &str) -> Vec<(&str, Vec<&str>)> {
    let mut groups = Vec::new();
    for line in help.lines() {
        if let Some(heading) = line.strip_suffix(':').filter(|_| !line.starts_with(' ')) {
            groups.push((heading, Vec::new()));
        } else if let (Some(_), Some((_, flags))) =
            (line.strip_prefix("      --"), groups.last_mut())
        {
            flags.extend(flag_of(line));
        }
    }
    groups
}

#[test]
fn serve_groups_its_settings_under_headings() {
    const SHARED: [&str; 5] = ["Listening", "Tokens", "Limits", "Stop", "Logs"];
    for program in Program::ALL {
        let serve = help(program, "serve");
        let groups = groups(&serve);
        assert_eq!(groups.first(), Some(&("Options", vec!["--config"])));
        for heading in SHARED {
            let known = groups.iter().any(|(other, _)| *other == heading);
            assert!(known, "{}: {groups:?}", program.name());
        }
    }
}
