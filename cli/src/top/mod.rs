//! `starling top`: the swarm on one screen.

mod draw;
mod models;
mod panes;
mod source;
mod state;

pub use draw::{Asked, View, draw};
pub use panes::{Pane, panes, plain};
pub use state::{State, TopicFigures, Update};

use crate::{doctor::long_enough, exit::CliError};
use ratatui::crossterm::event::{self, Event, KeyEvent};
use source::{FOLLOWED, Source};
use starling_bus::Bus;
use starling_protocol::{Timestamp, TopicNames};
use starling_runtime::{Clock, Schemas, Settings};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};

/// Time between two pictures.
const FRAME: Duration = Duration::from_millis(200);
/// Updates that are taken in before the next picture at most.
const AT_ONCE: usize = 4096;
/// How long a snapshot may take.
const SNAPSHOT: Duration = Duration::from_secs(20);
/// Looks at the topics that a snapshot needs: a pace follows from two.
const LOOKS: usize = 2;

/// A snapshot as plain text: what has been there, who speaks, and the pace of now.
///
/// # Errors
/// The broker is unreachable.
pub async fn once(bus: Arc<dyn Bus>, schemas: &Schemas, settings: &Settings) -> Result<String, CliError> {
    bus.inspector().cluster().await?;
    let mut source = Source::open(bus, schemas, settings);
    let (mut caught_up, mut looks) = (source.caught_up.clone(), source.looks.clone());
    let heard = Instant::now() + long_enough(settings.fleet.interval);
    let complete = async {
        // An error means that a task broke; what is known is shown all the same.
        let _ = caught_up.wait_for(|count| *count >= FOLLOWED.len()).await;
        let _ = looks.wait_for(|count| *count >= LOOKS).await;
        sleep_until(heard).await;
    };
    let complete = timeout(SNAPSHOT, complete);
    tokio::pin!(complete);
    let mut state = State::default();
    loop {
        tokio::select! {
            Some(update) = source.updates.recv() => state.apply(update, now()),
            _ = &mut complete => break,
            Some(_) = source.tasks.join_next() => return Err(broken()),
        }
    }
    // What completed it may still wait to be taken in.
    for _ in 0..AT_ONCE {
        let Ok(update) = source.updates.try_recv() else { break };
        state.apply(update, now());
    }
    let now = now();
    state.forget_silent(now, settings.fleet.forget_after);
    let names = TopicNames::new(settings.topics.prefix.as_str());
    let trouble: String = state.trouble.iter().map(|(of, why)| format!("{of}: {why}\n")).collect();
    Ok(trouble + &plain(&state, &names, now))
}

/// Draws until somebody leaves.
///
/// # Errors
/// The broker is unreachable at the start, or the terminal cannot be drawn on.
pub async fn live(bus: Arc<dyn Bus>, schemas: &Schemas, settings: &Settings) -> Result<(), CliError> {
    bus.inspector().cluster().await?;
    let failed = |error: std::io::Error| CliError::Failed(format!("the terminal: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let names = TopicNames::new(settings.topics.prefix.as_str());
    let place = format!("{} {}", settings.kafka.brokers, settings.topics.prefix);
    let mut source = Source::open(bus, schemas, settings);
    let mut screen = Screen::open().map_err(failed)?;
    let mut state = State::default();
    // The picture that stands still while it is paused.
    let mut frozen: Option<(State, Timestamp)> = None;
    let mut view = View::default();
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut updates = Vec::new();
    loop {
        let moved = tokio::select! {
            key = screen.keys.recv() => match key {
                Some(Pressed::Key(key)) => {
                    let (shown, at) = frozen.as_ref().map_or((&state, now()), |(state, at)| (state, *at));
                    let rows = panes(shown, &names, at).map(|pane| pane.rows.len());
                    match view.key(key, rows) {
                        Asked::Quit => return Ok(()),
                        Asked::Pause => frozen = view.paused.then(|| (state.clone(), now())),
                        Asked::Nothing => {}
                    }
                    true
                }
                Some(Pressed::Resized) => true,
                None => return Err(CliError::Failed("the terminal tells of no keys any more".to_owned())),
            },
            count = source.updates.recv_many(&mut updates, AT_ONCE) => {
                if count == 0 {
                    return Err(broken());
                }
                updates.drain(..).for_each(|update| state.apply(update, now()));
                false
            }
            Some(_) = source.tasks.join_next() => return Err(broken()),
            _ = frames.tick() => {
                state.forget_silent(now(), settings.fleet.forget_after);
                true
            }
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        };
        if moved {
            let (shown, at) = frozen.as_ref().map_or((&state, now()), |(state, at)| (state, *at));
            let drawn = screen.terminal.draw(|frame| draw(frame, shown, &view, &place, &names, at));
            drawn.map_err(failed)?;
        }
    }
}

/// What runs in the background runs for ever, unless it panics; and then the terminal is not ours any more.
fn broken() -> CliError {
    CliError::Failed("reading from the broker has broken off".to_owned())
}

fn now() -> Timestamp {
    Clock::system().now()
}

/// What the terminal tells.
enum Pressed {
    Key(KeyEvent),
    Resized,
}

/// The terminal while it is drawn on. It is put back as it was when this is dropped, and by the hook that its
/// opening installs when something panics.
struct Screen {
    terminal: ratatui::DefaultTerminal,
    keys: mpsc::Receiver<Pressed>,
    over: Arc<AtomicBool>,
}

impl Screen {
    fn open() -> std::io::Result<Self> {
        let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
        let (sender, keys) = mpsc::channel(64);
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        thread::spawn(move || listen(&sender, &ended));
        Ok(Self { terminal, keys, over })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        ratatui::restore();
    }
}

/// Reads the terminal, which blocks, until it is over.
fn listen(sender: &mpsc::Sender<Pressed>, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let pressed = match event::poll(FRAME).and_then(|ready| ready.then(event::read).transpose()) {
            Ok(Some(Event::Key(key))) => Pressed::Key(key),
            Ok(Some(Event::Resize(..))) => Pressed::Resized,
            Ok(_) => continue,
            Err(_) => return, // the terminal is gone, and with it the reason to draw
        };
        if sender.blocking_send(pressed).is_err() {
            return;
        }
    }
}
