//! How several processes share what one endpoint takes, without anybody who tells them.

/// The part of `limit` requests a second that is one's own, 0 to 1, where `own` and `others` are what each process would
/// send a second if it could.
///
/// Max-min fair (Bertsekas and Gallager, Data Networks, 6.5.2): who wants less than an equal part has what it wants, the
/// others share the rest equally. What nobody wants is shared equally, too, so that a process can begin at once. All who
/// know the same demands come to parts whose sum is 1.
#[must_use]
pub fn share(limit: f64, own: f64, others: &[f64]) -> f64 {
    if others.is_empty() || limit <= 0.0 {
        return 1.0;
    }
    // Nobody is refused a first request because it has not asked for one yet.
    let wish = |demand: f64| if demand.is_finite() { demand.max(1.0) } else { 1.0 };
    let mine = wish(own);
    let mut wishes: Vec<f64> = others.iter().map(|demand| wish(*demand)).chain([mine]).collect();
    wishes.sort_by(f64::total_cmp);
    let mut left = limit;
    let mut given = None;
    let count = wishes.len();
    for (index, wish) in wishes.iter().enumerate() {
        let equal = left / (count - index) as f64;
        let part = wish.min(equal);
        if *wish >= mine && given.is_none() {
            given = Some(part);
        }
        left -= part;
    }
    ((given.unwrap_or(0.0) + left.max(0.0) / count as f64) / limit).clamp(0.0, 1.0)
}
