use super::*;
use proptest::prelude::*;

const PAGES: usize = 24;

/// What is known of each page, one by one.
type Naive = [(u32, u32, bool); PAGES];

#[derive(Clone, Copy, Debug)]
enum Step {
    Share,
    Bar,
    /// Ends the registration of this number, as far as there is one.
    End(usize),
    Left,
}

fn steps() -> impl Strategy<Value = Vec<(Step, usize, usize)>> {
    let step =
        prop_oneof![Just(Step::Share), Just(Step::Bar), (0..64_usize).prop_map(Step::End), Just(Step::Left)];
    prop::collection::vec((step, 0..PAGES, 0..=PAGES), 0..60)
}

fn runs_of(naive: &Naive, is: impl Fn(&(u32, u32, bool)) -> bool) -> Vec<usize> {
    (0..PAGES).filter(|page| is(&naive[*page])).collect()
}

fn pages_in(runs: impl Iterator<Item = (u64, u64)>) -> Vec<usize> {
    runs.flat_map(|(start, end)| start as usize / 4096..end as usize / 4096).collect()
}

proptest! {
    #[test]
    fn says_the_same_as_page_by_page(steps in steps()) {
        let (mut counts, mut naive, mut live) = (Counts::default(), [(0, 0, false); PAGES], Vec::new());
        for (step, a, b) in steps {
            let (first, last) = (a.min(b), a.max(b));
            let bytes = |first: usize, last: usize| (first as u64 * 4096, last as u64 * 4096);
            let (start, end) = bytes(first, last);
            match step {
                Step::Share => {
                    counts.share(start, end);
                    naive[first..last].iter_mut().for_each(|page| *page = (page.0 + 1, page.1, true));
                    live.push((true, first, last));
                }
                Step::Bar => {
                    counts.bar(start, end);
                    naive[first..last].iter_mut().for_each(|page| page.1 += 1);
                    live.push((false, first, last));
                }
                Step::End(n) if n < live.len() => {
                    let (shared, first, last) = live.swap_remove(n);
                    let (start, end) = bytes(first, last);
                    if shared {
                        counts.unshare(start, end);
                        naive[first..last].iter_mut().for_each(|page| page.0 -= 1);
                    } else {
                        counts.unbar(start, end);
                        naive[first..last].iter_mut().for_each(|page| page.1 -= 1);
                    }
                }
                Step::End(_) => {}
                Step::Left => {
                    counts.left(start, end);
                    naive[first..last].iter_mut().for_each(|page| page.2 = false);
                }
            }
            let barred = naive[first..last].iter().any(|page| page.1 > 0);
            prop_assert_eq!(counts.is_barred(start, end), barred);
            prop_assert_eq!(pages_in(counts.inside()), runs_of(&naive, |page| page.2));
            prop_assert_eq!(counts.pieces(), counts.inside().count());
            let idle = runs_of(&naive, |page| page.2 && page.0 == 0 && page.1 == 0);
            prop_assert_eq!(pages_in(counts.idle(0, u64::MAX)), idle.clone());
            let part: Vec<_> = idle.into_iter().filter(|page| (first..last).contains(page)).collect();
            prop_assert_eq!(pages_in(counts.idle(start, end)), part);
            // Neighbours that say the same are one.
            let said = naive.iter().filter(|page| **page != (0, 0, false)).count();
            prop_assert!(counts.runs() <= said);
        }
        for (shared, first, last) in live {
            let (start, end) = (first as u64 * 4096, last as u64 * 4096);
            if shared { counts.unshare(start, end) } else { counts.unbar(start, end) }
        }
        counts.left(0, PAGES as u64 * 4096);
        prop_assert_eq!(counts.runs(), 0);
    }
}

#[test]
fn neighbours_become_one() {
    let mut counts = Counts::default();
    (0..100).for_each(|n| counts.share(n * 4096, (n + 1) * 4096));
    assert_eq!(counts.runs(), 1);
    counts.unshare(50 * 4096, 51 * 4096);
    assert_eq!(counts.runs(), 3);
    counts.share(50 * 4096, 51 * 4096);
    assert_eq!(counts.runs(), 1);
}
