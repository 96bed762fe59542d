use super::*;
use adverb_preload::waits as preload;
use std::mem::offset_of;

/// The preload's own definition of the hooks has the same layout.
#[test]
fn both_sides_of_the_hooks_agree() {
    macro_rules! same {
        ($($field:ident),*) => {
            $(assert_eq!(
                offset_of!(Hooks, $field),
                offset_of!(preload::Hooks, $field),
                stringify!($field)
            );)*
        };
    }
    same!(
        version,
        kinds,
        look,
        begin,
        sleep,
        end,
        end_alone,
        does_not_drive,
        closed,
        copied,
        controlled
    );
    assert_eq!(size_of::<Given>(), size_of::<preload::Driver>());
    assert_eq!(size_of::<Called>(), size_of::<preload::Called>());
    assert_eq!(offset_of!(Called, limit), offset_of!(preload::Called, limit));
    assert_eq!(size_of::<Hooks>(), size_of::<preload::Hooks>());
    assert_eq!(VERSION, preload::VERSION);
}
