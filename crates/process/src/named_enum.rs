//! Enums whose variants have names in logs, labels and reports.

/// Declares an enum with the name of each variant: `ALL` has all variants, in order, and `name`
/// returns the name of one.
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$of_enum:meta])*
        $visible:vis enum $kind:ident {
            $($(#[$of_variant:meta])* $variant:ident = $name:expr,)+
        }
    ) => {
        $(#[$of_enum])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visible enum $kind {
            $($(#[$of_variant])* $variant,)+
        }

        impl $kind {
            /// All variants, in order.
            $visible const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Returns the name.
            $visible const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}
