//! What processes tell each other about whom they ask, and what follows from that for each.

use super::{
    RateLimiter, breaker_number,
    line::{Demand, LineFigures},
};
use starling_engine::breaker::BreakerState;
use starling_protocol::fleet::{FleetBeat, ModelAsk};
use starling_runtime::fleet::Fleet;
use std::sync::Arc;
use tokio::time::{MissedTickBehavior, interval};

/// Tells the fleet what this process would ask wherever it is limited or its endpoint fails, and takes the shares that
/// follow from what others say. A process for which that never was so neither speaks nor listens: where all hear all, a hundred processes are ten
/// thousand records a second.
pub(crate) async fn share_with_fleet(
    limiters: Vec<(String, Arc<RateLimiter>)>,
    fleet: Fleet,
    process: Arc<str>,
) {
    let stopped = fleet.stopped();
    let own = format!("{process}/");
    let mut ticks = interval(fleet.interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = None;
    loop {
        tokio::select! {
            biased;
            () = stopped.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let lines: Vec<_> = limiters
            .iter()
            .flat_map(|(endpoint, limiter)| {
                let lines = limiter.lines().into_iter();
                let breaker = limiter.breaker();
                lines.map(move |(model, line)| (endpoint, model, breaker, line.demand(), line))
            })
            .collect();
        let asks: Vec<ModelAsk> = lines
            .iter()
            .filter_map(|(endpoint, model, breaker, demand, line)| {
                if demand.is_none() && *breaker == BreakerState::Closed {
                    return None;
                }
                let LineFigures { open, waiting, .. } = line.figures();
                let count = |calls: usize| i32::try_from(calls).unwrap_or(i32::MAX);
                Some(ModelAsk {
                    endpoint: (*endpoint).clone(),
                    model: model.clone(),
                    demand: demand.map_or(0.0, |own| own.demand),
                    found: demand.and_then(|own| own.found).unwrap_or(0.0),
                    open: count(open.iter().sum()),
                    waiting: count(waiting),
                    breaker: breaker_number(*breaker),
                })
            })
            .collect();
        if heard.is_none() && !asks.is_empty() {
            heard = Some(fleet.beats());
        }
        let Some(heard) = &heard else { continue };
        fleet.asks(asks);
        let beats = heard.borrow().clone();
        for (endpoint, model, _, demand, line) in lines {
            let wanted = demand.map_or(0.0, |own| own.demand);
            line.share_with(wanted, &others(&beats, &own, endpoint, &model));
        }
    }
}

/// What the others ask a model.
fn others(beats: &[FleetBeat], own: &str, endpoint: &str, model: &str) -> Vec<Demand> {
    let others = beats.iter().filter(|beat| !beat.process.starts_with(own));
    let asks =
        others.flat_map(|beat| &beat.asks).filter(|ask| ask.endpoint == endpoint && ask.model == model);
    let sane = asks.filter(|ask| ask.demand.is_finite() && ask.found.is_finite());
    sane.map(|ask| Demand { demand: ask.demand, found: Some(ask.found).filter(|found| *found > 0.0) })
        .collect()
}
