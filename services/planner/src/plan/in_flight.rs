//! Which plan requests this process works on, so that a repeated request does not cost a second plan.

use starling_protocol::IntentId;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

/// A plan request, as far as a repetition has the same.
type Request = (IntentId, i32);

/// The set of requests that are worked on. It is as large as the processor's slots at most.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight(Arc<Mutex<HashSet<Request>>>);

/// Holds a request's place in the set until it is dropped, however the work ends.
#[derive(Debug)]
pub(super) struct Entry {
    set: InFlight,
    request: Request,
}

impl InFlight {
    /// Enters a request; `None` if it is there already.
    pub(super) fn enter(&self, intent: &IntentId, attempt: i32) -> Option<Entry> {
        let request = (intent.clone(), attempt);
        let entered = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(request.clone());
        entered.then(|| Entry { set: self.clone(), request })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.set.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_in_once_until_it_ends() {
        let set = InFlight::default();
        let intent = IntentId::from_string("i");
        let first = set.enter(&intent, 1);
        assert!(first.is_some() && set.enter(&intent, 1).is_none());
        assert!(set.enter(&intent, 2).is_some(), "another attempt is another request");
        drop(first);
        assert!(set.enter(&intent, 1).is_some());
    }
}
