//! From a result to a verdict.

use crate::verdict::{Reply, check_verdict, read_verdict, together};
use async_trait::async_trait;
use futures::future::join_all;
use starling_agents::{
    Agent, JudgePrompt, PromptBudget, VERDICT_SCHEMA, judge_messages, verdict_schema, within,
};
use starling_llm::{ChatRequest, Format, JsonCheck, Model, ModelErrorKind, Purpose, Reuse};
use starling_protocol::{
    Allowance, Body, CallReport, Envelope, EnvelopeId, Judgement, RecordRef, Role, Scored, Tag, TaskResult,
    Unavailable, Unparseable, Verdict,
};
use starling_runtime::{Clock, EnvelopeHandler, HandleError, HandlerContext, Metrics, telemetry::Spans};
use starling_service::{AgentsInForce, Asked, Window, instant_of};
use std::sync::Arc;

/// The temperatures of the calls for one verdict lie so far apart, so that they are different questions.
const APART: f32 = 0.2;

/// Bounds of a critic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CriticOptions {
    /// Size of the prompt.
    pub prompt: PromptBudget,
    /// Verdicts of the model that make one. At least 1.
    pub panel: i64,
}

impl Default for CriticOptions {
    fn default() -> Self {
        Self { prompt: PromptBudget::default(), panel: 1 }
    }
}

/// Handles results.
pub struct CriticHandler {
    model: Arc<dyn Model>,
    agents: AgentsInForce,
    schema: Arc<serde_json::Value>,
    spans: Spans,
    metrics: Arc<Metrics>,
    clock: Clock,
    options: CriticOptions,
    window: Window,
}

impl CriticHandler {
    /// A critic that asks `model`.
    pub fn new(
        model: Arc<dyn Model>,
        agents: impl Into<AgentsInForce>,
        spans: Spans,
        metrics: Arc<Metrics>,
        clock: Clock,
        options: CriticOptions,
    ) -> Self {
        let schema = Arc::new(verdict_schema());
        Self {
            model,
            agents: agents.into(),
            schema,
            spans,
            metrics,
            clock,
            options,
            window: Window::default(),
        }
    }

    async fn judge(
        &self,
        envelope: &Envelope,
        result: &TaskResult,
        cx: &HandlerContext,
    ) -> (Judgement, CallReport) {
        let catalogue = self.agents.now();
        let worker = catalogue.get(&result.agent);
        if let Some(scored) = score_without_model(result, worker) {
            return (Judgement::Scored(scored), CallReport::default());
        }
        let agent = catalogue.critic();
        let mut span = self.spans.invoke_agent(&agent.name, &cx.traceparent);
        span.set_with("starling.intent_id", || envelope.intent_id.as_str().to_owned());
        span.set_with("starling.task_id", || result.task_id.as_str().to_owned());
        span.set("starling.attempt", i64::from(result.attempt));
        let prompt = JudgePrompt {
            goal: &result.goal,
            title: &result.title,
            instruction: &result.instruction,
            rubric: worker.and_then(|worker| worker.rubric.as_deref()),
            min_score: result.min_score,
            result: &result.output,
        };
        let (members, allowance) = shares(self.options.panel, result.critic_allowance);
        let (prompt, traceparent) = (&prompt, span.traceparent().to_string());
        let question = |member, budget: PromptBudget| ChatRequest {
            purpose: Purpose::Judge,
            messages: within(allowance.as_ref(), agent, budget, |budget| {
                judge_messages(agent, prompt, budget)
            }),
            tools: Vec::new(),
            format: Format::Json {
                name: VERDICT_SCHEMA.to_owned(),
                schema: self.schema.clone(),
                check: Some(JsonCheck::new(check_verdict)),
            },
            max_tokens: budget.max_tokens(agent, allowance.as_ref()),
            temperature: temperature(agent, member),
            deadline: instant_of(envelope.deadline, &self.clock),
            traceparent: Some(traceparent.clone()),
            allowance,
            // What one attempt said is judged once: another attempt says something else, or deserves the same verdict.
            reuse: Reuse::Allowed,
            priority: cx.priority,
            model: agent.model.clone(),
        };
        let question = &question;
        let asked = (0..members).map(|member| self.ask(agent, move |budget| question(member, budget)));
        let (judgement, report) = together(join_all(asked).await);
        match &judgement {
            Judgement::Scored(scored) => {
                span.set("starling.score", scored.score);
                self.metrics.verdict_scores.observe(scored.score);
            }
            Judgement::Unparseable(_) => span.fail("the critic's reply is no verdict"),
            Judgement::Unavailable(why) => span.fail(&why.reason),
        }
        (judgement, report)
    }

    /// Asks for one verdict of the model.
    async fn ask(
        &self,
        agent: &Agent,
        build: impl Fn(PromptBudget) -> ChatRequest,
    ) -> (Judgement, CallReport) {
        let Asked { question, reply } =
            self.window.chat(self.model.as_ref(), agent, self.options.prompt, build).await;
        match reply {
            Ok(reply) => match read_verdict(&reply.text) {
                Reply::Scored(scored) => (Judgement::Scored(scored), reply.report),
                Reply::Unparseable { excerpt } => {
                    self.model.forget(&question).await;
                    (Judgement::Unparseable(Unparseable { excerpt }), reply.report)
                }
            },
            // It answered, twice.
            Err(error) if error.kind == ModelErrorKind::BadReply => {
                (Judgement::Unparseable(Unparseable { excerpt: error.message }), error.report)
            }
            Err(error) => {
                let reason = format!("{}: {error}", error.kind.code());
                (Judgement::Unavailable(Unavailable { reason }), error.report)
            }
        }
    }

    fn verdict(
        &self,
        envelope: &Envelope,
        result: &TaskResult,
        at: RecordRef,
        judged: (Judgement, CallReport),
    ) -> Envelope {
        let (judgement, report) = judged;
        Envelope {
            id: EnvelopeId::of_step("verdict", &result.task_id, result.attempt, result.step),
            intent_id: envelope.intent_id.clone(),
            tag: Tag::role(Role::Coordinator).with_lane(envelope.intent_id.as_str()),
            hop: envelope.hop.saturating_add(1),
            created_at: self.clock.now(),
            deadline: envelope.deadline,
            tenant: envelope.tenant.clone(),
            body: Body::Verdict(Verdict {
                task_id: result.task_id.clone(),
                run: result.run.clone(),
                attempt: result.attempt,
                step: result.step,
                judgement,
                result: at,
                work: result.report.clone(),
                worker: result.worker.clone(),
                report,
            }),
        }
    }
}

#[async_trait]
impl EnvelopeHandler for CriticHandler {
    async fn handle(
        &self,
        envelope: Envelope,
        at: RecordRef,
        cx: &HandlerContext,
    ) -> Result<(), HandleError> {
        let Body::TaskResult(result) = &envelope.body else {
            return Err(HandleError::DeadLetter(format!(
                "a critic takes a TaskResult, this is a {}",
                envelope.body.kind()
            )));
        };
        let judged = tokio::select! {
            biased;
            () = cx.cancelled.cancelled() => return Ok(()),
            judged = self.judge(&envelope, result, cx) => judged,
        };
        drop(cx.outbox.emit(self.verdict(&envelope, result, at, judged)));
        Ok(())
    }

    fn failed(&self, envelope: &Envelope, reason: &str) -> Option<Envelope> {
        let Body::TaskResult(_) = &envelope.body else { return None };
        tracing::warn!(intent_id = %envelope.intent_id, reason, "a result is passed on without a verdict");
        // A critic that cannot work is never a bad score: the coordinator gets the result itself, as it
        // does where no critic is wanted.
        Some(Envelope {
            tag: Tag::role(Role::Coordinator).with_lane(envelope.intent_id.as_str()),
            hop: envelope.hop.saturating_add(1),
            ..envelope.clone()
        })
    }
}

/// What needs no model: where there is nothing, there is nothing to praise, and what a program can see to be wrong needs
/// no opinion.
fn score_without_model(result: &TaskResult, worker: Option<&Agent>) -> Option<Scored> {
    let zero = |feedback| Some(Scored { score: 0.0, feedback });
    if let Some(failure) = &result.failure {
        return zero(format!("There is no result: {}", failure.message));
    }
    if result.output.trim().is_empty() {
        return zero("The result is empty.".to_owned());
    }
    let worker = worker?;
    let misfit = worker.output_schema.as_ref().and_then(|schema| schema.check(&result.output).err());
    let sources = usize::try_from(result.sources).unwrap_or(0);
    let faults: Vec<String> =
        misfit.into_iter().chain(worker.checks.faults(&result.output, sources)).collect();
    if faults.is_empty() { None } else { zero(faults.join(" ")) }
}

/// How many verdicts are asked for, and what each may take.
fn shares(panel: i64, allowance: Option<Allowance>) -> (i64, Option<Allowance>) {
    let Some(all) = allowance else { return (panel.max(1), None) };
    // Whoever reserved it may have thought of a smaller panel.
    let members = panel.min(all.calls).max(1);
    let each = Allowance {
        calls: all.calls / members,
        tokens: all.tokens.map(|tokens| tokens / members),
        cost_usd: all.cost_usd.map(|cost| cost / members as f64),
    };
    (members, Some(each))
}

fn temperature(critic: &Agent, member: i64) -> Option<f32> {
    if member == 0 {
        return critic.temperature;
    }
    Some((critic.temperature.unwrap_or(0.0) + APART * member as f32).min(2.0))
}
