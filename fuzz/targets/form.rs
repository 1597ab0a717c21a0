//! Form bodies of OAuth requests, on any bytes: what is accepted reads alike after another encoding.

#![no_main]

use std::fmt::Write;

use libfuzzer_sys::fuzz_target;
use postern_http::form::{Form, decode};

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        write!(encoded, "%{byte:02X}").expect("a string takes it");
        encoded
    })
}

fuzz_target!(|data: &[u8]| {
    let Ok(form) = Form::parse(data) else {
        return;
    };
    let text = std::str::from_utf8(data).expect("a form is text");
    let (mut again, mut has_parameters) = (String::new(), false);
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode(name).expect("a name of a form");
        let value = decode(value).expect("a value of a form");
        assert!(!value.contains(char::is_control));
        if name == "resource" {
            assert!(value.is_empty() || form.resources().contains(&value));
        } else {
            has_parameters = true;
            assert_eq!(
                form.value(&name),
                Some(value.as_str()).filter(|it| !it.is_empty())
            );
        }
        let separator = if again.is_empty() { "" } else { "&" };
        write!(again, "{separator}{}={}", encoded(&name), encoded(&value)).expect("a string");
    }
    assert_eq!(Form::parse(again.as_bytes()), Ok(form));
    let twice = format!("{text}&{text}");
    assert!(Form::parse(twice.as_bytes()).is_err() || !has_parameters);
});
