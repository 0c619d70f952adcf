//! What one model call takes at most, before it is made. The coordinator holds no texts of others, only how long they
//! are, and a token is about four bytes.

use super::budget::{Budget, call, plus};
use super::live::Live;
use super::reduction::tops;
use starling_protocol::state::{Amount, TaskEntity};
use starling_protocol::{PlanStrategy, RecordRef, TaskKind, TaskSpec, TaskState};
use std::collections::BTreeMap;

/// Headings, limits and the like of any prompt.
const FRAME_TOKENS: i64 = 64;
/// Title and number of a text within a prompt.
const HEADING_TOKENS: i64 = 75;
/// Why a task failed, where its result would stand.
const FAILURE_TOKENS: i64 = 150;
/// The smallest room for results in which an answer is worth making.
const LEAST_RESULTS_TOKENS: i64 = 256;
/// Of tokens and money, the answer may have this part set aside for it; beyond it, results are shortened.
const PART_OF_ANSWER: i64 = 4;

/// US dollars for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenPrice {
    /// For tokens sent.
    pub input: f64,
    /// For tokens received.
    pub output: f64,
}

/// What the calls of one agent take, whatever they are about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentCost {
    /// Tokens that each of its prompts has: its own, and what else is always told.
    pub prompt_tokens: i64,
    /// Most tokens of a reply.
    pub reply_tokens: i64,
    /// The model that is asked.
    pub model: String,
    /// What that costs; absent if nobody knows.
    pub price: Option<TokenPrice>,
}

/// What is known of model calls before they are made.
#[derive(Clone, Debug, PartialEq)]
pub struct CallCosts {
    /// Most tries of one call.
    pub tries: i64,
    /// Most tokens of the texts in a prompt: goal, inputs, results.
    pub texts_tokens: i64,
    /// The agent that plans.
    pub planner: AgentCost,
    /// The agent that scores.
    pub critic: AgentCost,
    /// The agent that makes the answer.
    pub synthesizer: AgentCost,
    /// The agents that do tasks, by name.
    pub workers: BTreeMap<String, AgentCost>,
}

impl Default for CallCosts {
    fn default() -> Self {
        let agent = |reply_tokens| AgentCost { prompt_tokens: 300, reply_tokens, ..AgentCost::default() };
        Self {
            tries: 4,
            texts_tokens: 24_000,
            planner: agent(8_000),
            critic: agent(800),
            synthesizer: agent(8_000),
            workers: BTreeMap::from([("worker".to_owned(), agent(4_000))]),
        }
    }
}

/// A step of a plan, as far as it matters for what it takes.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Name of the agent.
    pub agent: &'a str,
    /// Bytes of goal, title, instruction and advice.
    pub bytes: usize,
    /// Tokens of what else is told: inputs, results, an earlier attempt.
    pub tokens: i64,
    /// Texts that have a heading of their own.
    pub headings: usize,
    /// Whether a critic scores it.
    pub critic: bool,
}

/// What one try of a step takes: the work, and the critic's part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepCost {
    /// The worker's call.
    pub work: Amount,
    /// The critic's call; nothing if there is none.
    pub critic: Amount,
}

impl CallCosts {
    /// The agent that does a task; one that is not known is taken for the most expensive of all.
    fn worker(&self, name: &str) -> AgentCost {
        let dearest = || {
            let tokens = |agent: &&AgentCost| agent.prompt_tokens.saturating_add(agent.reply_tokens);
            self.workers.values().max_by_key(tokens).cloned()
        };
        self.workers.get(name).cloned().or_else(dearest).unwrap_or_default()
    }

    fn prompt(&self, agent: &AgentCost, texts: i64, headings: usize) -> i64 {
        let headings = i64::try_from(headings).unwrap_or(i64::MAX).saturating_mul(HEADING_TOKENS);
        let texts = texts.min(self.texts_tokens);
        agent.prompt_tokens.saturating_add(FRAME_TOKENS).saturating_add(texts).saturating_add(headings)
    }

    /// One plan: `bytes` of goal and feedback, and inputs of `tokens`.
    #[must_use]
    pub fn plan(&self, bytes: usize, tokens: i64) -> Amount {
        let agent = &self.planner;
        let texts = quarter(bytes).saturating_add(tokens);
        call(self.prompt(agent, texts, 1), agent.reply_tokens, agent.price)
    }

    /// One try of a step.
    #[must_use]
    pub fn step(&self, step: &Step<'_>) -> StepCost {
        let agent = self.worker(step.agent);
        let texts = quarter(step.bytes).saturating_add(step.tokens);
        let work = call(self.prompt(&agent, texts, step.headings + 1), agent.reply_tokens, agent.price);
        let critic = if step.critic {
            let critic = &self.critic;
            let texts = quarter(step.bytes).saturating_add(agent.reply_tokens);
            call(self.prompt(critic, texts, 1), critic.reply_tokens, critic.price)
        } else {
            Amount::default()
        };
        StepCost { work, critic }
    }

    /// The answer out of results of `tokens`, with inputs and goal. `room` bounds the part that the results may have;
    /// without it, they have all that they need.
    #[must_use]
    pub fn answer(&self, goal_bytes: usize, tokens: i64, headings: usize, room: Option<&Budget>) -> Amount {
        let agent = &self.synthesizer;
        let of = |texts: i64| call(self.prompt(agent, texts, headings), agent.reply_tokens, agent.price);
        let goal = quarter(goal_bytes);
        let whole = goal.saturating_add(tokens).min(self.texts_tokens);
        let least = goal.saturating_add(LEAST_RESULTS_TOKENS).min(whole);
        let Some(room) = room else { return of(whole) };
        let base = of(0);
        let by_tokens = room.tokens.map(|most| most.saturating_sub(base.tokens));
        let input = agent.price.map_or(0.0, |price| price.input);
        #[allow(clippy::cast_possible_truncation)] // a float that is no i64 becomes the nearest that is
        let by_money = room
            .cost_usd
            .filter(|_| input > 0.0)
            .map(|most| ((most - base.cost_usd).max(0.0) * 1_000_000.0 / input).floor() as i64);
        let bound = [by_tokens, by_money].into_iter().flatten().min().unwrap_or(i64::MAX);
        of(whole.min(bound.max(least)))
    }

    /// Tokens of a result that is not there yet.
    fn expected_result(&self, agent: &str) -> i64 {
        self.worker(agent).reply_tokens
    }

    /// The models of an intent of which nobody knows what they cost.
    #[must_use]
    pub fn without_price(&self, strategy: &PlanStrategy) -> Vec<&str> {
        let planner = Some(&self.planner).filter(|_| strategy.asks_planner());
        let ends = [&self.critic, &self.synthesizer].into_iter().filter(|_| !strategy.is_single());
        let agents = self.workers.values().chain(planner).chain(ends);
        let mut models: Vec<&str> =
            agents.filter(|agent| agent.price.is_none()).map(|agent| agent.model.as_str()).collect();
        models.sort_unstable();
        models.dedup();
        models
    }

    /// The least that an intent takes, of which nothing is known but its goal and how long its inputs are: a plan, if a
    /// model makes it, one task with its critic, and the answer.
    #[must_use]
    pub fn least(
        &self,
        goal_bytes: usize,
        inputs_tokens: i64,
        strategy: &PlanStrategy,
        worker: &str,
    ) -> Amount {
        let single = strategy.is_single();
        let step =
            Step { agent: worker, bytes: goal_bytes, tokens: inputs_tokens, headings: 1, critic: !single };
        let StepCost { work, critic } = self.step(&step);
        if single {
            return work;
        }
        let answer = self.answer(goal_bytes, LEAST_RESULTS_TOKENS, 1, Some(&Budget::default().none()));
        let plan = match strategy.asks_planner() {
            true => self.plan(goal_bytes, inputs_tokens),
            false => Amount::default(),
        };
        [plan, work, critic, answer].into_iter().fold(Amount::default(), plus)
    }

    /// Why a budget does not cover the least that such an intent takes, if it does not.
    #[must_use]
    pub fn shortfall(
        &self,
        budget: &Budget,
        goal_bytes: usize,
        inputs_tokens: i64,
        strategy: &PlanStrategy,
        worker: &str,
    ) -> Option<String> {
        let least = self.least(goal_bytes, inputs_tokens, strategy, worker);
        if !budget.is_bounded() || budget.fits(least) > 0 {
            return None;
        }
        let what = match strategy {
            PlanStrategy::Single => "one task",
            PlanStrategy::Llm | PlanStrategy::Auto => "a plan, a task and an answer",
            PlanStrategy::Map | PlanStrategy::Playbook(_) => "a task and an answer",
        };
        let counts_tokens = budget.tokens.is_some() || budget.cost_usd.is_some();
        let needed = Budget {
            calls: Some(least.calls),
            tokens: counts_tokens.then_some(least.tokens),
            cost_usd: budget.cost_usd.map(|_| least.cost_usd),
        };
        Some(format!("the budget of {budget} does not cover {what}: they take up to {needed}"))
    }

    /// What a plan takes at most if each of its steps succeeds at its first try, the answer included. Without tasks, that
    /// of an intent which is one task.
    #[must_use]
    pub fn expected(&self, goal: &str, inputs_tokens: i64, tasks: &[TaskSpec], worker: &str) -> Amount {
        let step = |step: &Step<'_>| {
            let StepCost { work, critic } = self.step(step);
            plus(work, critic)
        };
        if tasks.is_empty() {
            let bytes = 2 * goal.len(); // it is the instruction as well
            return step(&Step { agent: worker, bytes, tokens: inputs_tokens, headings: 1, critic: false });
        }
        let result_of = |key: &String| {
            let on = tasks.iter().find(|task| task.key == *key);
            on.map_or(0, |task| self.expected_result(&task.agent))
        };
        let steps = tasks.iter().map(|task| {
            step(&Step {
                agent: &task.agent,
                bytes: goal.len() + task.title.len() + task.instruction.len(),
                tokens: (task.depends_on.iter().map(result_of)).fold(
                    // A task about parts reads these and nothing else of the inputs.
                    task.terms.parts.map_or(inputs_tokens, |parts| parts.tokens.max(0)),
                    i64::saturating_add,
                ),
                headings: task.depends_on.len() + 1,
                critic: task.critic,
            })
        });
        let results = tasks.iter().map(|task| self.expected_result(&task.agent));
        let answer =
            self.answer(goal.len(), results.fold(inputs_tokens, i64::saturating_add), tasks.len() + 1, None);
        steps.fold(answer, plus)
    }
}

impl Budget {
    /// Nothing at all.
    fn none(self) -> Self {
        Self { calls: Some(0), tokens: Some(0), cost_usd: Some(0.0) }
    }
}

/// One try of a task, in its present state.
pub(super) fn of_task(costs: &CallCosts, live: &Live, task: &TaskEntity) -> StepCost {
    let results = live.dependencies(task).map(result_tokens).sum::<i64>();
    let inputs = match task.terms.parts {
        _ if task.kind == TaskKind::Reduce => 0,
        // It reads these and nothing else of the inputs.
        Some(parts) => parts.tokens.max(0),
        None => inputs_tokens(live),
    };
    let earlier = task.last_score.and(task.best.as_ref()).map_or(0, |best| best.result.tokens);
    let step = Step {
        agent: &task.agent,
        bytes: live.intent.goal.len() + task.title.len() + task.instruction.len() + task.feedback.len(),
        tokens: inputs.saturating_add(results).saturating_add(earlier),
        headings: task.depends_on.len() + usize::from(earlier > 0) + 1,
        critic: task.critic,
    };
    costs.step(&step)
}

/// One try of the plan that is asked for.
pub(super) fn of_plan(costs: &CallCosts, live: &Live) -> Amount {
    costs.plan(live.intent.goal.len() + live.run.plan_feedback.len(), inputs_tokens(live))
}

/// One try of the answer, as far as it is known what it is made of. What the results may have of tokens and money is
/// bounded by a part of the budget.
pub(super) fn of_answer(costs: &CallCosts, live: &Live, budget: &Budget) -> Amount {
    answer(costs, live, Some(&budget.part(PART_OF_ANSWER)))
}

/// The same without a bound.
pub(super) fn of_whole_answer(costs: &CallCosts, live: &Live) -> Amount {
    answer(costs, live, None)
}

/// The least for which there can be an answer.
pub(super) fn of_least_answer(costs: &CallCosts, live: &Live) -> Amount {
    answer(costs, live, Some(&Budget::default().none()))
}

/// The answer that fits into `room`, or the least that there can be.
pub(super) fn of_answer_within(costs: &CallCosts, live: &Live, room: &Budget) -> Amount {
    answer(costs, live, Some(room))
}

/// The answer out of whatever becomes of a plan that is not there yet, within `room` or the least that there can be.
pub(super) fn of_answer_to_come(costs: &CallCosts, live: &Live, room: &Budget) -> Amount {
    let most = usize::try_from(live.intent.max_tasks).unwrap_or(0);
    costs.answer(live.intent.goal.len(), costs.texts_tokens, most + 1, Some(room))
}

fn answer(costs: &CallCosts, live: &Live, room: Option<&Budget>) -> Amount {
    let tops = tops(live);
    let results: i64 = tops
        .iter()
        .map(|task| match (task.state, &task.best) {
            (TaskState::Succeeded, Some(best)) => best.result.tokens,
            (TaskState::Failed | TaskState::Skipped, _) => FAILURE_TOKENS,
            _ => costs.expected_result(&task.agent),
        })
        .sum();
    let instruction = live.run.answer.as_ref().map_or(0, |answer| answer.instruction.len());
    costs.answer(
        live.intent.goal.len().saturating_add(instruction),
        results.saturating_add(inputs_tokens(live)),
        tops.len() + 1,
        room,
    )
}

pub(super) fn result_tokens(on: &TaskEntity) -> i64 {
    match &on.best {
        Some(best) if on.state == TaskState::Succeeded => best.result.tokens,
        _ => FAILURE_TOKENS,
    }
}

pub(super) fn inputs_tokens(live: &Live) -> i64 {
    live.intent.intent_ref.as_ref().map_or(0, inputs_of)
}

/// Tokens of the inputs and items that lie there. Each input is told with a heading, which may be longer than a short
/// input is; half as much again is room for these.
pub(super) fn inputs_of(at: &RecordRef) -> i64 {
    at.tokens.max((at.bytes / 8).saturating_mul(3))
}

/// Whether a task makes the answer out of others.
pub(super) fn is_synthesis(task: &TaskEntity) -> bool {
    task.kind == TaskKind::Synthesis
}

pub(super) fn quarter(bytes: usize) -> i64 {
    i64::try_from(bytes.div_ceil(4)).unwrap_or(i64::MAX)
}
