//! The screen, as a function of the state and of where one looks.

use super::panes::{PANES, Pane, panes, totals};
use super::state::State;
use ratatui::{
    Frame,
    crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Cell, Paragraph, Row, Table},
};
use starling_protocol::{Timestamp, TopicNames};

/// Below this size only one pane is shown at a time.
const FOR_ALL: (u16, u16) = (110, 26);
/// The place of the models among the panes.
const MODELS: usize = 4;
/// Rows that a page has.
const PAGE: usize = 10;

/// Where one looks.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Which pane has the focus.
    pub focus: usize,
    /// The first row shown, of each pane.
    pub scroll: [usize; PANES],
    /// Whether the picture stands still.
    pub paused: bool,
}

/// What a key asks for beside moving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing.
    Nothing,
    /// Pause, or go on.
    Pause,
    /// Leave.
    Quit,
}

impl View {
    /// Does what a key says; `rows` are those of each pane.
    pub fn key(&mut self, key: KeyEvent, rows: [usize; PANES]) -> Asked {
        if key.kind == KeyEventKind::Release {
            return Asked::Nothing;
        }
        let count = self.scroll.len();
        let last = rows[self.focus].saturating_sub(1);
        let at = &mut self.scroll[self.focus];
        // The list may have become shorter since.
        *at = (*at).min(last);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Asked::Quit,
            // On a raw terminal Ctrl-C is a key like any other.
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Asked::Quit,
            KeyCode::Char('p') => {
                self.paused = !self.paused;
                return Asked::Pause;
            }
            KeyCode::Tab | KeyCode::Right => self.focus = (self.focus + 1) % count,
            KeyCode::BackTab | KeyCode::Left => self.focus = (self.focus + count - 1) % count,
            KeyCode::Up => *at = at.saturating_sub(1),
            KeyCode::Down => *at = (*at + 1).min(last),
            KeyCode::PageUp => *at = at.saturating_sub(PAGE),
            KeyCode::PageDown => *at = (*at + PAGE).min(last),
            KeyCode::Home => *at = 0,
            KeyCode::End => *at = last,
            _ => {}
        }
        Asked::Nothing
    }
}

/// Draws everything.
pub fn draw(
    frame: &mut Frame<'_>,
    state: &State,
    view: &View,
    place: &str,
    names: &TopicNames,
    now: Timestamp,
) {
    let all = panes(state, names, now);
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(heading(state, view, place)), head);
    let keys = "q quit  tab/arrows panes  up/down scroll  p pause";
    frame.render_widget(Paragraph::new(keys).style(Style::new().add_modifier(Modifier::DIM)), foot);

    let area = frame.area();
    if area.width < FOR_ALL.0 || area.height < FOR_ALL.1 {
        table(frame, &all[view.focus], view, view.focus, body);
        return;
    }
    // A frame, the heading, and a few models; where nothing is limited, none of it.
    let models = u16::try_from(all[MODELS].rows.len()).unwrap_or(u16::MAX).min(5);
    let models = if models > 0 { models + 3 } else { 0 };
    let [upper, lower, models] =
        Layout::vertical([Constraint::Fill(1), Constraint::Fill(1), Constraint::Length(models)]).areas(body);
    let columns = Layout::horizontal([Constraint::Percentage(56), Constraint::Percentage(44)]);
    let [services, topics] = columns.areas(upper);
    let [intents, failures] = columns.areas(lower);
    let areas: [Rect; PANES] = [services, topics, intents, failures, models];
    for (number, (pane, area)) in all.iter().zip(areas).enumerate() {
        table(frame, pane, view, number, area);
    }
}

/// What must be seen on the narrowest screen comes first.
fn heading<'s>(state: &'s State, view: &View, place: &str) -> Line<'s> {
    let mut spans = vec![Span::styled("starling", Style::new().add_modifier(Modifier::BOLD))];
    if view.paused {
        spans.push(Span::styled(" PAUSED", Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD)));
    }
    if let Some(trouble) = state.trouble.values().next() {
        spans.push(Span::styled(format!(" {trouble}"), Style::new().fg(Color::Red)));
    }
    spans.push(Span::raw(format!(" {place}  {}", totals(state))));
    Line::from(spans)
}

fn table(frame: &mut Frame<'_>, pane: &Pane, view: &View, number: usize, area: Rect) {
    let focused = view.focus == number;
    let first = view.scroll[number].min(pane.rows.len().saturating_sub(1));
    // A frame and the heading take three lines.
    let room = usize::from(area.height.saturating_sub(3));
    let shown = pane.rows.iter().skip(first).take(room);
    let last = (first + room).min(pane.rows.len());
    let title = if first == 0 && last == pane.rows.len() {
        format!(" {} ({}) ", pane.title, pane.rows.len())
    } else {
        format!(" {} ({}-{last} of {}) ", pane.title, first + 1, pane.rows.len())
    };
    let border = if focused { Style::new().fg(Color::Cyan) } else { Style::new() };
    let heading =
        Row::new(pane.columns.iter().map(|(name, _)| *name)).style(Style::new().add_modifier(Modifier::BOLD));
    let rows =
        shown.map(|row| Row::new(row.iter().map(|text| Cell::from(text.as_str()).style(style_of(text)))));
    let widths = pane.columns.iter().map(|(_, width)| *width);
    let table =
        Table::new(rows, widths).header(heading).block(Block::bordered().title(title).border_style(border));
    frame.render_widget(table, area);
}

fn style_of(text: &str) -> Style {
    match text {
        "succeeded" => Style::new().fg(Color::Green),
        "half open" | "partial" | "cancelled" => Style::new().fg(Color::Yellow),
        "open" | "failed" | "expired" | "over_budget" | "rejected" | "dead letter" => {
            Style::new().fg(Color::Red)
        }
        "running" | "planning" | "reducing" | "synthesizing" => Style::new().fg(Color::Cyan),
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::state::{Update, tests::*};
    use super::*;
    use ratatui::{Terminal, backend::TestBackend};
    use starling_protocol::OutcomeStatus;

    fn screen(state: &State, view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let names = TopicNames::new("s");
        terminal.draw(|frame| draw(frame, state, view, "b:9092 s", &names, Timestamp(10_000))).unwrap();
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(usize::from(width)).map(|cells| {
            let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
            line.trim_end().to_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn some() -> State {
        state_of(vec![
            (9_500, asking(beat("worker-1/s.worker", "worker", 9_500, true), 40.0, 45.5, 1)),
            (8_000, Update::Topics(vec![topic("worker", Some(100), Some(3))])),
            (10_000, Update::Topics(vec![topic("worker", Some(150), Some(4)), topic("state", None, None)])),
            (0, progress("i-1", 7_000, "running", 1, 3)),
            (0, outcome("i-2", 8_000, OutcomeStatus::Failed)),
        ])
    }

    #[test]
    fn a_large_screen_shows_all_panes() {
        let text = screen(&some(), &View::default(), 120, 26);
        let expected = include_str!("testdata/large.txt");
        assert_eq!(text, expected.trim_end_matches('\n'), "\n{text}");
    }

    #[test]
    fn a_small_screen_shows_the_pane_in_focus() {
        let view = View { focus: 2, paused: true, ..View::default() };
        let text = screen(&some(), &view, 70, 8);
        let expected = include_str!("testdata/small.txt");
        assert_eq!(text, expected.trim_end_matches('\n'), "\n{text}");
    }

    #[test]
    fn any_size_and_any_scroll_can_be_drawn() {
        let state = some();
        for (width, height) in [(1, 1), (2, 2), (10, 3), (110, 26), (300, 5), (5, 100), (400, 120)] {
            for focus in 0..PANES {
                let view = View { focus, scroll: [99; PANES], paused: false };
                screen(&state, &view, width, height);
                screen(&State::default(), &view, width, height);
            }
        }
    }

    #[test]
    fn a_long_list_says_which_part_is_shown() {
        let updates = (0..30).map(|n| (0, progress(&format!("i-{n:02}"), n, "running", 0, 1)));
        let state = state_of(updates.collect());
        let view = View { focus: 2, scroll: [0, 0, 10, 0, 0], paused: false };
        let text = screen(&state, &view, 80, 12);
        assert!(text.contains("Intents (11-17 of 30)"), "{text}");
        assert!(text.contains("i-19") && !text.contains("i-20 "), "{text}");
    }

    #[test]
    fn keys_move_pause_and_leave() {
        let mut view = View::default();
        let rows = [3, 0, 25, 1, 0];
        let press = |view: &mut View, code| view.key(KeyEvent::new(code, KeyModifiers::NONE), rows);
        for (code, focus) in [
            (KeyCode::Tab, 1),
            (KeyCode::Right, 2),
            (KeyCode::Left, 1),
            (KeyCode::BackTab, 0),
            (KeyCode::BackTab, 4),
            (KeyCode::Tab, 0),
        ] {
            assert_eq!(press(&mut view, code), Asked::Nothing);
            assert_eq!(view.focus, focus, "{code:?}");
        }
        for (code, at) in [
            (KeyCode::Up, 0),
            (KeyCode::Down, 1),
            (KeyCode::PageDown, 2),
            (KeyCode::Home, 0),
            (KeyCode::End, 2),
            (KeyCode::Down, 2),
            (KeyCode::PageUp, 0),
        ] {
            press(&mut view, code);
            assert_eq!(view.scroll[0], at, "{code:?}");
        }
        view.focus = 1;
        press(&mut view, KeyCode::Down);
        assert_eq!(view.scroll[1], 0, "nothing to scroll");
        assert_eq!(press(&mut view, KeyCode::Char('p')), Asked::Pause);
        assert!(view.paused);
        assert_eq!(press(&mut view, KeyCode::Char('x')), Asked::Nothing);
        assert_eq!(press(&mut view, KeyCode::Char('c')), Asked::Nothing);
        assert_eq!(press(&mut view, KeyCode::Char('q')), Asked::Quit);
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.key(ctrl_c, rows), Asked::Quit);
    }
}
