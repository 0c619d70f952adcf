//! What steps may take, and what they say that they took: never more together than their intent may take.
//!
//! A step that has said nothing counts with all that it may take. One that has, counts with the least that was said of
//! it: after a crash it may have been done twice, and only one of the two is counted. The same holds of all intents of a
//! tenant together, for what was allowed within one window of its budget.

use super::{Verdict, Violation};
use starling_engine::coordinator::{CoordinatorSettings, TenantBudgets};
use starling_protocol::{Allowance, Body, CallReport, Envelope, IntentId, Outcome, state::IntentEntity};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Names a step: a plan attempt, or an attempt of a task.
type Step = (IntentId, String, i32);

/// Calls and tokens.
type Taken = (i64, i64);

#[derive(Default)]
pub(super) struct Budgets {
    /// Intents that are worked on and have a budget: most calls, most tokens, and what was allowed.
    live: BTreeMap<IntentId, Account>,
    /// The least that was said of a step.
    said: HashMap<Step, Taken>,
    /// Intents for which something was allowed since the last look.
    grown: BTreeSet<IntentId>,
    /// Steps that were allowed something, over all intents.
    pub(super) allowed: u64,
    tenants: TenantBudgets,
    /// What the steps of a tenant were allowed, by the window of its budget in which they were.
    windows: BTreeMap<(String, i64), Account>,
    /// Those in which something was allowed since the last look.
    windows_grown: BTreeSet<(String, i64)>,
}

struct Account {
    calls: Option<i64>,
    tokens: Option<i64>,
    steps: BTreeMap<Step, Taken>,
}

impl Budgets {
    pub(super) fn new(settings: &CoordinatorSettings) -> Self {
        Self { tenants: settings.tenants.clone(), ..Self::default() }
    }

    /// An intent begins.
    pub(super) fn begins(&mut self, intent: &IntentEntity) {
        let (calls, tokens) = (intent.max_calls, intent.max_tokens);
        if calls.is_some() || tokens.is_some() {
            let account = Account { calls, tokens, steps: BTreeMap::new() };
            self.live.insert(intent.intent_id.clone(), account);
        }
    }

    /// A record in the coordinator's inbox.
    pub(super) fn heard(&mut self, envelope: &Envelope) {
        let id = &envelope.intent_id;
        let (step, reports): (Step, Vec<&CallReport>) = match &envelope.body {
            Body::PlanFragment(fragment) => match &fragment.end {
                Some(end) => (plan(id, fragment.plan_attempt), vec![&end.report]),
                None => return,
            },
            Body::TaskResult(result) => {
                (task(id, result.task_id.as_str(), result.attempt), vec![&result.report])
            }
            Body::Verdict(verdict) => {
                let step = task(id, verdict.task_id.as_str(), verdict.attempt);
                (step, vec![&verdict.work, &verdict.report])
            }
            _ => return,
        };
        let tokens = |report: &&CallReport| report.usage.prompt_tokens + report.usage.completion_tokens;
        let taken = (reports.iter().map(|r| r.calls).sum(), reports.iter().map(tokens).sum());
        let least = self.said.entry(step).or_insert(taken);
        *least = (least.0.min(taken.0), least.1.min(taken.1));
    }

    /// A step was decided.
    pub(super) fn decided(&mut self, envelope: &Envelope) -> Verdict {
        let id = &envelope.intent_id;
        let tenant = self.tenants.of(&envelope.tenant).copied();
        if tenant.is_none() && !self.live.contains_key(id) {
            return Ok(());
        }
        let (step, allowances) = match &envelope.body {
            Body::PlanRequest(request) => (plan(id, request.plan_attempt), [request.allowance, None]),
            Body::Task(sent) => {
                let step = task(id, sent.task_id.as_str(), sent.attempt);
                (step, [sent.allowance, sent.critic_allowance])
            }
            _ => return Ok(()),
        };
        let [Some(_), _] = allowances else {
            return Err(Violation::new("budget", format!("{id}: {step:?} may take anything")));
        };
        let allowed: Vec<Allowance> = allowances.into_iter().flatten().collect();
        let calls = allowed.iter().map(|allowance| allowance.calls).sum();
        let tokens = allowed.iter().filter_map(|allowance| allowance.tokens).sum();
        self.allowed += 1;
        if let Some(of) = tenant {
            let per = i64::try_from(of.per.as_millis()).unwrap_or(i64::MAX);
            let window = (envelope.tenant.clone(), envelope.created_at.0.div_euclid(per) * per);
            let (calls_bound, tokens_bound) = (of.budget.calls, of.budget.tokens);
            let new = || Account { calls: calls_bound, tokens: tokens_bound, steps: BTreeMap::new() };
            let account = self.windows.entry(window.clone()).or_insert_with(new);
            account.steps.insert(step.clone(), (calls, tokens));
            self.windows_grown.insert(window);
        }
        if let Some(account) = self.live.get_mut(id) {
            account.steps.insert(step, (calls, tokens));
            self.grown.insert(id.clone());
        }
        Ok(())
    }

    /// An intent has ended.
    pub(super) fn ended(&mut self, id: &IntentId, outcome: &Outcome) -> Verdict {
        let Some(account) = self.live.remove(id) else { return Ok(()) };
        // The calls of a run of the planner that was given up are those of another one again.
        if outcome.degraded.iter().any(|note| note == "uncounted_plan_calls") {
            return Ok(());
        }
        let tokens = outcome.usage.prompt_tokens + outcome.usage.completion_tokens;
        account.holds(id.as_str(), (outcome.calls, tokens), "reports")
    }

    /// Whether all that was allowed is within what there is. Asked once everything is read that there is to read: what
    /// was decided was decided with what had been said.
    pub(super) fn kept(&mut self) -> Verdict {
        for id in std::mem::take(&mut self.grown) {
            let Some(account) = self.live.get(&id) else { continue };
            account.holds(id.as_str(), account.sum(&self.said), "may take")?;
        }
        for window in std::mem::take(&mut self.windows_grown) {
            let Some(account) = self.windows.get(&window) else { continue };
            let name = format!("tenant {} in the window {}", window.0, window.1);
            account.holds(&name, account.sum(&self.said), "may take")?;
        }
        Ok(())
    }
}

impl Account {
    /// What its steps may take: what was said of them, or else what they were allowed.
    fn sum(&self, said: &HashMap<Step, Taken>) -> Taken {
        self.steps.iter().fold((0, 0), |sum, (step, allowed)| {
            let (calls, tokens) = said.get(step).unwrap_or(allowed);
            (sum.0 + calls, sum.1 + tokens)
        })
    }

    fn holds(&self, id: &str, (calls, tokens): Taken, what: &str) -> Verdict {
        let within =
            self.calls.is_none_or(|most| calls <= most) && self.tokens.is_none_or(|most| tokens <= most);
        if within {
            return Ok(());
        }
        let how = format!(
            "{id} {what} {calls} calls and {tokens} tokens, of {:?} calls and {:?} tokens",
            self.calls, self.tokens
        );
        Err(Violation::new("budget", how))
    }
}

fn plan(id: &IntentId, attempt: i32) -> Step {
    (id.clone(), String::new(), attempt)
}

fn task(id: &IntentId, task: &str, attempt: i32) -> Step {
    (id.clone(), task.to_owned(), attempt)
}
