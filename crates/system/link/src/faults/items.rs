//! Items of the text form of faults, NAME=VALUE, and the macro that makes a type of a table of
//! items.

/// A kind of fault, or another item of the text form.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// An example, NAME=VALUE.
    pub example: &'static str,
    /// What the example does, as a sentence.
    pub meaning: &'static str,
}

impl Item {
    /// The name before `=`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.example.split('=').next().unwrap_or_default()
    }
}

/// A value in the text form.
pub trait Form: Sized {
    /// Reads the text behind `=`. An error says what is wrong.
    fn read(text: &str, item: &Item) -> Result<Self, String>;

    /// Writes the text behind `=`.
    fn write(&self) -> String;
}

impl<T: Form> Form for Option<T> {
    fn read(text: &str, item: &Item) -> Result<Self, String> {
        T::read(text, item).map(Some)
    }

    fn write(&self) -> String {
        self.as_ref().map_or(String::new(), T::write)
    }
}

/// The requested values of an item.
pub trait Value {
    /// Takes the text behind `=`. An error says what is wrong.
    fn take(&mut self, text: &str, item: &Item) -> Result<(), String>;

    /// The texts behind `=`.
    fn texts(&self) -> Vec<String>;
}

impl<T: Form + Default + PartialEq> Value for T {
    fn take(&mut self, text: &str, item: &Item) -> Result<(), String> {
        if *self != T::default() {
            return Err("this is given twice".into());
        }
        T::read(text, item).map(|value| *self = value)
    }

    fn texts(&self) -> Vec<String> {
        if *self == T::default() { Vec::new() } else { vec![self.write()] }
    }
}

impl<T: Form> Value for Vec<T> {
    fn take(&mut self, text: &str, item: &Item) -> Result<(), String> {
        T::read(text, item).map(|value| self.push(value))
    }

    fn texts(&self) -> Vec<String> {
        self.iter().map(T::write).collect()
    }
}

/// Makes a structure of a table of items, with a field for the values of each item, and a structure
/// of the counters after `=>`. The structure after `use` has further items.
#[macro_export]
macro_rules! fault_items {
    (
        counted in $Counts:ident;
        $(#[$meta:meta])*
        pub struct $Items:ident {
            $(use $inner:ident: $Inner:ty = $of:literal,)*
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty = $example:literal $(=> $counter:ident)?,
            )*
        }
    ) => {
        $(#[$meta])*
        ///
        /// | item | what it does |
        /// |---|---|
        $(#[doc = concat!("| `", $example, "` |" $(, $doc)+, " |")])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $Items {
            $(#[doc = $of] pub $inner: $Inner,)*
            $($(#[doc = $doc])+ pub $field: $type,)*
        }

        impl $Items {
            /// Gives each item, with its values, to `see`.
            pub fn each(
                &mut self,
                see: &mut dyn FnMut($crate::faults::Item, &mut dyn $crate::faults::Value),
            ) {
                $(self.$inner.each(see);)*
                $(
                    let item = $crate::faults::Item { example: $example, meaning: concat!($($doc),+) };
                    see(item, &mut self.$field);
                )*
            }
        }

        /// How often each fault was injected.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $Counts<T = u64> { $($(#[allow(missing_docs)] pub $counter: T,)?)* }

        impl $Counts<std::sync::atomic::AtomicU64> {
            /// The numbers so far.
            pub fn snapshot(&self) -> $Counts {
                let load = std::sync::atomic::AtomicU64::load;
                $Counts { $($($counter: load(&self.$counter, std::sync::atomic::Ordering::Relaxed),)?)* }
            }
        }

        impl $Counts {
            /// Names and values.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$($((concat!("fault_", stringify!($counter)), self.$counter),)?)*]
            }
        }
    };
}
