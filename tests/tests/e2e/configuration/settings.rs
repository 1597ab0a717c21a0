//! Sources of settings – flags, variables, a file, secret files – and their order.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use tests::actors::auth_server::AuthServerPlan;
use tests::actors::expect::has;
use tests::actors::programs::Program;
use tests::tables;
use tests::wire::certificates::write_private;

use super::command_line::{CONFIG, SIDECAR};

#[test]
fn flags_variables_file_and_image_rank_in_this_order() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("postern.toml");
    let text = "listen = '127.0.0.1:1'\nlame-duck = 2\nissuer = 'file'\naudience = 'a'\n";
    fs::write(&file, text).unwrap();
    for (program, needed) in [
        (Program::AuthServer, &[][..]),
        (Program::Sidecar, &SIDECAR[1..]),
    ] {
        let check = program
            .command()
            .arguments(["check"])
            .arguments(needed.iter().copied())
            .arguments(["--lame-duck", "60"])
            .environment("POSTERN_CONFIG", &file)
            .environment("POSTERN_DEFAULT_LISTEN", "127.0.0.1:2")
            .environment("POSTERN_DEFAULT_ADMIN_LISTEN", "127.0.0.1:3")
            .environment("POSTERN_ISSUER", "variable");
        let end = check.run();
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        for line in [
            "listen = \"127.0.0.1:1\"",
            "admin-listen = \"127.0.0.1:3\"",
            "issuer = \"variable\"",
            "lame-duck = \"1m\"",
            &format!(
                "# warning: POSTERN_ISSUER overrides `issuer` in {}",
                file.display()
            ),
        ] {
            has(format!("\n{}", end.stdout), format!("\n{line}\n"));
        }
        assert_eq!(end.stdout.matches("overrides").count(), 1, "{}", end.stdout);
        let end = check
            .environment("POSTERN_DEFAULT_ADMIN_LISTEN", "nowhere")
            .run();
        let source = "--admin-listen comes from POSTERN_DEFAULT_ADMIN_LISTEN";
        end.says(78, source);
    }
}

/// As people write lists in manifests: `a, b`, or a member a line.
#[test]
fn blanks_around_the_members_of_a_list_count_for_nothing() {
    const OF_ISSUER: [&str; 2] = ["--jwks=https://idp/keys", "--issuer=i"];
    for (program, flags, rows) in [
        (
            Program::Sidecar,
            &OF_ISSUER[..],
            "PUBLIC_PATH GET,HEAD /a/**,/b\nOPTIONAL_AUTH_PATH /a/**,/b\n\
             CORS_ORIGIN https://a,capacitor://b\nCOOKIE_ORIGIN https://a,https://b\n\
             RESOURCE https://a/x,https://b/x\nAUDIENCE a,b\nCLAIM email=mail,account=upn\n\
             CLAIM_HEADER X-A=a,X-B=b\nTRUSTED_PROXY 10.0.0.0/8,::1",
        ),
        (
            Program::AuthServer,
            &[],
            "PUBLIC_PATH /a/**,/b\nCORS_ORIGIN https://a,capacitor://b\nAUDIENCE a,b\n\
             TRUSTED_PROXY 10.0.0.0/8,::1",
        ),
    ] {
        for row in rows.lines() {
            let (setting, value) = row.split_once(' ').unwrap();
            let cookie = (setting == "COOKIE_ORIGIN").then_some("--token-cookie=session");
            let checked = |value: &str| {
                let check = program.command().arguments(["check"]).arguments(flags);
                let check = check.arguments(cookie);
                let check = check.environment("POSTERN_AUDIENCE", "orders");
                let end = check
                    .environment(&format!("POSTERN_{setting}"), value)
                    .run();
                assert_eq!(end.code, Some(0), "{setting} {value}: {}", end.stderr);
                end.stdout
            };
            let blanks = format!("\n  {}\n", value.replace(',', " ,\n  "));
            assert_eq!(checked(&blanks), checked(value), "{setting}");
        }
    }
}

#[test]
fn a_start_says_once_which_keys_of_the_file_have_no_effect() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("postern.toml");
    fs::write(&file, "issuer = \"file\"\n").unwrap();
    let plan = AuthServerPlan::new().flags(["--config", file.to_str().unwrap()]);
    let server = plan.environment("POSTERN_ISSUER", "variable").ready();
    let line = "POSTERN_ISSUER overrides `issuer` in ";
    assert_eq!(server.until_logged(line), 1);
}

#[test]
fn a_value_that_is_rejected_is_named_with_its_source() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("postern.toml");
    let path = file.display().to_string();
    let table: HashMap<String, Vec<[String; 5]>> = tables::load("rejected_settings.toml");
    for (program, [variable, value, text, flags, line]) in [Program::Sidecar, Program::AuthServer]
        .iter()
        .flat_map(|program| table[program.name()].iter().map(move |row| (program, row)))
    {
        fs::write(&file, text).unwrap();
        let flags = flags.replace("{{needed}}", &SIDECAR[1..].join(" "));
        let end = program
            .command()
            .arguments(["check", "--config", &path])
            .arguments(flags.split_whitespace())
            .environment(variable, value)
            .run();
        assert_eq!(end.code, Some(CONFIG), "{}", end.stderr);
        assert_eq!(
            end.stderr,
            format!("error: {}\n", line.replace("{{file}}", &path))
        );
    }
}

#[test]
fn a_line_end_behind_a_variable_is_not_part_of_its_value() {
    for (variable, value, line) in [
        ("UPSTREAM", "http://a:1\n", "upstream = \"http://a:1\""),
        (
            "REFRESH_CRON",
            "1 * * * * *\r\n",
            "refresh-cron = \"1 * * * * *\"",
        ),
        (
            "DEFAULT_LISTEN",
            "127.0.0.1:1\r",
            "listen = \"127.0.0.1:1\"",
        ),
        ("LEEWAY", "60\n\n", "leeway = \"1m\""),
        // What others may hold.
        ("PUBLIC_PATH", "/$(a)/**", "public-path = [\"/$(a)/**\"]"),
        ("AUDIENCE", "a b", "audience = [\"a b\"]"),
    ] {
        let check = Program::Sidecar.command().arguments(["check"]);
        let check = check.arguments(&SIDECAR[1..]);
        let check = check.environment(&format!("POSTERN_{variable}"), value);
        has(format!("\n{}", check.run().stdout), format!("\n{line}\n"));
    }
}

#[test]
fn a_variable_that_is_not_utf_8_is_named() {
    let value = OsStr::from_bytes(b"http://\xff:1");
    for (program, variable, flag) in [
        (Program::Sidecar, "POSTERN_UPSTREAM", "upstream"),
        (Program::Sidecar, "POSTERN_AUDIENCE", "audience"),
        (Program::Sidecar, "POSTERN_TLS_CERT", "tls-cert"),
        (Program::Sidecar, "POSTERN_APP_SECRET", "app-secret"),
        (Program::AuthServer, "POSTERN_STORE", "store"),
        (Program::AuthServer, "POSTERN_DEFAULT_STORE", "store"),
    ] {
        let end = program
            .command()
            .arguments(["check"])
            .environment(variable, value)
            .run();
        let line = format!("error: --{flag}: is not UTF-8; --{flag} comes from {variable}\n");
        assert_eq!((end.code, end.stderr), (Some(CONFIG), line));
    }
}

#[test]
fn the_auth_server_s_check_warns_of_all_that_serve_warns_of() {
    let check = |flags: &[&str]| {
        Program::AuthServer
            .run(&[&["check"], flags].concat())
            .stdout
    };
    let warned = |text: &str| {
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("# warning: "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let directory = tempfile::tempdir().unwrap();
    let password = directory.path().join("password");
    write_private(&password, "hush");
    let registry = format!(
        "--registry=nacos://me@10.0.0.9?password-file={}",
        password.display()
    );
    let flags = [
        "--listen=0.0.0.0:0",
        "--users=builtin",
        "--rotation-lead=1",
        &*registry,
        "--advertise=10.0.0.5:9000",
        "--store=redis://store.invalid",
    ];
    let warnings = warned(&check(&flags));
    let about = [
        "--rotation-lead",
        "--store",
        "--registry",
        "--users builtin",
        "--listen",
        "--store: redis://store.invalid: ",
    ];
    assert_eq!(warnings.len(), about.len(), "{warnings:#?}");
    for (warning, about) in warnings.iter().zip(about) {
        assert!(warning.starts_with(about), "{warning}");
        assert!(!warning.contains("hush"), "{warning}");
    }

    let flags = ["--listen=0.0.0.0:0", "--users=builtin", "--rotation-lead=1"];
    let warnings = warned(&check(&flags));
    let server = AuthServerPlan::new().flags(["--rotation-lead=1"]).start();
    for warning in warnings.iter().filter(|line| !line.starts_with("--listen")) {
        server.until_logged(warning);
    }
}

/// For clients of other machines as a word, on a loopback address by default.
#[test]
fn the_built_in_user_is_chosen_by_flag_variable_or_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("postern.toml");
    fs::write(&file, "users = 'builtin'\n").unwrap();
    let check = |listen: &str| {
        let check = Program::AuthServer.command().arguments(["check"]);
        check.environment("POSTERN_DEFAULT_LISTEN", listen)
    };
    for chosen in [
        check("[::]:9000").arguments(["--users", "builtin"]),
        check("[::]:9000").environment("POSTERN_USERS", "builtin"),
        check("[::]:9000").environment("POSTERN_CONFIG", &file),
        check("127.0.0.1:9000"),
    ] {
        let end = chosen.run();
        end.says(0, "");
        has(&end.stdout, "\nusers = \"builtin\"\n");
    }
}

#[test]
fn the_output_of_check_is_a_file_without_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("postern.toml");
    let probes = r#"--probes={"live": {"httpGet": {"path": "/orders/healthz"}}}"#;
    let arguments = [&["check", probes], &SIDECAR[1..]].concat();
    let first = Program::Sidecar.run(&arguments);
    fs::write(&file, &first.stdout).unwrap();
    has(&first.stdout, "\nprobes = '{");
    assert!(first.stdout.contains("# app-secret is set\n"));
    assert!(!first.stdout.contains("hidden"), "{}", first.stdout);
    let second = Program::Sidecar
        .command()
        .arguments(["check", "--config"])
        .arguments([&file])
        .environment("POSTERN_APP_SECRET", "s")
        .run();
    let exposed = "# warning: --app-secret: every user of this machine can read this secret";
    assert!(first.stdout.starts_with(exposed), "{}", first.stdout);
    let (_, settings) = first.stdout.split_once('\n').unwrap();
    second.says(0, "");
    assert_eq!(second.stdout, settings);
}

#[test]
fn a_secret_file_that_others_may_read_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    fs::write(&file, "s3cret-of-the-file\n").unwrap();
    let path = file.to_str().unwrap();
    let arguments = [&SIDECAR[..5], &["--app-secret-file", path]].concat();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let end = Program::Sidecar.run(&arguments);
    end.says(CONFIG, path);
    has(&end.stderr, "644");
    assert_eq!(end.stderr.lines().count(), 1, "{}", end.stderr);
    assert!(!end.stderr.contains("s3cret-of-the-file"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let checked = [&["check"], &arguments[1..]].concat();
    assert_eq!(Program::Sidecar.run(&checked).code, Some(0));
}

#[test]
fn a_secret_may_begin_with_a_hyphen() {
    let arguments = [&["check"], &SIDECAR[1..6], &["-looks-like-a-flag"]].concat();
    let end = Program::Sidecar.run(&arguments);
    assert_eq!(end.code, Some(0), "{}", end.stderr);
}
