//! From a result to a verdict.

use crate::verdict::{Reply, check_verdict, read_verdict};
use async_trait::async_trait;
use starling_agents::{JudgePrompt, PromptBudget, VERDICT_SCHEMA, judge_messages, verdict_schema, within};
use starling_llm::{ChatRequest, Format, JsonCheck, Model, ModelErrorKind, Purpose, Reuse};
use starling_protocol::{
    Body, CallReport, Envelope, EnvelopeId, Judgement, RecordRef, Role, Scored, Tag, TaskResult, Unavailable,
    Unparseable, Verdict,
};
use starling_runtime::{Clock, EnvelopeHandler, HandleError, HandlerContext, Metrics, telemetry::Spans};
use starling_service::{AgentsInForce, Asked, Window, instant_of};
use std::sync::Arc;

/// Handles results.
pub struct CriticHandler {
    model: Arc<dyn Model>,
    agents: AgentsInForce,
    schema: Arc<serde_json::Value>,
    spans: Spans,
    metrics: Arc<Metrics>,
    clock: Clock,
    prompt: PromptBudget,
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
        prompt: PromptBudget,
    ) -> Self {
        let schema = Arc::new(verdict_schema());
        Self {
            model,
            agents: agents.into(),
            schema,
            spans,
            metrics,
            clock,
            prompt,
            window: Window::default(),
        }
    }

    async fn judge(
        &self,
        envelope: &Envelope,
        result: &TaskResult,
        cx: &HandlerContext,
    ) -> (Judgement, CallReport) {
        if let Some(scored) = score_without_model(result) {
            return (Judgement::Scored(scored), CallReport::default());
        }
        let catalogue = self.agents.now();
        let agent = catalogue.critic();
        let mut span = self.spans.invoke_agent(&agent.name, &cx.traceparent);
        span.set_with("starling.intent_id", || envelope.intent_id.as_str().to_owned());
        span.set_with("starling.task_id", || result.task_id.as_str().to_owned());
        span.set("starling.attempt", i64::from(result.attempt));
        let prompt = JudgePrompt {
            goal: &result.goal,
            title: &result.title,
            instruction: &result.instruction,
            min_score: result.min_score,
            result: &result.output,
        };
        let allowance = result.critic_allowance;
        let ask = |budget: PromptBudget| ChatRequest {
            purpose: Purpose::Judge,
            messages: within(allowance.as_ref(), agent, budget, |budget| {
                judge_messages(agent, &prompt, budget)
            }),
            tools: Vec::new(),
            format: Format::Json {
                name: VERDICT_SCHEMA.to_owned(),
                schema: self.schema.clone(),
                check: Some(JsonCheck::new(check_verdict)),
            },
            max_tokens: budget.max_tokens(agent, allowance.as_ref()),
            temperature: agent.temperature,
            deadline: instant_of(envelope.deadline, &self.clock),
            traceparent: Some(span.traceparent().to_string()),
            allowance,
            // What one attempt said is judged once: another attempt says something else, or deserves the same verdict.
            reuse: Reuse::Allowed,
            priority: cx.priority,
            model: agent.model.clone(),
        };
        let Asked { question, reply } = self.window.chat(self.model.as_ref(), agent, self.prompt, ask).await;
        match reply {
            Ok(reply) => match read_verdict(&reply.text) {
                Reply::Scored(scored) => {
                    span.set("starling.score", scored.score);
                    self.metrics.verdict_scores.observe(scored.score);
                    (Judgement::Scored(scored), reply.report)
                }
                Reply::Unparseable { excerpt } => {
                    span.fail("the critic's reply is no verdict");
                    self.model.forget(&question).await;
                    (Judgement::Unparseable(Unparseable { excerpt }), reply.report)
                }
            },
            // It answered, twice.
            Err(error) if error.kind == ModelErrorKind::BadReply => {
                span.fail(&error.to_string());
                (Judgement::Unparseable(Unparseable { excerpt: error.message }), error.report)
            }
            Err(error) => {
                span.fail(&error.to_string());
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

/// What needs no model: where there is nothing, there is nothing to praise.
fn score_without_model(result: &TaskResult) -> Option<Scored> {
    let feedback = match &result.failure {
        Some(failure) => format!("There is no result: {}", failure.message),
        None if result.output.trim().is_empty() => "The result is empty.".to_owned(),
        None => return None,
    };
    Some(Scored { score: 0.0, feedback })
}
