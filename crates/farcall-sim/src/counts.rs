//! Structures of counts: a run reports them, and a soak adds them up.

macro_rules! counts {
    ($(#[$doc:meta])* $structure:ident { $($(#[$of:meta])* $name:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $structure { $($(#[$of])* pub $name: u64,)* }

        impl $structure {
            /// Returns each count with its name.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Adds the counts of another run.
            pub fn add(&mut self, other: &$structure) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

pub(crate) use counts;
