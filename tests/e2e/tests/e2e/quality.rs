//! What critics and failures do to a task.

use crate::SOON;
use anyhow::Result;
use starling_e2e::{Plan, Scripted, Swarm, SwarmOptions, brokers};
use starling_llm::{
    Purpose,
    mock::{MockAction, scripts::verdict},
};
use starling_protocol::{OutcomeStatus, TaskState};

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_result_is_done_again_with_the_critics_advice() -> Result<()> {
    const ADVICE: &str = "Name the prices of all three.";
    let model = Scripted::new(Plan::new().task("compare", &[]).task("other", &[])).but(|call| {
        let rejected = call.purpose == Purpose::Judge
            && call.section("Task") == Some("compare")
            && call.section("Result") == Some("first try");
        if rejected {
            return Some(MockAction::reply(verdict(0.2, ADVICE)));
        }
        let first_try = call.purpose == Purpose::Work
            && call.section("Task") == Some("compare")
            && call.section("Feedback").is_none();
        first_try.then(|| MockAction::reply("first try"))
    });
    let swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;
    let id = swarm.submit("again", "Compare them").await?;
    let outcome = swarm.outcome(&id, SOON).await?;
    assert_eq!(outcome.status, OutcomeStatus::Succeeded, "{}", outcome.reason);
    let tries = model.calls.about(Purpose::Work, "compare");
    assert_eq!(tries.len(), 2);
    assert!(tries[1].prompt.contains(ADVICE), "the second prompt: {}", tries[1].prompt);
    assert!(tries[1].prompt.contains("first try"), "it shows what was not good enough: {}", tries[1].prompt);
    let report = outcome.task_reports.iter().find(|report| report.title == "compare").unwrap();
    assert_eq!((report.attempts, report.score, report.status), (2, Some(0.9), TaskState::Succeeded));
    let other = outcome.task_reports.iter().find(|report| report.title == "other").unwrap();
    assert_eq!(other.attempts, 1);
    // One plan, three tries, three verdicts, one answer.
    assert_eq!(outcome.calls, 8);
    swarm.all_audited(SOON).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_always_fails_leaves_a_partial_outcome_that_names_it() -> Result<()> {
    let plan = Plan::new()
        .task("good", &[])
        .task("doomed", &[])
        .task("next", &["good", "doomed"])
        .task("hopeless", &["doomed"]);
    let model = Scripted::new(plan).but(|call| {
        let doomed = call.purpose == Purpose::Work && call.section("Task") == Some("doomed");
        doomed.then(|| MockAction::error(400, "this prompt is not for me"))
    });
    let mut swarm = Swarm::start(SwarmOptions::new(model.options(), 1)).await?;
    let brokers = brokers()?;
    let (code, run) =
        swarm.cli(&["run", "Try it all", "--id", "partial", "--json", "--brokers", &brokers]).await?;
    assert_eq!(code, Some(2), "{}", run.last_lines());
    let report: serde_json::Value = serde_json::from_str(&run.stdout())?;
    assert_eq!(report["status"], "partial");
    assert_eq!(
        (&report["tasks"]["succeeded"], &report["tasks"]["failed"]),
        (&2.into(), &2.into()),
        "{report}"
    );
    let reports = report["task_reports"].as_array().unwrap();
    let of = |title: &str| reports.iter().find(|task| task["title"] == title).unwrap();
    assert_eq!(of("doomed")["status"], "failed");
    assert!(
        of("doomed")["error"].as_str().unwrap().contains("this prompt is not for me"),
        "{}",
        of("doomed")
    );
    assert_eq!(of("next")["status"], "succeeded", "it does what can be done without: {}", of("next"));
    let prompt = &model.calls.about(Purpose::Work, "next")[0].prompt;
    assert!(prompt.contains("(failed") && prompt.contains("ok: good"), "{prompt}");
    assert_eq!(of("hopeless")["status"], "skipped", "there is nothing to build on: {}", of("hopeless"));
    // For people: the task that failed is named with its reason.
    let (code, run) = swarm.cli(&["result", "partial"]).await?;
    assert_eq!(code, Some(2));
    assert!(run.stderr().contains("doomed") && run.stderr().contains("not for me"), "{}", run.stderr());
    swarm.all_audited(SOON).await?;
    Ok(())
}
