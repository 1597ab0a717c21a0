//! Metrics of both programs: their declaration, the format of `/metrics`, the
//! metrics of the process.

pub mod exposition;
pub mod histogram;
pub(crate) mod process;

use std::fmt::{self, Write as _};
use std::hash::Hash;

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// Declares a struct of metrics and its function `register`: the name of a field is the name of the
/// metric, its doc comment the help text. The fields `beside` them are not exported by `register`.
/// Clones share the values.
#[macro_export]
macro_rules! metrics {
    (@first) => { Default::default() };
    (@first $value:expr) => { $value };
    (
        $(#[$of_struct:meta])*
        $visible:vis struct $group:ident {
            $(
                $(#[doc = $help:literal])+
                $seen:vis $name:ident: $metric:ty $(= $first:expr)?,
            )+
        }
        $(beside {
            $($(#[$of_field:meta])* $field_seen:vis $field:ident: $kind:ty $(= $begin:expr)?,)+
        })?
    ) => {
        $(#[$of_struct])*
        #[derive(Debug, Clone)]
        $visible struct $group {
            $($(#[doc = $help])+ $seen $name: $metric,)+
            $($($(#[$of_field])* $field_seen $field: $kind,)+)?
        }

        impl Default for $group {
            fn default() -> Self {
                Self {
                    $($name: $crate::metrics!(@first $($first)?),)+
                    $($($field: $crate::metrics!(@first $($begin)?),)+)?
                }
            }
        }

        impl $group {
            /// Registers the metrics.
            $visible fn register(&self, registry: &mut ::prometheus_client::registry::Registry) {
                $(registry.register(
                    stringify!($name),
                    concat!($($help),+).trim_start(),
                    self.$name.clone(),
                );)+
            }
        }
    };
}

/// Returns counters with these series from the start: a rate needs a first value.
pub fn counters<L: Clone + Hash + Eq>(series: impl IntoIterator<Item = L>) -> Family<L, Counter> {
    let counters = Family::<L, Counter>::default();
    for labels in series {
        drop(counters.get_or_create(&labels));
    }
    counters
}

/// The name and the value of the one label of a series.
pub type Label = [(&'static str, &'static str); 1];

/// Returns counters by one label, with these values from the start.
pub fn counters_by(
    label: &'static str,
    values: impl IntoIterator<Item = &'static str>,
) -> Family<Label, Counter> {
    counters(values.into_iter().map(|value| [(label, value)]))
}

/// A label's value that is not of the program: an id or a name with any characters. The library writes values
/// as they are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LabelText(String);

impl<T: Into<String>> From<T> for LabelText {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl EncodeLabelValue for LabelText {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' | '"' => write!(encoder, "\\{c}")?,
                '\n' => encoder.write_str("\\n")?,
                c => encoder.write_char(c)?,
            }
        }
        Ok(())
    }
}
