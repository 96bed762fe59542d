//! The kinds of objects. Each function table's file (`calls`) connects a kind with its C type, its
//! provider type and the table.

/// Connects a kind with its C type, its provider type, its `NDK_OBJECT_TYPE` and its function
/// table.
macro_rules! kind {
    ($kind:ident: $c:ident, $inner:ty, $number:ident, $table:path) => {
        // SAFETY: the C type is a header followed by a pointer to a table (`abi::objects`).
        unsafe impl $crate::objects::Kind for $crate::kinds::$kind {
            type C = $c;
            type Inner = $inner;
            const TYPE: u32 = $number;
            const NAME: &str = stringify!($c);
            fn visible(header: NDK_OBJECT_HEADER) -> $c {
                $c { Header: header, Dispatch: &$table }
            }
            fn version(inner: &$inner) -> adverb_ndk::Version {
                adverb_ndk::Versioned::version(inner)
            }
        }
    };
}
pub(crate) use kind;

/// Adapters.
pub enum Adapter {}
/// Protection domains.
pub enum Pd {}
/// Completion queues.
pub enum Cq {}
/// Memory regions.
pub enum Mr {}
/// Memory windows.
pub enum Mw {}
/// Shared receive queues.
pub enum Srq {}
/// Queue pairs.
pub enum Qp {}
/// Shared endpoints.
pub enum SharedEndpoint {}
/// Connectors.
pub enum Connector {}
/// Listeners.
pub enum Listener {}
