//! Settings that are sound alone and would break a promise together.

use super::{ProviderSettings, Settings, reader::Reader};
use std::time::Duration;

/// What an envelope takes beside its largest part: ids, times, names, headers.
const ENVELOPE: usize = 16 << 10;

/// Properties of the client that what is promised rests on: the bus sets them, under their own names.
const NOT_TO_BE_SET: [&str; 9] = [
    "acks",
    "request.required.acks",
    "enable.idempotence",
    "enable.gapless.guarantee",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "auto.commit.enable",
    "auto.offset.reset",
    "isolation.level",
];

/// A value that was refused for itself is zero, and complained about already.
pub(super) fn check(settings: &Settings, r: &mut Reader) {
    sizes(settings, r);
    lives(settings, r);
    copies(settings, r);
    client(settings, r);
    money(settings, r);
}

/// Nobody could keep a budget of money for a model that has no price.
fn money(settings: &Settings, r: &mut Reader) {
    let (model, coordinator) = (&settings.model, &settings.coordinator);
    let tenants = &coordinator.tenants;
    let others = tenants.others.iter().map(|of| ("tenants.default".to_owned(), of));
    let named = tenants.named.iter().filter_map(|(name, of)| Some((format!("tenants.{name}"), of.as_ref()?)));
    let of_tenants = others.chain(named).map(|(section, of)| (section, of.budget.cost_usd));
    let all = [("coordinator".to_owned(), coordinator.max_cost_usd)].into_iter().chain(of_tenants);
    let bounds: Vec<(String, f64)> = all.filter_map(|(section, most)| Some((section, most?))).collect();
    if bounds.is_empty() || model.is_offline() {
        return;
    }
    let mut names: Vec<&str> = model
        .providers()
        .flat_map(ProviderSettings::models)
        .filter(|name| !model.prices.contains_key(*name))
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return;
    }
    let expected = format!("a price in model.prices for {}, or 0", names.join(", "));
    for (section, most) in bounds {
        r.complain(&format!("{section}.max_cost_usd"), &expected, &most.to_string(), "the settings");
    }
}

/// Everything that is written fits into a record that the topics take.
fn sizes(settings: &Settings, r: &mut Reader) {
    let most = settings.topics.max_message;
    for (path, size, room) in [
        ("statelog.max_record", settings.statelog.max_record, 0),
        ("intake.max_intent", settings.intake.max_intent, ENVELOPE),
        ("worker.max_output", settings.worker_max_output, ENVELOPE),
        // A token is at most so many bytes where texts are cut.
        ("inputs.chunk_tokens", settings.inputs.chunk_tokens.saturating_mul(16), ENVELOPE),
    ] {
        if most > 0 && size > 0 && size.saturating_add(room) > most {
            let room = if room == 0 { String::new() } else { format!(" less {} KiB", room >> 10) };
            let expected = format!("at most topics.max_message{room}");
            r.complain(
                path,
                &expected,
                &format!("{size} bytes"),
                &format!("topics.max_message is {most} bytes"),
            );
        }
    }
}

/// What an intent needs is there as long as the intent may take.
fn lives(settings: &Settings, r: &mut Reader) {
    let longest = settings.coordinator.max_deadline;
    let kept = &settings.topics.retention;
    for (path, kept) in [
        ("topics.retention.inboxes", kept.inboxes),
        ("topics.retention.content", kept.content),
        ("topics.retention.control", kept.control),
    ] {
        if !kept.is_zero() && kept < longest {
            let expected =
                "at least coordinator.max_deadline, or records that an intent needs would be deleted";
            let origin = format!("coordinator.max_deadline is {}", seconds(longest));
            r.complain(path, expected, &seconds(kept), &origin);
        }
    }
}

/// What is acknowledged is on two brokers, where there are two.
fn copies(settings: &Settings, r: &mut Reader) {
    let (copies, least) = (settings.topics.replication, settings.topics.min_insync_replicas);
    let expected = match (copies, least) {
        (1.., 1..) if least > copies => "at most topics.replication, or nothing could be written",
        (2.., 1) => "at least 2, or what one broker alone has acknowledged would be lost with it",
        _ => return,
    };
    let origin = format!("topics.replication is {copies}");
    r.complain("topics.min_insync_replicas", expected, &least.to_string(), &origin);
}

/// The client may be tuned, but not into what loses records.
fn client(settings: &Settings, r: &mut Reader) {
    use secrecy::ExposeSecret as _;
    for (name, value) in &settings.kafka.properties {
        let path = format!("kafka.properties.{name}");
        if NOT_TO_BE_SET.contains(&name.as_str()) {
            let expected =
                "not to be set: idempotent sending with acks=all and commits by hand are not optional";
            r.complain(&path, expected, value.expose_secret(), "the settings");
        }
        let too_small =
            |value: &str| value.parse::<usize>().is_ok_and(|size| size < settings.topics.max_message);
        if name == "message.max.bytes" && too_small(value.expose_secret()) {
            let expected = "at least topics.max_message, which sets it anyway";
            r.complain(&path, expected, value.expose_secret(), "the settings");
        }
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs())
}
