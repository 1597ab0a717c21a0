//! A sidecar that listens on `[::]`, in networks of one family of addresses and of both.

use tests::actors::process::CommandLine;
use tests::actors::programs::Program;
use tests::skip::skip;

/// Starts the sidecar in a network of its own, and prints each loopback address that responds.
const SCRIPT: &str = r#"
ip link set lo up && eval "$1" || exit 9
"$0" serve --listen [::]:18080 --admin-listen [::]:18081 --auth-server http://127.0.0.1:9/auth \
  --app-id a --app-secret hush --lame-duck 0 >&2 &
reaches() { bash -c "exec 3<>/dev/tcp/$1/18080 && echo 'GET / HTTP/1.0' >&3 && echo >&3 && head -c 12 <&3" 2>&-; }
until reaches 127.0.0.1 || reaches ::1; do sleep 0.1; done >/dev/null
"$0" drain --admin-listen [::]:18081 --timeout 30 >&2 && echo drained
for address in 127.0.0.1 ::1; do reaches $address >/dev/null && echo $address; done
kill %1
"#;

#[test]
fn one_address_serves_every_family() {
    let program = Program::Sidecar.path().display().to_string();
    for (change, expected) in [
        (":", "drained\n127.0.0.1\n::1\n"),
        ("ip address delete 127.0.0.1/8 dev lo", "drained\n::1\n"),
        (
            "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6",
            "drained\n127.0.0.1\n",
        ),
    ] {
        let end = CommandLine::new("unshare")
            .arguments(["--net", "bash", "-c", SCRIPT, &program, change])
            .run();
        if end.code == Some(9) || end.stderr.contains("unshare failed") {
            let how = "run as root, with ip of iproute2";
            return skip("networks of one family", how);
        }
        assert_eq!(end.stdout, expected, "{change}: {}", end.stderr);
    }
}
