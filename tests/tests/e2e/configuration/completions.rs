//! The scripts by which a shell completes commands and flags.

use std::process::Command;

use tests::actors::programs::Program;

/// Completes the last word of a command line as an interactive bash does.
fn completed_by_bash(program: Program, words: &[&str]) -> Vec<String> {
    const COMPLETE: &str = r#"
        name=$1
        eval "$("$2" completions bash)"
        shift 2
        COMP_WORDS=("$name" "$@") COMP_CWORD=$#
        "$(complete -p "$name" | grep -o -- '-F [^ ]*' | cut -c 4-)" \
            "$name" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let bash = Command::new("bash")
        .args(["-c", COMPLETE, "bash", program.name()])
        .arg(program.path())
        .args(words)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&bash.stderr), "");
    let words = String::from_utf8(bash.stdout).unwrap();
    words.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_flags() {
    for program in Program::ALL {
        for (words, completed) in [
            (&["heal"][..], "healthcheck"),
            (&["serve", "--admin-l"], "--admin-listen"),
            (&["check", "--str"], "--strict"),
            (&["completions", "fi"], "fish"),
        ] {
            assert_eq!(completed_by_bash(program, words), [completed], "{words:?}");
        }
    }
}
