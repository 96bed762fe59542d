//! The objects of this process, for other processes of the user: `rdma res` and the counters of
//! the device ([`crate::snapshot`]).
use super::core::Node;
use super::object_list::ObjectList;
use super::queue_pair::AnyQp;
use super::stats::{COUNT_WAIT, lock_within};
use crate::snapshot::{OBJECTS, PAGE, Page};
use adverb_engine::QpType;
use adverb_engine::qp::Counters;
use adverb_nldev::{Counts, Object, ObjectLine};
use std::collections::BTreeMap;

/// In the beginning of a page of objects: the rest is the serial number of an object. Otherwise the
/// rest is the number of a queue pair.
const OTHERS: u32 = OBJECTS | ObjectList::NUMBERS;

impl Node {
    /// The page of objects that begins at `from`: first the counters of each device and the queue
    /// pairs, then the other objects.
    pub(super) fn objects_page(&self, from: u32) -> Page {
        let mut page = Page { process: self.process(), ..Page::default() };
        let mut bytes = 0;
        let mut add = |device: &str, line: ObjectLine| {
            let line = format!("{device} {line}");
            bytes += line.len();
            page.objects.push(line);
            bytes > PAGE
        };
        if from == OBJECTS {
            for (device, counters) in self.counters_of_devices() {
                add(&device, ObjectLine::Counters(counts(&counters)));
            }
        }
        let mut next = None;
        if from < OTHERS {
            let mut full = false;
            for qp in self.registry.qps.from(from & !OTHERS) {
                if full {
                    next = Some(OBJECTS | qp.number());
                    break;
                }
                if let Some(object) = queue_pair(&qp) {
                    full = add(qp.own.device(), ObjectLine::Object(object));
                }
            }
            next = next.or(Some(OTHERS));
        } else {
            let mut full = false;
            for (serial, object) in self.objects.from(from & !OTHERS) {
                if full {
                    next = Some(OTHERS | serial);
                    break;
                }
                let described = object.and_then(|o| o.upgrade()).and_then(|o| o.describe());
                if let Some((device, object)) = described {
                    full = add(&device, ObjectLine::Object(object));
                }
            }
        }
        Page { next, ..page }
    }

    /// The counters of the queue pairs of each device so far, including ended queue pairs.
    fn counters_of_devices(&self) -> BTreeMap<String, Counters> {
        let mut all = self.counters.ended.lock().clone();
        self.each_qp(|qp, inner| {
            all.entry(qp.own.device().to_owned()).or_default().add(inner.engine.counters());
        });
        all
    }
}

/// The counters in the order of [`adverb_nldev::COUNTERS`].
fn counts(c: &Counters) -> Counts {
    [
        c.sent.wrapping_add(c.responses).wrapping_add(c.cnps_sent),
        c.handled(),
        c.duplicates,
        c.gap_naks,
        c.rnr_naks,
        c.rnr_naks_sent,
        c.seq_naks,
        c.timeouts,
        c.dropped_total(),
        c.one_sided,
    ]
}

/// `None`: the queue pair was locked for too long.
fn queue_pair(qp: &AnyQp) -> Option<Object> {
    let inner = lock_within(qp, COUNT_WAIT)?;
    let attr = inner.engine.attr();
    Some(Object::Qp {
        number: qp.number(),
        pd: inner.engine.config().pd.0,
        // `enum ib_qp_type`.
        kind: match qp.qp_type() {
            QpType::Rc => 2,
            QpType::Uc => 3,
            QpType::Ud => 4,
            QpType::RawPacket => 8,
            QpType::XrcSend => 9,
            QpType::XrcRecv => 10,
        },
        state: attr.state as u8,
        dest: attr.dest_qpn,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
    })
}
