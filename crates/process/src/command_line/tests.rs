//! The ranking of the sources and the one line for each thing that is wrong.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::iter;

use super::given::given_by;
use super::sources::Sources;
use super::*;

/// cargo sets `CARGO_PKG_NAME` to `postern-process` for every test: the one variable a test can rely on
/// without changing the environment of its neighbours.
#[derive(Debug, Parser, PartialEq)]
#[command(name = "prog")]
enum Program {
    Serve(Serve),
    Keys {
        #[command(subcommand)]
        action: Keys,
    },
}

#[derive(Debug, clap::Args, PartialEq)]
struct Serve {
    #[arg(long, env = "POSTERN_UNSET_NAME", default_value = "default")]
    name: String,
    #[arg(long, env = "CARGO_PKG_NAME", default_value = "default")]
    from_env: String,
    #[arg(
        long,
        env = "POSTERN_UNSET_UPSTREAM",
        required_unless_present = "no_upstream"
    )]
    /// The service
    upstream: Option<String>,
    /// No service
    #[arg(long, env = "POSTERN_UNSET_NO_UPSTREAM", conflicts_with = "upstream")]
    no_upstream: bool,
    #[arg(long, env = "POSTERN_UNSET_SHOUT")]
    shout: bool,
    #[arg(long, env = "POSTERN_UNSET_WHISPER", default_value_t = true, action = clap::ArgAction::Set)]
    whisper: bool,
    #[arg(long, env = "POSTERN_UNSET_HUM", default_value_t = false, action = clap::ArgAction::Set)]
    hum: bool,
    #[arg(long, env = "POSTERN_UNSET_LIFETIME", default_value_t = 18_000)]
    lifetime: u32,
    #[arg(long, env = "POSTERN_UNSET_PASS")]
    pass: Vec<String>,
    #[arg(long, env = "POSTERN_UNSET_SECRET", hide_env_values = true, value_parser = eight_letters)]
    secret: Option<String>,
    #[arg(long, env = "POSTERN_UNSET_SECRET_FILE")]
    secret_file: Option<PathBuf>,
    #[arg(long)]
    not_a_setting: bool,
    #[arg(skip)]
    only: FileOnly,
}

#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
#[serde(default)]
struct FileOnly {
    rule: Vec<Row>,
    /// Tables, or the value of a flag.
    name: Option<toml::Value>,
}

#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    paths: Vec<String>,
    #[serde(default)]
    claims: std::collections::BTreeMap<String, Vec<u32>>,
}

impl WithFile for Program {
    const KEYS: &'static [&'static str] = &["rule", "name"];

    fn take(&mut self, file: &ConfigFile) -> Result<(), ExitError> {
        if let Self::Serve(serve) = self {
            serve.only = file.read_only()?;
        }
        Ok(())
    }
}

#[derive(Debug, clap::Subcommand, PartialEq)]
enum Keys {
    Revoke {
        #[arg(long, env = "POSTERN_UNSET_STORE")]
        store: String,
        kid: String,
    },
}

fn eight_letters(value: &str) -> Result<String, String> {
    if value.len() == 8 {
        Ok(value.to_owned())
    } else {
        Err("not eight letters".to_owned())
    }
}

fn run(arguments: &[&str], file: &str) -> Result<Program, ParseOutcome> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("prog.toml");
    std::fs::write(&path, file).unwrap();
    let mut line = vec![OsString::from("prog")];
    line.extend(arguments.iter().map(OsString::from));
    line.insert(2.min(line.len()), OsString::from("--config"));
    line.insert(3.min(line.len()), path.into_os_string());
    parse_from(line.clone()).map_err(|outcome| match outcome {
        ParseOutcome::Failure(failure) => {
            let sources = Sources::from_arguments::<Program>(&line).unwrap();
            failure.reworded(|text| sources.describe(text)).into()
        }
        help => help,
    })
}

fn serve(arguments: &[&str], file: &str) -> Serve {
    let mut line = vec!["serve"];
    line.extend(arguments);
    match run(&line, file) {
        Ok(Program::Serve(serve)) => serve,
        other => unreachable!("{other:?}"),
    }
}

fn failure(arguments: &[&str], file: &str) -> ExitError {
    match run(arguments, file) {
        Err(ParseOutcome::Failure(failure)) => failure,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn the_file_meets_requirements_and_counts_in_conflicts() {
    assert!(serve(&[], "no-upstream = true").no_upstream);
    assert!(!serve(&["--upstream", "u"], "no-upstream = false").no_upstream);
    let clash = failure(&["serve", "--upstream", "u"], "no-upstream = true");
    assert_eq!(clash.code(), 78);
    assert!(
        clash.to_string().contains("prog.toml; see --help"),
        "{clash}"
    );
}

#[test]
fn a_switch_is_on_or_off_wherever_it_stands() {
    for word in ["on", "true", "1", "off", "false", "0"] {
        let on = matches!(word, "on" | "true" | "1");
        for switch in ["--shout", "--hum"] {
            for value in [&[switch, word][..], &[&format!("{switch}={word}")]] {
                let read = serve(value, "no-upstream = true");
                let is_on = [read.shout, read.hum][usize::from(switch == "--hum")];
                assert_eq!(is_on, on, "{switch} {word}");
            }
        }
        assert_eq!(serve(&["--no-upstream", "--whisper", word], "").whisper, on);
        let file = format!("no-upstream = true\nwhisper = '{word}'\nshout = '{word}'");
        let settings = serve(&[], &file);
        assert_eq!((settings.whisper, settings.shout), (on, on), "{word}");
    }
    let plain = serve(&["--no-upstream"], "");
    assert!(plain.whisper && !plain.shout && !plain.hum);
    assert!(serve(&["--no-upstream", "--shout"], "").shout);
    for bare in [&["--hum", "--no-upstream"], &["--no-upstream", "--hum"]] {
        assert!(serve(bare, "").hum, "{bare:?}");
    }
    let settings = serve(&[], "no-upstream = 1\nwhisper = false\nshout = true");
    assert!(!settings.whisper && settings.shout);
    for word in ["yes", "", "ON", "2"] {
        let flag = format!("--shout={word}");
        let rejected = failure(&["serve", "--no-upstream", &flag], "").to_string();
        assert!(rejected.contains("'--shout [<on|off>]'"), "{rejected}");
    }
}

#[test]
fn lists_stand_for_repeated_flags_and_are_replaced_as_a_whole() {
    let file = "no-upstream = true\npass = ['/a/**', '/b']\nlifetime = 60";
    assert_eq!(serve(&[], file).pass, ["/a/**", "/b"]);
    assert_eq!(serve(&["--pass", "/c"], file).pass, ["/c"]);
    assert_eq!(serve(&[], file).lifetime, 60);
    assert_eq!(serve(&[], "no-upstream = true\npass = '/a'").pass, ["/a"]);
}

#[test]
fn a_subcommand_takes_its_own_settings_and_leaves_the_others() {
    let file = "store = 'redis://r'\nname = 'file'";
    let revoked = run(&["keys", "revoke", "--", "-kid"], file).unwrap();
    let (store, kid) = ("redis://r".to_owned(), "-kid".to_owned());
    assert_eq!(
        revoked,
        Program::Keys {
            action: Keys::Revoke { store, kid }
        }
    );
}

/// Rows: a file, with `|` for the ends of lines, and what is said of it.
const BAD_FILES: &str = "
nmae = 'x' => `nmae` is no setting of this program; `name` is
[[rules]]|x = 1 => `rules` is no setting of this program; `rule` is
zzz = 1 => `zzz` is no setting of this program
config = 'x' => `config` is no setting of this program
not-a-setting = true => `not-a-setting` is no setting of this program
secret_file = 'x' => `secret_file` is no setting of this program; `secret-file` is
secret = 'abcdefgh' => `secret` is a secret: give `secret-file` instead
lifetime = 1.5 => invalid value '1.5' for '--lifetime <LIFETIME>': expected a whole number
lifetime = -1 => invalid value '-1' for '--lifetime <LIFETIME>'
no-upstream = 'yes' => invalid value 'yes' for '--no-upstream [<on|off>]': expected on or off
no-upstream = [true] => `no-upstream` must be a text, a number, true or false, not array
name = ['a'] => `name` must be a text, a number, true or false, not array
pass = [['a']] => `pass` must be a text, a number, true or false, not array
[name] => `name` must be a text, a number, true or false, not a table: of several, each has [[…]] above it
name = 'a'|name = 'b' => line 2: duplicate key `name`
name = => line 1:
name: x => line 1: key with no value, expected `=`; the file is JSON or YAML, and TOML is expected: name =
---|name: a=b => ; the file is JSON or YAML, and TOML is expected
# settings||{|  'name': 'x'|} => ; the file is JSON or YAML, and TOML is expected
name = 'a:b'|lifetime: 1 => line 2:
upstream = 'u'|[[rule]]|paths = ['/a']|[[rule]]|pahts = ['/b'] => line 5: [[rule]] 2: pahts: unknown key `pahts`, expected `paths` or `claims`
upstream = 'u'|[[rule]]|paths = ['/a']|name = 'n' => unknown key `name`, expected `paths` or `claims`; as a setting of the program it belongs above the first [[…]]
upstream = 'u'|[[rule]] => line 2: [[rule]] 1: a key is missing: `paths`
upstream = 'u'|[[rule]]|paths = 'a' => line 3: [[rule]] 1: paths: found the text \"a\", expected a list: [\"a\", \"b\"]
upstream = 'u'|[[rule]]|paths = []|claims = {x = [-1]} => line 4: [[rule]] 1: claims.x[0]: invalid value: integer `-1`, expected u32
upstream = 'u'|[rule]|paths = [] => found a table, expected a list
[[pass]]|paths = [] => `pass` must be a text, a number, true or false, not a table
upstream = 'u'|name = [] => `name` must be a text, a number, true or false, not array";

#[test]
fn a_bad_file_is_fatal_with_one_line_naming_file_line_and_key() {
    for (file, line) in rows(BAD_FILES) {
        let failure = failure(&["serve"], &file.replace('|', "\n"));
        let said = failure.to_string();
        assert_eq!(failure.code(), 78, "{said}");
        let is_named = said.contains("prog.toml") && said.contains(line);
        assert!(is_named && !said.contains('\n'), "{file}: {said}");
    }
}

/// Returns the two columns of each row.
fn rows(table: &str) -> impl Iterator<Item = (&str, &str)> {
    table
        .trim()
        .lines()
        .map(|row| row.split_once(" => ").unwrap())
}

#[test]
fn what_no_flag_can_say_becomes_a_type_of_the_program() {
    let row = |path: &str| Row {
        paths: vec![path.to_owned()],
        claims: std::collections::BTreeMap::new(),
    };
    let file = "no-upstream = true\n[[rule]]\npaths = ['/a']\n[[rule]]\npaths = ['/b']\nclaims = {x = [1]}";
    let claims = [("x".to_owned(), vec![1])].into();
    let second = Row {
        claims,
        ..row("/b")
    };
    assert_eq!(serve(&[], file).only.rule, [row("/a"), second]);
    // A setting has the name too.
    let read = serve(&[], "no-upstream = true\n[[name]]\nx = 1");
    assert_eq!(read.name, "default");
    assert!(read.only.name.unwrap().is_array());
    let read = serve(&[], "no-upstream = true\nname = 'u'\nrule = []");
    assert_eq!((&*read.name, read.only.rule), ("u", vec![]));
    // A command without them leaves them unread.
    let other = run(&["keys", "revoke", "kid"], "store = 's'\n[[rule]]\nx = 1");
    assert!(matches!(other, Ok(Program::Keys { .. })), "{other:?}");
}

/// Rows: a command line, and with which exit code and what it is rejected.
const REJECTED: &str = "
serve --lifetime x => 78 invalid value 'x' for '--lifetime <LIFETIME>': expected a whole number
serve --lifetime= => 78 invalid value '' for '--lifetime <LIFETIME>': expected a whole number
serve --naem x => 64 unexpected argument '--naem' found; a similar argument exists: '--name'; see
serve --zzz 1 => 64 unexpected argument '--zzz' found; see
serve => 78 the following required arguments were not provided: --upstream <UPSTREAM>
keys revoke --store x => 64 the following required arguments were not provided: <KID>
serve --no-upstream --upstream u => 78 the argument '--no-upstream [<on|off>]' cannot be used with '--upstream <UPSTREAM>'; drop one: --no-upstream (No service), --upstream (The service); see
serve --upstream a --upstream b => 78 the argument '--upstream <UPSTREAM>' cannot be used multiple times; see
serve --no-upstream --name => 78 a value is required for '--name <NAME>' but none was supplied
srve => 64 unrecognized subcommand 'srve'
--upstream u => 64 unexpected argument '--upstream' found; it is a setting of `prog serve`
serve --secret hunter2 => 78 invalid value '…' for '--secret <SECRET>': not eight letters";

#[test]
fn what_is_rejected_is_one_line_naming_the_flag() {
    for (line, expected) in rows(REJECTED) {
        let failure = failure(&line.split(' ').collect::<Vec<_>>(), "");
        let said = format!("{} {failure}", failure.code());
        let is_whole = said.starts_with(expected) && said.ends_with("; see --help");
        assert!(is_whole && !said.contains('\n'), "{line}: {said}");
    }
}

#[test]
fn a_variable_of_ours_that_no_flag_declares_is_noticed() {
    let names = "POSTERN_UNSET_NAME POSTERN_CONFIG POSTERN_UNSET_NMAE POSTERN_UNSET_NAME_FILE POSTERN_ZEBRA HOME";
    let names = names.split(' ').map(OsString::from);
    let command = command::<Program>();
    let warnings: Vec<_> = unknown(&command, names).collect();
    let expected = [
        "POSTERN_UNSET_NAME_FILE is no setting of this program: ignored; POSTERN_UNSET_NAME takes the value itself",
        "POSTERN_UNSET_NMAE is no setting of this program: ignored; did you mean POSTERN_UNSET_NAME?",
        "POSTERN_ZEBRA is no setting of this program: ignored",
    ];
    assert_eq!(warnings, expected);
}

/// Returns `text` with its sources, for the command line `arguments`, a set variable of
/// `--from-env` alone, and the text `file` of the file, whose path is left out.
fn described(text: &str, arguments: &[&str], file: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("prog.toml");
    std::fs::write(&path, file).unwrap();
    let path = path.display().to_string();
    let line = ["prog", "serve", "--config", &path];
    let line: Vec<_> = line.iter().chain(arguments).map(OsString::from).collect();
    let sources = Sources::from_arguments::<Program>(&line).unwrap();
    let described = sources.describe(&text.replace("prog.toml", &path));
    described.replace(&path, "prog.toml")
}

#[test]
fn a_failure_names_settings_from_other_sources() {
    let of_variable = "; --from-env comes from CARGO_PKG_NAME";
    let of_file = "; --name comes from `name` in prog.toml";
    let of_both = [of_file, of_variable].concat();
    for (text, arguments, file, addition) in [
        // A variable, the file, the command line, which outrank each other.
        ("--from-env 'x': no", &[][..], "", of_variable),
        ("--from-env 'x': no", &[], "from-env = 'y'", of_variable),
        ("--name 'x': no", &[], "name = 'x'", of_file),
        ("--name 'x': no", &["--name", "x"], "name = 'y'", ""),
        ("--from-env 'x': no", &["--from-env=x"], "", ""),
        ("--name 'x': no", &["--", "--name"], "name = 'x'", of_file),
        // A default, another word, a name that goes on.
        ("--name 'x': no", &[], "", ""),
        ("name: no --secret", &[], "name = 'x'", ""),
        ("--secret-file: no", &[], "secret = 'x'", ""),
        ("prog.toml: --name: no", &[], "name = 'x'", ""),
        ("--name needs --from-env", &[], "name = 'x'", &of_both),
    ] {
        let expected = format!("{text}{addition}");
        assert_eq!(described(text, arguments, file), expected, "{arguments:?}");
    }
    let line = described("for '--from-env <X>': no; see --help", &[], "");
    assert_eq!(
        line,
        "for '--from-env <X>': no; --from-env comes from CARGO_PKG_NAME; see --help"
    );
}

#[test]
fn settings_with_a_source_are_printed_without_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("prog.toml");
    let file = "lifetime = 60\n[[rule]]\npaths = ['/a']\n";
    std::fs::write(&path, file).unwrap();
    let path = path.display().to_string();
    let line = "prog serve --secret eightlet --secret-file /s --upstream http://me:hush@a/x?y=hush";
    let line = line.split(' ').chain(["--config", &path]);
    let line: Vec<_> = line.map(OsString::from).collect();
    let sources = Sources::from_arguments::<Program>(&line).unwrap();
    // More than a program would print: the secret of its own.
    let in_force = "name = 'default'\nfrom-env = 'e'\nupstream = 'http://me:hush@a/x?y=hush'\n\
        shout = false\nlifetime = 60\nsecret = 'eightlet'\n[[rule]]\npaths = ['/a']\n";
    let given = given_by(&sources, Program::KEYS, &in_force.parse().unwrap());
    let expected = format!(
        "from-env = \"e\"  # CARGO_PKG_NAME\n\
         upstream = \"http://a/x?…\"  # the command line\n\
         lifetime = 60  # `lifetime` in {path}\n\
         secret = \"(set)\"  # the command line\n\
         secret-file = \"(set)\"  # the command line\n\
         [[rule]]\npaths = [\"/a\"]  # the file\n"
    );
    assert_eq!(given, expected);
}

#[test]
fn a_secret_on_the_command_line_is_reported_and_not_repeated() {
    for (typed, flag) in [
        ("serve --name x", None),
        ("serve --secret eightlet", Some("--secret: ")),
        ("serve --secret=eightlet", Some("--secret: ")),
        ("serve --secret-file /eightlet", None),
        ("serve --name redis://me:eightlet@a/1", Some("--name: ")),
        (
            "serve --name=redis+cluster://:eightlet@a,b",
            Some("--name: "),
        ),
        ("serve --name redis://me@eightlet:1/2", None),
        ("serve -- --secret eightlet", None),
        ("serve --name https://idp:8443/realms/a@b/keys", None),
        ("serve --name https://idp:8443?user=a@b", None),
        ("serve --name https://idp:8443#a@b", None),
        ("serve --name nacos://a,b:eightlet@c/x@y", Some("--name: ")),
        (
            "serve --pass http://a:eightlet@b --pass=/x",
            Some("--pass: "),
        ),
    ] {
        let arguments: Vec<_> = iter::once("prog")
            .chain(typed.split(' '))
            .map(OsString::from)
            .collect();
        let lines = exposed::exposed(&Sources::from_arguments::<Program>(&arguments).unwrap());
        assert_eq!(lines.len(), usize::from(flag.is_some()), "{lines:?}");
        for (line, flag) in lines.iter().zip(flag) {
            assert!(line.starts_with(flag), "{line}");
            assert!(!line.contains("eightlet"), "{line}");
            assert!(line.contains("POSTERN_UNSET_"), "{line}");
        }
    }
}
