//! Pages of what another process of this user does (`adverb top`), as bytes (TOP-1).
use adverb_device::snapshot::Page;

/// Parses a page. An accepted page is no larger than its bytes allow, and is written and read
/// again.
///
/// # Panics
/// The parsed values differ from the written ones, or are too many.
pub fn run(data: &[u8]) {
    let Ok(page) = Page::parse(data) else { return };
    let Page { counters, queues, queue_pairs, .. } = &page;
    assert!(2 * (counters.len() + queues.len() + queue_pairs.len()) <= data.len(), "{page:?}");
    let texts = counters
        .iter()
        .map(|(name, _)| name)
        .chain(queues.iter().flat_map(|q| [&q.waiter, &q.stuck]));
    assert!(texts.map(String::len).sum::<usize>() <= data.len(), "{page:?}");
    assert_eq!(Page::parse(&page.emit()).as_ref(), Ok(&page));
}
