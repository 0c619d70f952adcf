//! What of a long conversation with tools is sent: which turns go, and when rounds of tools are to be summed up.
//!
//! Turns are known by their kind and their size alone. A call of tools and its results are one thing: endpoints refuse
//! the one without the other.

use std::ops::Range;

/// What a turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnKind {
    /// It holds for the whole conversation: orders, and what is wanted. Never left out.
    Standing,
    /// Something that is said.
    Said,
    /// So many calls of tools; their results follow.
    Calls(usize),
    /// The result of a call.
    Result,
}

/// A turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// What it is.
    pub kind: TurnKind,
    /// Its tokens, as its model counts.
    pub tokens: i64,
    /// Its length in characters.
    pub chars: usize,
}

/// How much is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackLimits {
    /// Turns beside the standing ones.
    pub turns: usize,
    /// Tokens of all turns; `None` bounds nothing.
    pub tokens: Option<i64>,
    /// Tokens of the note that something was left out.
    pub note: i64,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The places of the turns that go, in their order.
    pub kept: Vec<usize>,
    /// How many do not.
    pub left_out: usize,
    /// Whether what goes keeps to the limit of tokens. It does not where the standing turns and the last thing that
    /// happened are too long already.
    pub fits: bool,
}

/// Chooses the turns that go: all standing ones, and the last ones of the others, the oldest being left out first. What
/// happened last always goes. Results whose call is not there, and calls without all of their results, never do.
#[must_use]
pub fn pack(turns: &[Turn], limits: PackLimits) -> Packed {
    let all = choose(turns, limits, 0);
    if all.left_out == 0 { all } else { choose(turns, limits, limits.note) }
}

fn choose(turns: &[Turn], limits: PackLimits, note: i64) -> Packed {
    let tokens_of = |range: Range<usize>| {
        let turns = turns.get(range).unwrap_or_default();
        turns.iter().fold(0_i64, |sum, turn| sum.saturating_add(turn.tokens))
    };
    let is_standing = |place: &usize| turns.get(*place).is_some_and(|turn| turn.kind == TurnKind::Standing);
    let standing: Vec<usize> = (0..turns.len()).filter(is_standing).collect();
    let mut tokens = standing.iter().fold(note, |sum, at| sum.saturating_add(tokens_of(*at..at + 1)));
    let mut count = 0;
    let mut kept = standing;
    for unit in units(turns).into_iter().rev() {
        let (more, with) = (unit.len(), tokens.saturating_add(tokens_of(unit.clone())));
        let fits = count + more <= limits.turns && limits.tokens.is_none_or(|most| with <= most);
        if !fits && count > 0 {
            break;
        }
        count += more;
        tokens = with;
        kept.extend(unit);
    }
    kept.sort_unstable();
    let fits = limits.tokens.is_none_or(|most| tokens <= most);
    Packed { left_out: turns.len() - kept.len(), kept, fits }
}

/// When rounds of tools are summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryLimits {
    /// As soon as there are so many of them.
    pub rounds: usize,
    /// Or so many characters in all of them.
    pub chars: usize,
}

/// The places of the turns that a summary is to take the place of: all rounds of tools but the last one. `None` as long as
/// they are neither many nor long, or there is only one.
#[must_use]
pub fn to_sum_up(turns: &[Turn], limits: SummaryLimits) -> Option<Vec<usize>> {
    let of = |unit: &Range<usize>| turns.get(unit.clone()).unwrap_or_default();
    let calls =
        |unit: &Range<usize>| of(unit).first().is_some_and(|turn| matches!(turn.kind, TurnKind::Calls(_)));
    let rounds: Vec<Range<usize>> = units(turns).into_iter().filter(calls).collect();
    let chars: usize = rounds.iter().flat_map(of).map(|turn| turn.chars).sum();
    let (_last, earlier) = rounds.split_last()?;
    let due = rounds.len() >= limits.rounds || chars >= limits.chars;
    (due && !earlier.is_empty()).then(|| earlier.iter().cloned().flatten().collect())
}

/// What stays or goes together: something that is said, or calls with all of their results. What an endpoint would refuse is
/// in none of them.
fn units(turns: &[Turn]) -> Vec<Range<usize>> {
    let mut units = Vec::new();
    let mut at = 0;
    while let Some(turn) = turns.get(at) {
        let mut end = at + 1;
        match turn.kind {
            TurnKind::Said => units.push(at..end),
            TurnKind::Calls(calls) => {
                let results = turns.iter().skip(end).take(calls);
                end += results.take_while(|turn| turn.kind == TurnKind::Result).count();
                if end - at == 1 + calls {
                    units.push(at..end);
                }
            }
            TurnKind::Standing | TurnKind::Result => {}
        }
        at = end;
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn turn(kind: TurnKind, tokens: i64) -> Turn {
        Turn { kind, tokens, chars: usize::try_from(tokens).unwrap_or(0) * 4 }
    }

    /// `s` standing, `t` said, a number for calls, `r` for a result; ten tokens each.
    fn turns(text: &str) -> Vec<Turn> {
        let kind = |letter: char| match letter {
            's' => TurnKind::Standing,
            't' => TurnKind::Said,
            'r' => TurnKind::Result,
            digit => TurnKind::Calls(digit.to_digit(10).unwrap_or(1) as usize),
        };
        text.chars().map(|letter| turn(kind(letter), 10)).collect()
    }

    fn packed(text: &str, most: usize, tokens: Option<i64>) -> (Vec<usize>, usize, bool) {
        let Packed { kept, left_out, fits } = pack(&turns(text), PackLimits { turns: most, tokens, note: 5 });
        (kept, left_out, fits)
    }

    #[test]
    fn the_oldest_go_first_and_calls_never_part_from_their_results() {
        for (text, most, tokens, kept, fits) in [
            ("ss1r2rrt", 20, None, vec![0, 1, 2, 3, 4, 5, 6, 7], true),
            ("ss1r2rrt", 20, Some(80), vec![0, 1, 2, 3, 4, 5, 6, 7], true),
            // One less, and the note must fit as well: the whole first round goes.
            ("ss1r2rrt", 20, Some(79), vec![0, 1, 4, 5, 6, 7], true),
            ("ss1r2rrt", 20, Some(64), vec![0, 1, 7], true),
            ("ss1r2rrt", 4, None, vec![0, 1, 4, 5, 6, 7], true),
            ("ss1r2rrt", 3, None, vec![0, 1, 7], true),
            // What happened last goes, whatever it takes; and standing turns, wherever they are.
            ("st2rr", 2, None, vec![0, 2, 3, 4], true),
            ("st2rr", 2, Some(30), vec![0, 2, 3, 4], false),
            ("tst", 1, None, vec![1, 2], true),
            // What an endpoint refuses.
            ("srt", 20, None, vec![0, 2], true),
            ("s2rt", 20, None, vec![0, 3], true),
            ("s1rrt", 20, None, vec![0, 1, 2, 4], true),
            ("", 20, Some(0), vec![], true),
        ] {
            let left_out = text.len() - kept.len();
            assert_eq!(packed(text, most, tokens), (kept, left_out, fits), "{text} {most} {tokens:?}");
        }
    }

    #[test]
    fn all_rounds_but_the_last_are_summed_up_once_they_are_many_or_long() {
        let due = |text: &str, chars| to_sum_up(&turns(text), SummaryLimits { rounds: 3, chars });
        assert_eq!(due("ss1r1r", 1_000), None);
        assert_eq!(due("ss1r1r1r", 1_000), Some(vec![2, 3, 4, 5]));
        assert_eq!(due("ss1rt2rrt1r", 1_000), Some(vec![2, 3, 5, 6, 7]), "what is said between them stays");
        assert_eq!(due("ss1r1r", 160), Some(vec![2, 3]));
        assert_eq!(due("ss1r", 10), None, "the last round is still needed");
        assert_eq!(due("ss2r1r1r", 1_000), None, "what is not complete is no round");
    }

    proptest! {
        #[test]
        fn whatever_is_packed_can_be_sent(
            text in "[st123r]{0,40}",
            most in 1..30_usize,
            tokens in proptest::option::of(0..400_i64),
        ) {
            let turns = turns(&text);
            let packed = pack(&turns, PackLimits { turns: most, tokens, note: 5 });
            let sent: Vec<Turn> = packed.kept.iter().filter_map(|at| turns.get(*at)).copied().collect();
            prop_assert_eq!(sent.len() + packed.left_out, turns.len());
            let again = pack(&sent, PackLimits { turns: usize::MAX, tokens: None, note: 0 });
            // Nothing is left that would be refused, unless standing turns stood between a call and its result.
            if !text.trim_start_matches('s').contains('s') {
                prop_assert_eq!(again.left_out, 0);
            }
            let standing = |turns: &[Turn]| turns.iter().filter(|turn| turn.kind == TurnKind::Standing).count();
            prop_assert_eq!(standing(&sent), standing(&turns));
            let note = if packed.left_out > 0 { 5 } else { 0 };
            let sum: i64 = sent.iter().map(|turn| turn.tokens).sum();
            prop_assert_eq!(packed.fits, tokens.is_none_or(|most| sum + note <= most));
        }
    }
}
