//! The pass list beside its tables: bypasses that fail, and patterns that stop a start (contract
//! §4.4).

use tests::actors::auth_server::AuthServerPlan;
use tests::actors::sidecar::SidecarPlan;
use tests::services::echo_service::EchoService;
use tests::tables::{self, PatternTable, Verdicts};

#[test]
fn contract_4_4_a_bad_pattern_stops_both_programs() {
    let service = EchoService::start();
    let mut verdicts = Verdicts::default();
    for row in tables::load::<PatternTable>("bad_patterns.toml").bad {
        let pass = format!("--public-path={}", row.pattern);
        let ends = [
            SidecarPlan::new(&service, "http://127.0.0.1:1/auth")
                .flags([pass.as_str()])
                .fails(),
            AuthServerPlan::new().flags([pass.as_str()]).fails(),
        ];
        for end in ends {
            let one_line = end.stderr.lines().count() == 1 && end.stderr.contains("--public-path");
            let difference = (end.code != Some(78) || !one_line)
                .then(|| format!("exit {:?}: {} ({})", end.code, end.stderr, row.why));
            verdicts.row(&format!("{:?}", row.pattern), difference);
        }
    }
    verdicts.conclude();
}
