//! Flow rules of raw packet queue pairs.
use crate::error::Error;
use crate::objects::qp::Qp;
use adverb_steering::{Rule, RuleId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Most flow rules of an interface in a process.
pub const MAX_FLOWS: usize = 4096;

/// A rule in force. The rules of a process decide which queue pairs of the process get a frame.
#[derive(Debug)]
pub struct Flow {
    qp: Arc<Qp>,
    rule: RuleId,
    ended: AtomicBool,
}

impl Flow {
    /// Gives frames that match a rule to a queue pair.
    ///
    /// # Errors
    /// EINVAL: no raw packet queue pair. ENOMEM beyond [`MAX_FLOWS`].
    pub fn new(qp: &Arc<Qp>, rule: Rule) -> Result<Arc<Flow>, Error> {
        qp.context().check_usable()?;
        let Some(port) = qp.own.role.as_ref().and_then(|role| role.port()) else {
            return Err(Error::invalid("qp_type", "flows are of raw packet queue pairs"));
        };
        let mut rules = port.rules.write();
        if rules.len() >= MAX_FLOWS {
            return Err(Error::no_memory(format!("there are {MAX_FLOWS} flows already, the most")));
        }
        let taker: Weak<Qp> = Arc::downgrade(qp);
        let rule = rules.add(rule, taker);
        qp.own.flows.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::new(Flow { qp: qp.clone(), rule, ended: AtomicBool::new(false) }))
    }

    /// Ends the flow.
    ///
    /// # Errors
    /// EINVAL if the flow was destroyed already.
    pub fn destroy(&self) -> Result<(), Error> {
        if self.qp.context().node().is_stale() {
            return Ok(());
        }
        if self.ended.swap(true, Ordering::SeqCst) {
            return Err(Error::invalid("flow", "the flow was destroyed already"));
        }
        if let Some(port) = self.qp.own.role.as_ref().and_then(|role| role.port()) {
            port.rules.write().remove(self.rule);
        }
        self.qp.own.flows.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

impl Qp {
    /// Number of flows of the queue pair. The C ABI refuses to destroy a queue pair with flows.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.own.flows.load(Ordering::SeqCst)
    }
}
