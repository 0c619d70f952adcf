//! The parts of long inputs: stored before their intents, and referred to by them. They belong to no intent, and are
//! looked at only where one refers to them.

use crate::{Extent, Place};
use starling_protocol::{Codec, Envelope, EnvelopeId, RecordRef, Topic, ids::content_digest};
use std::collections::{BTreeMap, HashMap};

/// Parts that intents refer to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    /// Those that were there, by partition and offset.
    found: HashMap<(i32, i64), Found>,
}

#[derive(Clone, Debug)]
struct Found {
    /// `None` if it is no envelope.
    id: Option<EnvelopeId>,
    digest: String,
}

impl Contents {
    /// Takes a record in.
    pub(crate) fn observe(&mut self, codec: &Codec, at: &Place, value: &[u8]) {
        let id = codec.decode::<Envelope>(value).ok().map(|envelope| envelope.id);
        self.found.insert((at.partition, at.offset), Found { id, digest: content_digest(value) });
    }

    /// Whether the part that is referred to is there; `None` if nothing is.
    pub(crate) fn is_it(&self, at: &Place, reference: &RecordRef) -> Option<bool> {
        let found = self.found.get(&(at.partition, at.offset))?;
        let is_digest = reference.digest.is_empty() || found.digest == reference.digest;
        Some(found.id.as_ref() == Some(&reference.envelope_id) && is_digest)
    }
}

/// How far the parts lie, by partition, that places of these are.
pub(crate) fn extents<'p>(places: impl Iterator<Item = &'p Place>) -> BTreeMap<i32, Extent> {
    let mut extents: BTreeMap<i32, Extent> = BTreeMap::new();
    for place in places.filter(|place| place.topic == Topic::Content) {
        let own = Extent { low: place.offset, high: place.offset.saturating_add(1) };
        let extent = extents.entry(place.partition).or_insert(own);
        extent.low = extent.low.min(own.low);
        extent.high = extent.high.max(own.high);
    }
    extents
}
