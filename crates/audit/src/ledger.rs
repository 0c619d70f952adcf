//! The ledger: takes records in, one after the other, and gives accounts.

use crate::account::Account;
use crate::book::{Book, Fact};
use crate::content::{Contents, extents};
use crate::fleet::Owners;
use crate::judge::Case;
use crate::place::Beginnings;
use crate::record::{LogRecord, origin, reason, topic_named};
use crate::said::{Said, Stamp, references};
use crate::state_log::{Reading, StateLog};
use crate::{Cut, Extent, Place, Stray};
use starling_protocol::dead_letter::Burial;
use starling_protocol::headers::STARLING_INTENT_ID;
use starling_protocol::ids::content_digest;
use starling_protocol::incoming::{IntentLimits, read_intent};
use starling_protocol::topic::partition_of;
use starling_protocol::{
    Body, Codec, DecodeError, Envelope, EnvelopeId, IntentId, Timestamp, Topic, TopicNames,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Which intents are asked for.
#[derive(Clone, Debug)]
pub enum Scope {
    /// These.
    Named(BTreeSet<IntentId>),
    /// Every one that began at that time or later, or if no time is said, every one that anything is read of.
    Begun {
        /// The earliest time.
        since: Option<Timestamp>,
        /// The time before which it began.
        until: Option<Timestamp>,
    },
}

/// How much is held at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Intents.
    pub intents: usize,
    /// Names of intents that wait for another reading, because there was no place for them.
    pub waiting: usize,
    /// Records of one intent, effects of decisions included.
    pub records: usize,
    /// Records that belong to no intent.
    pub strays: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { intents: 1_000, waiting: 100_000, records: 50_000, strays: 10_000 }
    }
}

/// What an installation is like.
#[derive(Clone, Debug)]
pub struct Installation {
    /// Reads values.
    pub codec: Codec,
    /// Names of the topics.
    pub names: TopicNames,
    /// Partitions of the coordinator's inbox.
    pub coordinators: i32,
    /// Bounds of what the intake takes.
    pub intents: IntentLimits,
}

/// On which terms accounts are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The present time.
    pub now: Timestamp,
    /// Nothing may be under way any more: what is pending is unaccounted for.
    pub ended: bool,
    /// How long after its deadline an intent may take to end, and how long after its end its last records may be
    /// under way, in milliseconds.
    pub overdue_ms: i64,
}

/// Takes the records of an installation in, and accounts for them.
///
/// Within a partition records must come in their order; topics may come in any order, but the state log last: of
/// intents that it does not know by then, it keeps nothing.
pub struct Ledger {
    pub(crate) installation: Installation,
    scope: Scope,
    limits: Limits,
    pub(crate) cut: Cut,
    books: BTreeMap<IntentId, Book>,
    waiting: BTreeSet<IntentId>,
    crowded_out: usize,
    strays: Vec<Fact>,
    strays_left_out: usize,
    pub(crate) contents: Contents,
    /// Places of parts that intents refer to, as far as they are known.
    referred: Option<HashSet<Place>>,
    /// Of each partition of the coordinator's inbox: how many records are between coordinators, and the last of them.
    leases: BTreeMap<i32, (usize, i64)>,
    pub(crate) states: BTreeMap<i32, StateLog>,
    pub(crate) beginnings: Beginnings,
    pub(crate) owners: Owners,
}

impl Ledger {
    /// A ledger in which nothing stands yet.
    #[must_use]
    pub fn new(installation: Installation, scope: Scope, limits: Limits, cut: Cut) -> Self {
        let books = match &scope {
            Scope::Named(ids) => ids.iter().map(|id| (id.clone(), Book::default())).collect(),
            Scope::Begun { .. } => BTreeMap::new(),
        };
        Self {
            installation,
            scope,
            limits,
            cut,
            books,
            waiting: BTreeSet::new(),
            crowded_out: 0,
            strays: Vec::new(),
            strays_left_out: 0,
            contents: Contents::default(),
            referred: None,
            leases: BTreeMap::new(),
            states: BTreeMap::new(),
            beginnings: Beginnings::default(),
            owners: Owners::default(),
        }
    }

    /// Takes a record of `topic` in.
    pub fn observe(&mut self, topic: &Topic, record: &LogRecord<'_>) {
        let place = record.place(topic);
        self.beginnings.note(&place, record.timestamp);
        match topic {
            Topic::State => self.observe_state(record),
            Topic::Fleet => self.observe_beat(record),
            Topic::Intents => self.observe_published(place, record),
            Topic::Dlq => self.observe_letter(place, record),
            Topic::Content => {
                if self.is_referred_to(&place) {
                    self.contents.observe(&self.installation.codec, &place, record.bytes());
                }
            }
            _ => self.observe_envelope(place, record),
        }
    }

    /// Where the parts of long inputs lie that the intents in the ledger refer to, by partition: only these are worth
    /// reading, after all else.
    pub fn contents(&mut self) -> BTreeMap<i32, Extent> {
        let names = &self.installation.names;
        let facts = self.books.values().flat_map(|book| &book.facts);
        let places = facts.flat_map(|fact| &fact.references).filter_map(|to| {
            let topic = topic_named(names, &to.topic).filter(|topic| *topic == Topic::Content)?;
            Some(Place::new(topic, to.partition, to.offset))
        });
        let referred: HashSet<Place> = places.collect();
        let extents = extents(referred.iter());
        self.referred = Some(referred);
        extents
    }

    /// Whether it is worth keeping; all are, as long as nobody has asked which.
    fn is_referred_to(&self, part: &Place) -> bool {
        self.referred.as_ref().is_none_or(|referred| referred.contains(part))
    }

    /// The intents of which something stands in the ledger, with their accounts.
    pub fn accounts(&self, terms: Terms) -> impl Iterator<Item = Account> {
        self.books.keys().filter_map(move |id| self.account(id, terms))
    }

    /// The account of an intent; `None` if it was not asked for.
    #[must_use]
    pub fn account(&self, id: &IntentId, terms: Terms) -> Option<Account> {
        let book = self.books.get(id)?;
        let home = partition_of(id.as_str(), self.installation.coordinators);
        Some(Case::new(self, id, book, home, terms).account())
    }

    /// Intents for which there was no place: another reading must ask for them by name.
    #[must_use]
    pub fn waiting(&self) -> &BTreeSet<IntentId> {
        &self.waiting
    }

    /// Records of intents whose names could not even be kept for another reading.
    #[must_use]
    pub fn crowded_out(&self) -> usize {
        self.crowded_out
    }

    /// Records that belong to no intent, because nobody can read them, with what became of them.
    pub fn strays(&self, terms: Terms) -> Vec<Stray> {
        crate::stray::judge(self, &self.strays, terms)
    }

    /// Records that belong to no intent and for which there was no place.
    #[must_use]
    pub fn strays_left_out(&self) -> usize {
        self.strays_left_out
    }

    /// Records in which coordinators lease budgets of tenants to each other, and which of the partitions that they lie
    /// in have not decided all of them. They are no intent's; what became of each follows from the state of the partition.
    #[must_use]
    pub fn leases(&self) -> (usize, Vec<i32>) {
        let decided = |number: &i32, last: i64| {
            self.states.get(number).is_some_and(|log| log.decision_of(last).is_some())
        };
        let open = self.leases.iter().filter(|(number, (_, last))| !decided(number, *last));
        (self.leases.values().map(|(count, _)| count).sum(), open.map(|(number, _)| *number).collect())
    }

    /// What is wrong with the state log, where it cannot be believed.
    #[must_use]
    pub fn state_faults(&self) -> Vec<String> {
        let fault = |(number, log): (&i32, &StateLog)| {
            log.refusal.as_ref().map(|refusal| format!("state[{number}]: {refusal}"))
        };
        self.states.iter().filter_map(fault).collect()
    }

    /// The records that dead letters of intents were.
    pub(crate) fn origins(&self) -> impl Iterator<Item = &Place> {
        self.books.values().flat_map(|book| &book.facts).filter_map(|fact| fact.origin.as_ref())
    }

    fn observe_state(&mut self, record: &LogRecord<'_>) {
        let Installation { codec, names, coordinators, .. } = &self.installation;
        let done_by = self.cut.done_by.get(&record.partition).copied();
        let room = self.limits.records;
        let reading = Reading { codec, names, partition: record.partition, done_by, room };
        let log = self.states.entry(record.partition).or_insert_with(|| StateLog::new(*coordinators));
        log.observe(&reading, record.offset, record.bytes(), &mut self.books);
    }

    fn observe_beat(&mut self, record: &LogRecord<'_>) {
        if let Ok(beat) = self.installation.codec.decode(record.bytes()) {
            self.owners.hear(record.timestamp, beat);
        }
    }

    fn observe_published(&mut self, place: Place, record: &LogRecord<'_>) {
        let Installation { codec, names, intents, .. } = &self.installation;
        let read = read_intent(codec, intents, record.bytes(), record.header("content-type"));
        let named = match read {
            Ok(parsed) => parsed.id,
            Err(invalid) => invalid.id,
        };
        let of_record = || IntentId::of_record(&names.name(&Topic::Intents), record.partition, record.offset);
        let id = named.or_else(|| place_taken(record)).unwrap_or_else(of_record);
        if self.admits(&id, record.timestamp, true) {
            let stamp = Stamp { id: EnvelopeId::from_string(""), created_at: record.timestamp };
            self.keep(&id, fact(place, record, stamp, Said::Published));
        }
    }

    fn observe_envelope(&mut self, place: Place, record: &LogRecord<'_>) {
        if !self.may_concern(record) {
            return;
        }
        let envelope: Envelope = match self.installation.codec.decode(record.bytes()) {
            Ok(envelope) => envelope,
            // Tombstones are how compaction forgets.
            Err(_) if record.value.is_none() && place.topic == Topic::Control => return,
            Err(error) => return self.stray(place, record, &error),
        };
        if place.topic == Topic::Coordinator && is_lease(&envelope.body) {
            let (count, last) = self.leases.entry(place.partition).or_insert((0, 0));
            (*count, *last) = (*count + 1, place.offset);
            return;
        }
        let begins = matches!(envelope.body, Body::Intent(_) | Body::Rejection(_));
        // It bears the time at which it was published.
        let time = if begins { envelope.created_at } else { record.timestamp };
        if !self.admits(&envelope.intent_id, time, begins) {
            return;
        }
        // Elsewhere it has no business, and somebody must have said so.
        if place.topic == Topic::Progress {
            if let Some(book) = self.books.get_mut(&envelope.intent_id) {
                book.progress += 1;
            }
            return;
        }
        let stamp = Stamp { id: envelope.id, created_at: envelope.created_at };
        let mut fact = fact(place, record, stamp, Said::of(&envelope.body));
        fact.references = references(&envelope.body);
        self.keep(&envelope.intent_id, fact);
    }

    /// Whether a record can be about somebody who is asked for: an envelope holds the id of its intent as it is.
    /// Saves decoding where one intent is looked for among many.
    fn may_concern(&self, record: &LogRecord<'_>) -> bool {
        let Scope::Named(ids) = &self.scope else { return true };
        if ids.len() > 1 {
            return true;
        }
        ids.iter().any(|id| {
            let id = id.as_str();
            record.subject() == Some(id)
                || record.bytes().windows(id.len().max(1)).any(|window| window == id.as_bytes())
        })
    }

    fn observe_letter(&mut self, place: Place, record: &LogRecord<'_>) {
        if record.is_mark() {
            return;
        }
        let Installation { codec, names, intents, .. } = &self.installation;
        let burial = Burial::read(record.headers);
        let origin = burial.as_ref().and_then(|burial| origin(names, burial));
        let subject = record.subject().map(IntentId::from_string);
        let (id, stamp) = match &origin {
            Some(Place { topic: Topic::Intents, partition, offset }) => {
                let read = read_intent(codec, intents, record.bytes(), record.header("content-type"));
                let named = read.map_or_else(|invalid| invalid.id, |parsed| parsed.id);
                let named = named.or_else(|| place_taken(record)).or(subject);
                let topic = names.name(&Topic::Intents);
                (Some(named.unwrap_or_else(|| IntentId::of_record(&topic, *partition, *offset))), None)
            }
            _ => match codec.decode::<Envelope>(record.bytes()) {
                Ok(envelope) => (
                    Some(envelope.intent_id),
                    Some(Stamp { id: envelope.id, created_at: envelope.created_at }),
                ),
                Err(_) => (subject, None),
            },
        };
        let stamp = stamp.unwrap_or(Stamp { id: EnvelopeId::from_string(""), created_at: record.timestamp });
        let mut fact = fact(place, record, stamp, Said::Letter { reason: reason(burial.as_ref()) });
        fact.origin = origin;
        if let Some(omitted) = burial.and_then(|burial| burial.omitted) {
            // What it was is told, or must be believed.
            fact.digest = omitted.digest.unwrap_or_default();
        }
        // What coordinators say to each other belongs to no intent.
        match id.filter(|id| !id.is_address()) {
            Some(id) if self.admits(&id, record.timestamp, false) => self.keep(&id, fact),
            Some(_) => {}
            None => self.keep_stray(fact),
        }
    }

    /// A record that is no envelope belongs to whom its headers name, if that is somebody who was asked for.
    fn stray(&mut self, place: Place, record: &LogRecord<'_>, error: &DecodeError) {
        let stamp = Stamp { id: EnvelopeId::from_string(""), created_at: record.timestamp };
        let fact =
            fact(place, record, stamp, Said::Unreadable { why: error.to_string(), newer: error.is_newer() });
        match record.subject().map(IntentId::from_string) {
            Some(id) if self.books.contains_key(&id) => self.keep(&id, fact),
            _ => self.keep_stray(fact),
        }
    }

    fn keep_stray(&mut self, fact: Fact) {
        if let Scope::Named(_) = self.scope {
            return;
        }
        if self.strays.len() < self.limits.strays {
            self.strays.push(fact);
        } else {
            self.strays_left_out += 1;
        }
    }

    /// Whether a record of that intent is to be kept; opens its book, if it is asked for and there is a place.
    fn admits(&mut self, id: &IntentId, time: Timestamp, begins: bool) -> bool {
        if self.books.contains_key(id) {
            return true;
        }
        let Scope::Begun { since, until } = self.scope else { return false };
        let in_time = since.is_none_or(|since| time >= since) && until.is_none_or(|until| time < until);
        // Where only the later ones are asked for, what an earlier one has left is nothing to be asked about.
        if !in_time || !(begins || (since.is_none() && until.is_none())) {
            return false;
        }
        if self.books.len() < self.limits.intents {
            self.books.insert(id.clone(), Book::default());
            return true;
        }
        if self.waiting.len() < self.limits.waiting {
            self.waiting.insert(id.clone());
        } else if !self.waiting.contains(id) {
            self.crowded_out += 1;
        }
        false
    }

    fn keep(&mut self, id: &IntentId, fact: Fact) {
        let Some(book) = self.books.get_mut(id) else { return };
        if book.facts.len() + book.decided.len() < self.limits.records {
            book.facts.push(fact);
        } else {
            book.left_out += 1;
        }
    }
}

fn is_lease(body: &Body) -> bool {
    matches!(body, Body::LeaseRequest(_) | Body::LeaseGrant(_))
}

/// The intent whose place a published record takes that was replayed from the dead letters.
fn place_taken(record: &LogRecord<'_>) -> Option<IntentId> {
    record.header(STARLING_INTENT_ID).and_then(|id| IntentId::parse(id).ok())
}

fn fact(place: Place, record: &LogRecord<'_>, stamp: Stamp, said: Said) -> Fact {
    let print = record.print(&place.topic);
    let replayed = record.is_replayed(&place.topic);
    Fact {
        place,
        at: record.timestamp,
        stamp,
        said,
        print,
        digest: content_digest(record.bytes()),
        references: Vec::new(),
        origin: None,
        replayed,
    }
}
