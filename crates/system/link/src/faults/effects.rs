//! The macro that makes the faults of a packet of a table of effects.
use std::fmt;

/// What a fault says about an effect.
pub(super) trait Effect {
    /// `words` with the value in place of `{}`; `None` without the effect.
    fn told(&self, words: &str) -> Option<String>;
}

impl Effect for bool {
    fn told(&self, words: &str) -> Option<String> {
        self.then(|| words.to_owned())
    }
}

impl<T: fmt::Debug> Effect for Option<T> {
    fn told(&self, words: &str) -> Option<String> {
        self.as_ref().map(|value| words.replace("{}", &format!("{value:?}")))
    }
}

macro_rules! effects {
    ($(
        #[doc = $doc:literal]
        $field:ident: $type:ty = $words:literal $(=> $counter:ident)?,
    )*) => {
        /// The faults of a packet.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Fault { $(#[doc = $doc] pub $field: $type,)* }

        impl Fault {
            /// Counts each effect.
            pub(crate) fn count(&self, counts: &FaultStats<AtomicU64>) {
                $($(
                    let met = self.$field != <$type>::default();
                    counts.$counter.fetch_add(met.into(), Relaxed);
                )?)*
            }
        }

        impl fmt::Display for Fault {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("injected:")?;
                let told = [$(self.$field.told($words)),*];
                told.into_iter().flatten().try_for_each(|words| write!(f, " {words}"))
            }
        }
    };
}
pub(super) use effects;
