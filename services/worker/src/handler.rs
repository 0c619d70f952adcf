//! From a task to its result: one model call.

use crate::reading::{Reading, read};
use async_trait::async_trait;
use starling_agents::{
    Agent, AgentCatalogue, AgentPurpose, EarlierAttempt, PromptBudget, SynthesisPrompt, WorkPrompt,
    synthesis_messages, within, work_messages,
};
use starling_llm::{ChatRequest, Format, Message, Model, ModelErrorKind, Reuse};
use starling_protocol::{
    Body, CallReport, Envelope, EnvelopeId, Failure, RecordRef, Role, Tag, Task, TaskKind, TaskResult,
};
use starling_runtime::{
    Clock, EnvelopeHandler, HandleError, HandlerContext,
    telemetry::{ActiveSpan, Spans},
};
use starling_service::{Asked, IntentTexts, Unread, Window, instant_of};
use std::sync::Arc;

/// The code of a failure because a task names an agent that this worker does not have.
pub const UNKNOWN_AGENT: &str = "unknown_agent";
/// The code of a failure because the model's reply is too large to pass on.
pub const OUTPUT_TOO_LARGE: &str = "output_too_large";

/// Bounds of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkOptions {
    /// Size of the prompt.
    pub prompt: PromptBudget,
    /// Largest output of a task, in bytes. Default 256 KiB.
    pub max_output_bytes: usize,
}

impl Default for WorkOptions {
    fn default() -> Self {
        Self { prompt: PromptBudget::default(), max_output_bytes: 256 << 10 }
    }
}

/// Handles tasks.
pub struct WorkHandler {
    model: Arc<dyn Model>,
    catalogue: Arc<AgentCatalogue>,
    spans: Spans,
    clock: Clock,
    options: WorkOptions,
    window: Window,
}

/// What came of a task: the output or why there is none, and what the model call took.
type Done = (Result<String, Failure>, CallReport);

impl WorkHandler {
    /// A worker that asks `model`.
    pub fn new(
        model: Arc<dyn Model>,
        catalogue: Arc<AgentCatalogue>,
        spans: Spans,
        clock: Clock,
        options: WorkOptions,
    ) -> Self {
        Self { model, catalogue, spans, clock, options, window: Window::default() }
    }

    async fn work(&self, envelope: &Envelope, task: &Task, cx: &HandlerContext) -> Result<Done, HandleError> {
        let Some(agent) = self.agent(task) else {
            let message = format!("this worker has no agent {:?}; the folder agents.dir decides", task.agent);
            // Another worker may have it.
            return Ok(failed(UNKNOWN_AGENT, message, true));
        };
        let mut span = self.spans.invoke_agent(&agent.name, &cx.traceparent);
        describe(&mut span, envelope, task);
        let reading = match read(task, &cx.content).await {
            Ok(reading) => reading,
            Err(Unread::Failed(failure)) => {
                span.fail(&failure.message);
                return Ok((Err(failure), CallReport::default()));
            }
            Err(Unread::Later(retry)) => return Err(retry),
        };
        let ask = |budget| ChatRequest {
            purpose: agent.purpose.into(),
            messages: self.messages(agent, task, &reading, budget),
            format: Format::Text,
            max_tokens: agent.max_tokens_within(task.allowance.as_ref()),
            temperature: agent.temperature,
            deadline: instant_of(envelope.deadline, &self.clock),
            traceparent: Some(span.traceparent().to_string()),
            allowance: task.allowance,
            reuse: Reuse::for_attempt(task.attempt),
            priority: cx.priority,
        };
        let Asked { question, reply } = self.window.chat(self.model.as_ref(), self.options.prompt, ask).await;
        let done = match reply {
            Ok(reply) if reply.text.len() > self.options.max_output_bytes => {
                self.model.forget(&question).await;
                let message = format!(
                    "the reply has {} bytes, at most {} are passed on",
                    reply.text.len(),
                    self.options.max_output_bytes
                );
                let failure = Failure { code: OUTPUT_TOO_LARGE.to_owned(), message, retryable: true };
                (Err(failure), reply.report)
            }
            Ok(reply) => (Ok(reply.text), reply.report),
            Err(error) => {
                let mut failure = error.to_failure();
                // It was the deadline of this attempt. Whether there is time for another, the coordinator knows.
                failure.retryable |= error.kind == ModelErrorKind::Deadline;
                (Err(failure), error.report)
            }
        };
        if let Err(failure) = &done.0 {
            span.fail(&failure.message);
        }
        Ok(done)
    }

    fn agent(&self, task: &Task) -> Option<&Agent> {
        let (wanted, fallback) = match task.kind {
            TaskKind::Work => (AgentPurpose::Work, None),
            TaskKind::Synthesis => (AgentPurpose::Synthesize, Some(self.catalogue.synthesizer())),
        };
        self.catalogue.get(&task.agent).filter(|agent| agent.purpose == wanted).or(fallback)
    }

    fn messages(&self, agent: &Agent, task: &Task, reading: &Reading, budget: PromptBudget) -> Vec<Message> {
        let IntentTexts { inputs, items, parameters } =
            IntentTexts::of(reading.intent.as_ref()).within(&task.terms);
        let results = &reading.results;
        within(task.allowance.as_ref(), agent, budget, |budget| match task.kind {
            TaskKind::Synthesis => {
                let prompt = SynthesisPrompt { goal: &task.goal, inputs, items, parameters, results };
                synthesis_messages(agent, &prompt, budget)
            }
            TaskKind::Work => {
                let prompt = WorkPrompt {
                    goal: &task.goal,
                    title: &task.title,
                    instruction: &task.instruction,
                    inputs,
                    items,
                    parameters,
                    results,
                    feedback: task.feedback.as_ref().map(|feedback| EarlierAttempt {
                        score: feedback.score,
                        advice: &feedback.text,
                        output: reading.earlier.as_deref(),
                    }),
                };
                work_messages(agent, &prompt, budget)
            }
        })
    }

    /// The envelope of a result: a good one goes where the task says, a failed one to the coordinator.
    fn result(&self, envelope: &Envelope, task: &Task, done: Done, worker: &str) -> Envelope {
        let (output, report) = done;
        let (tag, output, failure) = match output {
            Ok(output) => (task.next_tag.clone(), output, None),
            Err(failure) => (
                Tag::role(Role::Coordinator).with_lane(envelope.intent_id.as_str()),
                String::new(),
                Some(failure),
            ),
        };
        Envelope {
            id: EnvelopeId::of_step("result", &task.task_id, task.attempt, task.step),
            intent_id: envelope.intent_id.clone(),
            tag,
            hop: envelope.hop.saturating_add(1),
            created_at: self.clock.now(),
            deadline: envelope.deadline,
            tenant: envelope.tenant.clone(),
            body: Body::TaskResult(TaskResult {
                task_id: task.task_id.clone(),
                run: task.run.clone(),
                kind: task.kind,
                attempt: task.attempt,
                step: task.step,
                title: task.title.clone(),
                agent: task.agent.clone(),
                goal: task.goal.clone(),
                instruction: task.instruction.clone(),
                min_score: task.min_score,
                output,
                failure,
                report,
                worker: worker.to_owned(),
                critic_allowance: task.critic_allowance,
                rule_based: false,
            }),
        }
    }
}

#[async_trait]
impl EnvelopeHandler for WorkHandler {
    async fn handle(
        &self,
        envelope: Envelope,
        _at: RecordRef,
        cx: &HandlerContext,
    ) -> Result<(), HandleError> {
        let Body::Task(task) = &envelope.body else {
            return Err(HandleError::DeadLetter(format!(
                "a worker takes a Task, this is a {}",
                envelope.body.kind()
            )));
        };
        let done = tokio::select! {
            biased;
            () = cx.cancelled.cancelled() => return Ok(()),
            done = self.work(&envelope, task, cx) => done?,
        };
        if let Err(failure) = &done.0 {
            tracing::info!(
                intent_id = %envelope.intent_id,
                task_id = %task.task_id,
                attempt = task.attempt,
                code = failure.code,
                reason = failure.message,
                "a task failed"
            );
        }
        drop(cx.outbox.emit(self.result(&envelope, task, done, &cx.process)));
        Ok(())
    }

    fn failed(&self, envelope: &Envelope, reason: &str) -> Option<Envelope> {
        let Body::Task(task) = &envelope.body else { return None };
        let done = failed("dead_letter", reason.to_owned(), true);
        Some(self.result(envelope, task, done, ""))
    }
}

fn failed(code: &str, message: String, retryable: bool) -> Done {
    (Err(Failure { code: code.to_owned(), message, retryable }), CallReport::default())
}

fn describe(span: &mut ActiveSpan, envelope: &Envelope, task: &Task) {
    span.set_with("starling.intent_id", || envelope.intent_id.as_str().to_owned());
    span.set_with("starling.task_id", || task.task_id.as_str().to_owned());
    span.set_with("starling.task_title", || task.title.clone());
    span.set("starling.attempt", i64::from(task.attempt));
    span.set("starling.step", i64::from(task.step));
}
