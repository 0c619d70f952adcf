//! From the book of an intent to its account.

mod calls;
mod effects;
mod inbox;
mod letters;
mod outcome;
mod references;
mod ruling;
mod tree;
mod work;

use crate::account::{Account, Cause, Counts, Entry, Standing, Status};
use crate::book::{Book, Decided, Fact};
use crate::ledger::{Ledger, Terms};
use crate::place::Place;
use crate::record::Print;
use crate::said::{Said, StepName};
use crate::state_log::StateLog;
use ruling::Ruling;
use starling_protocol::{EnvelopeId, IntentId, RunId, Timestamp, Topic};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Everything that is known of one intent, with what is needed to find one's way in it.
pub(crate) struct Case<'l> {
    ledger: &'l Ledger,
    id: &'l IntentId,
    book: &'l Book,
    /// The partition of the coordinator's inbox that is the intent's.
    home: i32,
    /// Its state log; `None` if it was not read.
    log: Option<&'l StateLog>,
    terms: Terms,
    at: HashMap<&'l Place, usize>,
    /// Dead letters, by what they were.
    letters: HashMap<&'l Place, Vec<usize>>,
    /// Records that were decided to be dead letters, whether or not they are there yet.
    buried: HashSet<&'l Place>,
    /// Results and turns, with critics and with the coordinator, by what they answer.
    results: BTreeMap<&'l StepName, Vec<usize>>,
    /// Everything that the coordinator was told about a step, in its order.
    answers: HashMap<&'l StepName, Vec<usize>>,
    /// Verdicts with the coordinator, by the offset of what they judge.
    verdicts: HashMap<i64, Vec<usize>>,
    /// Tasks as they lie with workers.
    sent: HashMap<&'l StepName, usize>,
    /// Parts of plans with the coordinator: the first of each name.
    parts: HashMap<(&'l RunId, i32), usize>,
    by_id: HashMap<&'l EnvelopeId, Vec<usize>>,
    decided_by_id: HashMap<&'l EnvelopeId, Vec<usize>>,
    /// Effects that were decided.
    decided: HashMap<Print, Vec<usize>>,
    /// Records with the same bytes, in their order.
    copies: HashMap<Print, Vec<usize>>,
    cancelled: bool,
}

impl<'l> Case<'l> {
    pub(crate) fn new(ledger: &'l Ledger, id: &'l IntentId, book: &'l Book, home: i32, terms: Terms) -> Self {
        let mut case = Self {
            ledger,
            id,
            book,
            home,
            log: ledger.states.get(&home).filter(|log| !log.is_void()),
            terms,
            at: HashMap::new(),
            letters: HashMap::new(),
            buried: book.decided.iter().filter_map(|decided| decided.origin.as_ref()).collect(),
            results: BTreeMap::new(),
            answers: HashMap::new(),
            verdicts: HashMap::new(),
            sent: HashMap::new(),
            parts: HashMap::new(),
            by_id: HashMap::new(),
            decided_by_id: HashMap::new(),
            decided: HashMap::new(),
            copies: HashMap::new(),
            cancelled: book.decided.iter().any(|decided| decided.topic == Topic::Control),
        };
        book.facts.iter().enumerate().for_each(|(n, fact)| case.index(n, fact));
        for (n, decided) in book.decided.iter().enumerate() {
            case.decided.entry(decided.print).or_default().push(n);
            case.decided_by_id.entry(&decided.stamp.id).or_default().push(n);
        }
        case
    }

    fn index(&mut self, n: usize, fact: &'l Fact) {
        self.at.insert(&fact.place, n);
        self.copies.entry(fact.print).or_default().push(n);
        self.by_id.entry(&fact.stamp.id).or_default().push(n);
        self.cancelled |= fact.place.topic == Topic::Control;
        if let Some(origin) = &fact.origin {
            self.letters.entry(origin).or_default().push(n);
        }
        let is_input = fact.place.topic == Topic::Coordinator;
        if is_input
            && fact.place.partition == self.home
            && let Some(name) = fact.said.step()
        {
            self.answers.entry(name).or_default().push(n);
        }
        match (&fact.place.topic, &fact.said) {
            (Topic::Critic | Topic::Coordinator, Said::Result { name, .. } | Said::Turn { name, .. }) => {
                self.results.entry(name).or_default().push(n);
            }
            (Topic::Coordinator, Said::Verdict { result, .. }) => {
                self.verdicts.entry(result.offset).or_default().push(n);
            }
            (Topic::Coordinator, Said::Fragment { run, seq, .. }) => {
                self.parts.entry((run, *seq)).or_insert(n);
            }
            (Topic::Worker(_), Said::Task { name, .. }) => {
                self.sent.entry(name).or_insert(n);
            }
            _ => {}
        }
    }

    fn facts<'c>(&'c self, numbers: Option<&'c Vec<usize>>) -> impl Iterator<Item = &'c Fact> {
        numbers.into_iter().flatten().filter_map(|n| self.book.facts.get(*n))
    }

    pub(crate) fn account(&self) -> Account {
        let mut entries: Vec<Entry> = Vec::new();
        let mut taken: HashSet<&Place> = HashSet::new();
        for fact in &self.book.facts {
            let ruling = self.rule(fact);
            if ruling.status == Status::Original {
                taken.insert(&fact.place);
            }
            entries.push(entry(
                Some(fact.place.clone()),
                fact.at,
                &fact.said,
                fact.stamp.id.as_str(),
                ruling,
            ));
        }
        entries.extend(self.missing_effects());
        entries.extend(self.missing_outcomes());
        let live = self.is_live();
        let mut counts = Counts::default();
        entries.iter().for_each(|entry| counts.add(entry.status, 1));
        let notes = self.notes();
        Account {
            intent_id: self.id.clone(),
            standing: self.standing(&entries, live),
            live,
            outcome: self.outcome(),
            progress: self.book.progress,
            parts: self.parts(),
            repeated: self.repeated_calls(&taken),
            moved: self.moved_tasks(),
            counts,
            notes,
            entries: tree::in_causal_order(self, entries),
        }
    }

    /// What a record is, and what became of it.
    fn rule(&self, fact: &Fact) -> Ruling {
        let ruling = match (&fact.place.topic, &fact.said) {
            (_, Said::Unreadable { newer: true, .. }) if !self.is_letter(&fact.place) => {
                Ruling::new(Status::Unaccounted, "a newer version must account for it")
            }
            (Topic::Dlq, _) => self.letter(fact),
            (Topic::Intents, _) => self.published(fact),
            (Topic::Coordinator, _) => self.input(fact),
            (Topic::Planner, Said::PlanRequest { attempt }) => {
                self.decided_effect(fact).and(self.plan_request(fact, *attempt))
            }
            (Topic::Worker(_), Said::Task { name, .. }) => {
                self.decided_effect(fact).and(self.task(fact, name))
            }
            (Topic::Critic, Said::Result { name, .. }) => self.result_for_critic(fact, name),
            (Topic::Outcomes, Said::Outcome { .. }) => {
                self.decided_effect(fact).and(self.one_of_outcomes(fact))
            }
            (Topic::Control, Said::Cancel) => self.decided_effect(fact),
            _ => self.unexpected(fact),
        };
        ruling.and(self.references_of(&fact.references))
    }

    /// Something in a topic in which it has no business.
    fn unexpected(&self, fact: &Fact) -> Ruling {
        let inbox = matches!(fact.place.topic, Topic::Planner | Topic::Worker(_) | Topic::Critic);
        if self.is_letter(&fact.place) {
            self.dead_letter_of(fact)
        } else if inbox && !self.ledger.cut.is_handled(&fact.place) {
            Ruling::new(Status::Pending, "it has no business here, and nobody has read it yet")
        } else if inbox {
            self.dropped(&Topic::Dlq, None, fact.at, "nobody could use it, and it is not in the dead letters")
        } else {
            Ruling::new(Status::Unaccounted, format!("no {} belongs here", fact.said.kind()))
        }
    }

    /// The record is said to be done and has no consequence: it was dropped, if that can be known.
    fn dropped(&self, topic: &Topic, partition: Option<i32>, since: Timestamp, why: &str) -> Ruling {
        if self.may_be_lost(topic, partition, since) {
            let why = format!("{why}; what would show it may be deleted from {}", topic.suffix());
            return Ruling::new(Status::Unknown, why);
        }
        Ruling::breaks(crate::Promise::NothingDropped, why)
    }

    fn may_be_lost(&self, topic: &Topic, partition: Option<i32>, since: Timestamp) -> bool {
        self.ledger.beginnings.may_have_lost(&self.ledger.cut, topic, partition, since)
    }

    fn cause_of(&self, decided: &Decided) -> Cause {
        Cause::Decision(Place::new(Topic::State, decided.number, decided.state), decided.seq)
    }

    /// Whether it goes on, as far as the log says. One that nobody has decided anything of may still come, if people
    /// do not have it.
    fn is_live(&self) -> bool {
        let state = &self.book.state;
        if state.accepted.is_some() || !state.ended.is_empty() || self.outcome().is_some() {
            return state.is_live();
        }
        let begins = |fact: &&Fact| matches!(fact.said, Said::Published | Said::Intent | Said::Rejection);
        self.book.facts.iter().filter(begins).any(|fact| !self.is_letter(&fact.place))
    }

    /// Its last records may still be on their way.
    fn has_just_ended(&self) -> bool {
        let ended = self.book.state.ended_at;
        ended.is_some_and(|ended| self.terms.now.0 <= ended.saturating_add(self.terms.overdue_ms))
    }

    fn standing(&self, entries: &[Entry], live: bool) -> Standing {
        let worst = entries.iter().map(|entry| entry.status).max();
        match worst {
            Some(Status::Violation) => Standing::Violated,
            Some(Status::Unaccounted) | None => Standing::Unaccounted,
            _ if self.book.left_out > 0 || self.log.is_none() => Standing::Unaccounted,
            Some(Status::Pending) if self.terms.ended || !(live || self.has_just_ended()) => {
                Standing::Unaccounted
            }
            Some(Status::Pending) => Standing::Live,
            _ if live && self.terms.ended => Standing::Unaccounted,
            _ if live => Standing::Live,
            _ => Standing::Clean,
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.book.left_out > 0 {
            notes.push(format!("{} records are beyond the limit and not accounted for", self.book.left_out));
        }
        if self.book.facts.is_empty() && self.book.decided.is_empty() {
            notes.push(
                "nothing is known of it: it was never published, or its records are deleted".to_owned(),
            );
        }
        match self.log {
            None => notes.push(format!("state[{}] was not read or cannot be believed", self.home)),
            Some(log) => {
                if let Some(base) = log.base() {
                    notes.push(format!("state[{}] begins after decision {}", self.home, base.seq));
                }
            }
        }
        let gone = self.gone_references();
        if gone > 0 {
            notes.push(format!("{gone} references lead to records that are deleted"));
        }
        notes
    }
}

fn entry(record: Option<Place>, at: Timestamp, said: &Said, id: &str, ruling: Ruling) -> Entry {
    Entry {
        record,
        kind: said.kind(),
        id: id.to_owned(),
        about: said.about(),
        at: at.0,
        causes: ruling.causes,
        status: ruling.status,
        promise: ruling.promise,
        why: ruling.why,
        depth: 0,
    }
}
