//! `validate`, by table.

use crate::builders::{settings, spec};
use starling_engine::coordinator::{PlanFault, PlanLimits, validate};
use starling_protocol::TaskSpec;

fn check(tasks: &[TaskSpec]) -> Vec<String> {
    let limits = PlanLimits::new(&settings(), 100);
    let faults = validate(tasks, &limits).err().unwrap_or_default();
    faults.iter().map(PlanFault::to_string).collect()
}

fn chain(length: i32) -> Vec<TaskSpec> {
    (0..length)
        .map(|at| match at {
            0 => spec(0, "t0", &[]),
            _ => spec(at, &format!("t{at}"), &[&format!("t{}", at - 1)]),
        })
        .collect()
}

#[test]
fn sound_plans_pass() {
    assert!(check(&[spec(0, "a", &[])]).is_empty());
    assert!(check(&[spec(0, "c", &["a", "b"]), spec(1, "a", &[]), spec(2, "b", &["a"])]).is_empty());
    assert!(check(&chain(32)).is_empty());
    let wide: Vec<TaskSpec> = (0..100).map(|at| spec(at, &format!("t{at}"), &[])).collect();
    assert!(check(&wide).is_empty());
}

#[test]
fn every_fault_is_named() {
    let long = |mut task: TaskSpec| {
        task.instruction = "x".repeat(8 * 1024 + 1);
        task.title = " ".into();
        task
    };
    let too_many: Vec<TaskSpec> = (0..101).map(|at| spec(at, &format!("t{at}"), &[])).collect();
    let cases: Vec<(Vec<TaskSpec>, &[&str])> = vec![
        (vec![], &["the plan has no tasks"]),
        (too_many, &["the plan has more than 100 tasks"]),
        (vec![spec(0, "a", &[]), spec(1, "a", &[])], &["more than one task has the key \"a\""]),
        (vec![spec(1, "a", &[])], &["task \"a\" has position 1, expected was 0"]),
        (vec![spec(0, "", &[])], &["task \"\" has an empty key"]),
        (
            vec![long(spec(0, "a", &[]))],
            &[
                "task \"a\" has an empty title",
                "task \"a\" has 8193 bytes of instruction, at most 8192 are allowed",
            ],
        ),
        (vec![spec(0, "a", &["a"])], &["task \"a\" depends on itself"]),
        (vec![spec(0, "a", &["z"])], &["task \"a\" depends on \"z\", which is not in the plan"]),
        (
            vec![spec(0, "a", &["b"]), spec(1, "b", &["a"]), spec(2, "c", &[])],
            &["these tasks depend on each other in a circle: a, b"],
        ),
        (chain(33), &["the longest chain of dependencies has 33 tasks, at most 32 are allowed"]),
    ];
    for (tasks, expected) in cases {
        assert_eq!(check(&tasks), expected);
    }
}
