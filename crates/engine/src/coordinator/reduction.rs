//! When the results outgrow one prompt: neighbours are condensed by tasks of their own, level by level, until what is
//! left fits into the prompt of the answer.
//!
//! How many go into one such task follows from their tokens. A level makes the results fewer, so that there is an end.
//! Where one cannot be had, because it fails or the budget does not cover it, the answer is made out of the results that
//! it was to condense; then they are shortened, and a note says so.

use super::estimate::{inputs_tokens, quarter, result_tokens};
use super::live::{Live, has_ended};
use super::planning::{by_rules, new_task};
use super::{Coordinator, CoordinatorSettings};
use starling_protocol::state::{Phase, TaskEntity};
use starling_protocol::{Failure, IntentId, TaskId, TaskKind, TaskState, Timestamp};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The note about an answer for which results had to be shortened.
const RESULTS_SHORTENED: &str = "results_shortened";

/// What is made of the results where the plan does not say it.
const DEFAULT_ANSWER: &str = "Answer the goal with the results of the tasks.";

/// What is made of results that are too many.
const INSTRUCTION: &str = "Condense these results for whoever answers the goal out of them.";

/// Of a prompt's texts, what came with the wish may take this part where results need the rest.
const PART_OF_INPUTS: i64 = 2;

/// What the answer is made of: the tasks of the plan, and in place of those that were condensed what they became. In the
/// order of the plan.
pub(super) fn tops(live: &Live) -> Vec<&TaskEntity> {
    let condensed: HashSet<&str> = live
        .digests()
        .filter(|digest| digest.state == TaskState::Succeeded)
        .flat_map(|digest| digest.depends_on.iter().map(String::as_str))
        .collect();
    if condensed.is_empty() {
        return live.plan_tasks().collect();
    }
    let mut places: HashMap<&str, i32> = HashMap::new();
    let mut tops = Vec::new();
    for task in live.steps() {
        let of_first = task.depends_on.iter().filter_map(|key| places.get(key.as_str())).min().copied();
        let place = of_first.filter(|_| task.kind == TaskKind::Reduce).unwrap_or(task.ordinal);
        places.insert(&task.key, place);
        let counts = task.kind == TaskKind::Work || task.state == TaskState::Succeeded;
        if counts && !condensed.contains(task.key.as_str()) {
            tops.push((place, task));
        }
    }
    tops.sort_by_key(|(place, _)| *place);
    tops.into_iter().map(|(_, task)| task).collect()
}

/// Tokens that the results may have in the prompt of the answer.
fn room_in_answer(settings: &CoordinatorSettings, live: &Live) -> i64 {
    let most = settings.costs.texts_tokens;
    most - quarter(live.intent.goal.len()) - inputs_tokens(live).min(most / PART_OF_INPUTS)
}

/// Whether the answer's prompt has not room for all results.
fn is_too_much(settings: &CoordinatorSettings, live: &Live, tops: &[&TaskEntity]) -> bool {
    let tokens = tops.iter().map(|task| result_tokens(task)).fold(0, i64::saturating_add);
    tokens > room_in_answer(settings, live)
}

/// Tasks whose results, which are too much, are to be condensed next, those that go together; none if it gets no better.
fn next_level(settings: &CoordinatorSettings, live: &Live, tops: &[&TaskEntity]) -> Vec<Vec<i32>> {
    let given_up = live.digests().any(|digest| digest.state != TaskState::Succeeded);
    if given_up || live.run.over_budget {
        return Vec::new();
    }
    // What failed is told to whoever makes the answer, in its own words.
    let good: Vec<&&TaskEntity> = tops.iter().filter(|task| task.state == TaskState::Succeeded).collect();
    let sizes: Vec<i64> = good.iter().map(|task| result_tokens(task)).collect();
    let room = settings.costs.texts_tokens - quarter(live.intent.goal.len()) - quarter(INSTRUCTION.len());
    let groups = neighbours(&sizes, room).into_iter().filter(|group| group.len() > 1);
    groups.filter_map(|group| Some(good.get(group)?.iter().map(|task| task.ordinal).collect())).collect()
}

/// Divides a row into parts of at most `room` each, and of about the same size. What is larger alone is a part of its own.
fn neighbours(sizes: &[i64], room: i64) -> Vec<Range<usize>> {
    let total = sizes.iter().copied().fold(0, i64::saturating_add);
    let parts = (total + room.max(1) - 1) / room.max(1);
    let share = total / parts.max(1);
    let mut groups = Vec::new();
    let (mut start, mut sum) = (0, 0_i64);
    for (at, size) in sizes.iter().enumerate() {
        if at > start && (sum.saturating_add(*size) > room || sum >= share) {
            groups.push(start..at);
            (start, sum) = (at, 0);
        }
        sum = sum.saturating_add(*size);
    }
    if start < sizes.len() {
        groups.push(start..sizes.len());
    }
    groups
}

impl Coordinator {
    /// Makes the next tasks out of the results: some that condense, or the one that makes the answer.
    pub(super) fn reduce(&mut self, id: &IntentId, trace: &str) {
        let Some(live) = self.store.live(id) else { return };
        let Some(run) = live.run.run.clone() else { return };
        let tops = tops(live);
        let too_much = is_too_much(&self.settings, live, &tops);
        let groups = if too_much { next_level(&self.settings, live, &tops) } else { Vec::new() };
        let mut ordinal = live.tasks().last().map_or(0, |task| task.ordinal.saturating_add(1));
        if groups.is_empty() {
            let wanted = live.run.answer.clone().unwrap_or_default();
            let instruction = match wanted.instruction.as_str() {
                "" => DEFAULT_ANSWER.to_owned(),
                wanted => wanted.to_owned(),
            };
            let synthesis = TaskEntity {
                task_id: TaskId::synthesis(id, &run),
                kind: TaskKind::Synthesis,
                ordinal,
                key: "synthesis".into(),
                title: "Answer".into(),
                instruction,
                terms: wanted.terms,
                agent: self.settings.synthesizer_agent.clone(),
                depends_on: tops.iter().map(|task| task.key.clone()).collect(),
                state: TaskState::Ready,
                ..new_task(id, trace)
            };
            if too_much {
                self.add_note(id, RESULTS_SHORTENED.to_owned());
            }
            return self.enter(id, Phase::Synthesizing, vec![synthesis]);
        }
        let mut digests = Vec::new();
        for group in groups {
            let parts: Vec<&TaskEntity> = group.iter().filter_map(|&ordinal| live.task(ordinal)).collect();
            let mut key = format!("digest-{ordinal}");
            while live.has_key(&key) {
                key.push('_');
            }
            digests.push(TaskEntity {
                task_id: TaskId::planned(id, &run, ordinal),
                kind: TaskKind::Reduce,
                ordinal,
                key,
                title: format!("Condense {} results", parts.len()),
                instruction: INSTRUCTION.to_owned(),
                agent: self.settings.reducer_agent.clone(),
                depends_on: parts.iter().map(|task| task.key.clone()).collect(),
                critic: parts.iter().any(|task| task.critic),
                state: TaskState::Ready,
                ..new_task(id, trace)
            });
            ordinal = ordinal.saturating_add(1);
        }
        self.enter(id, Phase::Reducing, digests);
    }

    fn enter(&mut self, id: &IntentId, phase: Phase, tasks: Vec<TaskEntity>) {
        self.store.edit_run(id, |run| run.phase = phase);
        for task in tasks {
            let ordinal = task.ordinal;
            self.store.insert_task(by_rules(&self.settings, task));
            self.touch(id, Some(ordinal));
        }
    }

    /// Gives up what was to be condensed and has not begun; what is condensed already stays.
    pub(super) fn leave_out_digests(&mut self, id: &IntentId, trace: &str) {
        let Some(live) = self.store.live(id) else { return };
        let open: Vec<i32> =
            live.digests().filter(|task| !has_ended(task.state)).map(|task| task.ordinal).collect();
        for ordinal in open {
            self.edit_task(id, ordinal, |task| {
                task.not_before = Timestamp(0);
                task.state = if task.best.is_some() { TaskState::Succeeded } else { TaskState::Skipped };
                if task.best.is_none() {
                    task.failure = Some(Failure {
                        code: super::reserve::OVER_BUDGET.to_owned(),
                        message: "the budget leaves no room to condense these results".to_owned(),
                        retryable: false,
                    });
                }
            });
        }
        self.close_if_done(id, trace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init)] // one range is what is expected
    fn neighbours_share_the_room_evenly_and_none_is_left_out() {
        for (sizes, room, expected) in [
            (&[][..], 10, &[][..]),
            (&[4], 10, &[0..1][..]),
            (&[4, 4, 4, 4], 10, &[0..2, 2..4]),
            (&[4, 4, 4, 4, 4], 10, &[0..2, 2..4, 4..5]),
            (&[30, 1, 1], 10, &[0..1, 1..3]),
            (&[1, 30, 1], 10, &[0..1, 1..2, 2..3]),
            (&[3, 3, 3, 3, 3, 3], 10, &[0..3, 3..6]),
            (&[5, 5], 0, &[0..1, 1..2]),
            (&[5, 5], -7, &[0..1, 1..2]),
        ] {
            assert_eq!(neighbours(sizes, room), expected, "{sizes:?} in {room}");
        }
    }
}
