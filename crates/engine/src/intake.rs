//! How many intents an intake may pass on, so that the coordinators' memory is never overrun.
//!
//! What it does not pass on waits in the input topic, where there is room. Coordinators announce their room with
//! every beat of the fleet; until the next one, each intake passes on no more than its share of a quarter of
//! it: several beats may be under way before the intents of the first are counted, and the ids of all of them
//! may belong to one partition.

use starling_protocol::fleet::FleetBeat;

/// Role of the services that take intents in and coordinate them.
const PLANNER: &str = "planner";
const INTAKE: &str = "intake";

/// Intents that one intake may pass on until the next beat; `None` is any number, as long as no coordinator has
/// said how much room it has.
#[must_use]
pub fn allowance(beats: &[FleetBeat]) -> Option<u32> {
    let rooms =
        beats.iter().filter(|beat| beat.role == PLANNER).filter_map(|beat| u32::try_from(beat.room).ok());
    let room = rooms.min()?;
    let intakes = beats.iter().filter(|beat| beat.role == INTAKE).count();
    let share = room / 4 / u32::try_from(intakes.max(1)).unwrap_or(u32::MAX);
    Some(share.max(room.min(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use starling_protocol::Timestamp;

    fn beat(role: &str, room: i32) -> FleetBeat {
        FleetBeat {
            process: String::new(),
            role: role.into(),
            pool: String::new(),
            version: String::new(),
            slots: 0,
            busy: 0,
            partitions: vec![],
            active: 0,
            at: Timestamp(0),
            leaving: false,
            room,
            asks: vec![],
        }
    }

    #[test]
    fn the_fullest_coordinator_decides() {
        let (intake, other) = (beat(INTAKE, -1), beat("worker", 0));
        let cases: &[(&str, &[FleetBeat], Option<u32>)] = &[
            ("nobody has spoken", &[], None),
            ("a coordinator that does not know yet", &[beat(PLANNER, -1)], None),
            ("a quarter", &[beat(PLANNER, 80), other.clone()], Some(20)),
            ("of the least", &[beat(PLANNER, 80), beat(PLANNER, 40), beat(PLANNER, -1)], Some(10)),
            ("shared", &[beat(PLANNER, 80), intake.clone(), intake.clone()], Some(10)),
            ("a little is not nothing", &[beat(PLANNER, 1), intake.clone(), intake], Some(1)),
            ("nothing is nothing", &[beat(PLANNER, 0), beat(PLANNER, 9)], Some(0)),
        ];
        for (name, beats, expected) in cases {
            assert_eq!(allowance(beats), *expected, "{name}");
        }
    }
}
