//! The state as tables of texts: what the screen and the plain snapshot have in common.

use super::state::{IntentState, State};
use crate::{
    installation::{ranges, role_of},
    report::duration,
};
use ratatui::layout::Constraint;
use starling_protocol::{IntentId, Timestamp, TopicNames};

/// What stands for a figure that is not known.
const UNKNOWN: &str = "-";

/// A table.
#[derive(Clone, Debug)]
pub struct Pane {
    /// What it is about.
    pub title: &'static str,
    /// Columns: name, and how wide on a screen.
    pub columns: Vec<(&'static str, Constraint)>,
    /// Rows, as many texts as there are columns.
    pub rows: Vec<Vec<String>>,
}

/// How many there are.
pub(super) const PANES: usize = 5;

/// All panes, in their order.
#[must_use]
pub fn panes(state: &State, names: &TopicNames, now: Timestamp) -> [Pane; PANES] {
    [services(state, names, now), topics(state), intents(state, now), failures(state, now), models(state)]
}

/// The sums, on one line.
#[must_use]
pub(super) fn totals(state: &State) -> String {
    let totals = &state.totals;
    let running = state.intents.values().filter(|intent| !intent.ended).count();
    format!(
        "{running} running; {} ended, {} succeeded; {} tokens, cost {}",
        totals.intents,
        totals.succeeded,
        totals.tokens,
        dollars(totals.cost)
    )
}

fn services(state: &State, names: &TopicNames, now: Timestamp) -> Pane {
    let rows = state.members.values().map(|member| {
        let beat = &member.beat;
        let process = beat.process.split('/').next().unwrap_or_default();
        // The coordinator has no slots: it decides one batch after the other.
        let slots = if beat.slots > 0 { format!("{}/{}", beat.busy, beat.slots) } else { UNKNOWN.to_owned() };
        let has = if beat.partitions.is_empty() { UNKNOWN.to_owned() } else { ranges(&beat.partitions) };
        vec![
            role_of(beat, names),
            process.to_owned(),
            if beat.pool.is_empty() { UNKNOWN.to_owned() } else { beat.pool.clone() },
            slots,
            has,
            beat.version.clone(),
            age(now, member.heard),
        ]
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_unstable();
    Pane {
        title: "Services",
        columns: vec![
            ("service", Constraint::Length(12)),
            ("process", Constraint::Fill(3)),
            ("pool", Constraint::Length(6)),
            ("busy", Constraint::Length(7)),
            ("partitions", Constraint::Fill(2)),
            ("version", Constraint::Length(8)),
            ("beat", Constraint::Length(7)),
        ],
        rows,
    }
}

fn topics(state: &State) -> Pane {
    let rows = state.topics.iter().map(|topic| {
        let figures = &topic.figures;
        vec![
            figures.name.clone(),
            known(figures.partitions),
            topic.pace().map_or_else(|| UNKNOWN.to_owned(), |pace| format!("{pace:.1}")),
            known(figures.lag),
            known(figures.members),
            known(figures.unread),
        ]
    });
    Pane {
        title: "Topics",
        columns: vec![
            ("topic", Constraint::Fill(1)),
            ("parts", Constraint::Length(6)),
            ("rec/s", Constraint::Length(9)),
            ("lag", Constraint::Length(8)),
            ("members", Constraint::Length(8)),
            ("unread", Constraint::Length(7)),
        ],
        rows: rows.collect(),
    }
}

fn intents(state: &State, now: Timestamp) -> Pane {
    let mut all: Vec<(&IntentId, &IntentState)> = state.intents.iter().collect();
    // What runs comes first, and then the latest.
    all.sort_by_key(|(id, intent)| (intent.ended, std::cmp::Reverse(intent.changed), *id));
    let rows = all.into_iter().map(|(id, intent)| {
        let tasks = intent.tasks;
        let done = if tasks.total > 0 {
            format!("{}/{}", tasks.succeeded + tasks.failed, tasks.total)
        } else {
            UNKNOWN.to_owned()
        };
        vec![
            id.to_string(),
            intent.phase.clone(),
            done,
            dollars(intent.cost),
            known(intent.tokens),
            intent.age(now).map_or_else(|| UNKNOWN.to_owned(), duration),
        ]
    });
    Pane {
        title: "Intents",
        columns: vec![
            ("intent", Constraint::Fill(1)),
            ("state", Constraint::Length(12)),
            ("tasks", Constraint::Length(8)),
            ("cost", Constraint::Length(9)),
            ("tokens", Constraint::Length(8)),
            ("age", Constraint::Length(12)),
        ],
        rows: rows.collect(),
    }
}

/// Models at which some process is limited or has to wait; the others are asked as fast as there is something to ask.
fn models(state: &State) -> Pane {
    let rows = state.models().into_iter().map(|(name, of)| {
        vec![
            name.model,
            name.endpoint,
            of.processes.to_string(),
            format!("{:.1}", of.demand),
            of.found.map_or_else(|| UNKNOWN.to_owned(), |rate| format!("{rate:.1}")),
            of.open.to_string(),
            of.waiting.to_string(),
            of.breaker().to_owned(),
        ]
    });
    Pane {
        title: "Models that limit",
        columns: vec![
            ("model", Constraint::Fill(1)),
            ("endpoint", Constraint::Fill(1)),
            ("procs", Constraint::Length(5)),
            ("wanted/s", Constraint::Length(8)),
            ("allowed/s", Constraint::Length(9)),
            ("open", Constraint::Length(5)),
            ("waiting", Constraint::Length(7)),
            ("breaker", Constraint::Length(9)),
        ],
        rows: rows.collect(),
    }
}

fn failures(state: &State, now: Timestamp) -> Pane {
    let rows = state.failures.iter().map(|failure| {
        vec![age(now, failure.at), failure.kind.clone(), failure.what.clone(), one_line(&failure.reason)]
    });
    Pane {
        title: "Failures",
        columns: vec![
            ("ago", Constraint::Length(12)),
            ("what", Constraint::Length(12)),
            ("of", Constraint::Fill(1)),
            ("why", Constraint::Fill(2)),
        ],
        rows: rows.collect(),
    }
}

fn dollars(cost: Option<f64>) -> String {
    known(cost.map(|cost| format!("${cost:.4}")))
}

fn known(figure: Option<impl ToString>) -> String {
    figure.map_or_else(|| UNKNOWN.to_owned(), |figure| figure.to_string())
}

fn age(now: Timestamp, at: Timestamp) -> String {
    duration(i64::try_from(now.since(at).as_millis()).unwrap_or(i64::MAX))
}

/// A text of somebody else's must neither break the table nor command the terminal.
fn one_line(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    clean.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// All panes as plain text.
#[must_use]
pub fn plain(state: &State, names: &TopicNames, now: Timestamp) -> String {
    let mut text = format!("{}\n", totals(state));
    for pane in panes(state, names, now) {
        text.push_str(&format!("\n{} ({})\n", pane.title, pane.rows.len()));
        let head: Vec<String> = pane.columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&head).chain(&pane.rows).collect();
        let width = |column: usize| {
            lines.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        for row in lines {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            text.push_str(format!("  {}", cells.join("  ")).trim_end());
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::state::{Update, tests::*};
    use super::*;
    use starling_protocol::OutcomeStatus;

    #[test]
    fn a_snapshot_as_plain_text() {
        let state = state_of(vec![
            (9_500, asking(beat("worker-a-1/s.worker", "worker", 9_500, true), 40.0, 45.5, 1)),
            (9_600, asking(beat("planner-a-1/coordinator", "planner", 9_600, true), 30.0, 0.0, 0)),
            (8_000, Update::Topics(vec![topic("worker", Some(100), Some(3)), topic("dlq", None, None)])),
            (10_000, Update::Topics(vec![topic("worker", Some(150), Some(4)), topic("dlq", None, None)])),
            (0, progress("i-running", 7_000, "running", 1, 3)),
            (0, outcome("i-good", 6_000, OutcomeStatus::Succeeded)),
            (0, outcome("i-bad", 8_000, OutcomeStatus::Failed)),
            (
                0,
                Update::DeadLetter {
                    at: Timestamp(9_000),
                    from: "s.worker[3]@7".into(),
                    reason: "not\na\u{1b}[31m record".into(),
                },
            ),
        ]);
        let text = plain(&state, &TopicNames::new("s"), Timestamp(10_000));
        let expected = "\
1 running; 2 ended, 1 succeeded; 300 tokens, cost $0.5000

Services (2)
  service      process      pool  busy  partitions  version  beat
  coordinator  planner-a-1  -     1/4   0-2, 5      0.1.0    400 ms
  worker       worker-a-1   -     1/4   0-2, 5      0.1.0    500 ms

Topics (2)
  topic   parts  rec/s  lag  members  unread
  worker  12     25.0   4    2        0
  dlq     12     -      -    -        -

Intents (3)
  intent     state      tasks  cost     tokens  age
  i-running  running    1/3    -        -       3.0 s
  i-bad      failed     3/3    $0.2500  150     4.0 s
  i-good     succeeded  3/3    $0.2500  150     4.0 s

Failures (2)
  ago    what         of             why
  1.0 s  dead letter  s.worker[3]@7  not a [31m record
  2.0 s  failed       i-bad          no luck

Models that limit (1)
  model  endpoint      procs  wanted/s  allowed/s  open  waiting  breaker
  m      https://x/v1  2      70.0      45.5       9     12       half open
";
        assert_eq!(text, expected);
    }
}
