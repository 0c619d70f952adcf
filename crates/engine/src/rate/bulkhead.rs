//! Whose calls may have the next place, where several roles ask one endpoint (bulkheads; Nygard, Release It!, 2007).
//!
//! Each role has places that are reserved for it. A role that wants none of them leaves them to others; when it wants them
//! again, no other role is given a place before it has as many as are reserved for it. So nothing idles that somebody
//! could use, and no role keeps another one waiting for longer than until the next calls end.

/// Counts open and waiting calls by role, a number from 0 on.
#[derive(Clone, Debug)]
pub struct Bulkheads {
    roles: Vec<Role>,
}

#[derive(Clone, Copy, Debug)]
struct Role {
    /// Share of all places, 0 to 1.
    reserved: f64,
    open: usize,
    waiting: usize,
}

impl Role {
    /// Places that are reserved of so many and not taken.
    fn unused(&self, places: usize) -> usize {
        // A share that is not nothing is at least one place, however few there are.
        let reserved = (self.reserved * places as f64).ceil() as usize;
        reserved.saturating_sub(self.open)
    }
}

impl Bulkheads {
    /// The share of all places that is reserved for each role, 0 to 1; none is open and none waits.
    #[must_use]
    pub fn new(reserved: &[f64]) -> Self {
        let role = |share: &f64| {
            let reserved = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
            Role { reserved, open: 0, waiting: 0 }
        };
        Self { roles: reserved.iter().map(role).collect() }
    }

    /// Whether a call of `role` may have one of so many places now.
    #[must_use]
    pub fn admits(&self, role: usize, places: usize) -> bool {
        let free = self.free(places);
        let own = self.roles.get(role).map_or(0, |own| own.unused(places));
        if free == 0 || own > 0 {
            return free > 0;
        }
        let others = self.roles.iter().enumerate().filter(|(other, _)| *other != role);
        let claimed: usize = others.map(|(_, other)| other.waiting.min(other.unused(places))).sum();
        free > claimed
    }

    /// How many of so many places nobody has.
    #[must_use]
    pub fn free(&self, places: usize) -> usize {
        places.saturating_sub(self.roles.iter().map(|role| role.open).sum())
    }

    /// Open calls of a role.
    #[must_use]
    pub fn open(&self, role: usize) -> usize {
        self.roles.get(role).map_or(0, |role| role.open)
    }

    /// A call of that role waits from now on.
    pub fn waits(&mut self, role: usize) {
        self.change(role, |role| role.waiting += 1);
    }

    /// It does no longer.
    pub fn waits_no_more(&mut self, role: usize) {
        self.change(role, |role| role.waiting = role.waiting.saturating_sub(1));
    }

    /// A call of that role is open from now on.
    pub fn opened(&mut self, role: usize) {
        self.change(role, |role| role.open += 1);
    }

    /// It is no longer.
    pub fn closed(&mut self, role: usize) {
        self.change(role, |role| role.open = role.open.saturating_sub(1));
    }

    fn change(&mut self, role: usize, change: impl FnOnce(&mut Role)) {
        if let Some(role) = self.roles.get_mut(role) {
            change(role);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRITIC: usize = 0;
    const PLANNER: usize = 1;
    const WORKER: usize = 2;

    /// 10 places, of which two are for critics, two for planners and three for workers.
    fn bulkheads() -> Bulkheads {
        Bulkheads::new(&[0.2, 0.15, 0.3])
    }

    fn take(bulkheads: &mut Bulkheads, role: usize) -> usize {
        let mut taken = 0;
        while bulkheads.admits(role, 10) {
            bulkheads.opened(role);
            taken += 1;
        }
        taken
    }

    #[test]
    fn a_role_may_use_what_nobody_else_wants() {
        assert_eq!(take(&mut bulkheads(), CRITIC), 10);
    }

    #[test]
    fn the_next_places_are_for_who_has_fewer_than_are_reserved() {
        let mut all = bulkheads();
        take(&mut all, CRITIC);
        (0..5).for_each(|_| all.waits(PLANNER));
        let mut planners = 0;
        for _ in 0..2 {
            all.closed(CRITIC);
            assert!(!all.admits(CRITIC, 10), "the planner is first");
            assert!(all.admits(PLANNER, 10));
            all.waits_no_more(PLANNER);
            all.opened(PLANNER);
            planners += 1;
        }
        assert_eq!(planners, 2);
        all.closed(CRITIC);
        assert!(
            all.admits(CRITIC, 10) && all.admits(PLANNER, 10),
            "now both may, whose deadline comes first"
        );
    }

    #[test]
    fn places_are_kept_for_as_many_as_wait() {
        let mut all = bulkheads();
        all.waits(PLANNER);
        assert_eq!(take(&mut all, CRITIC), 9);
        (0..5).for_each(|_| all.waits(WORKER));
        assert!(!all.admits(CRITIC, 10));
        assert!(all.admits(PLANNER, 10) && all.admits(WORKER, 10));
        // Fewer places than there were: nobody is sent away, and nobody comes.
        assert!(!all.admits(PLANNER, 5));
        assert_eq!(all.open(CRITIC), 9);
    }

    #[test]
    fn who_has_nothing_reserved_takes_what_is_left() {
        let mut all = Bulkheads::new(&[0.0, 1.0]);
        assert_eq!(take(&mut all, 0), 10);
        all.closed(0);
        all.waits(1);
        assert!(!all.admits(0, 10) && all.admits(1, 10));
        assert!(!all.admits(7, 10), "nobody is role 7");
    }
}
