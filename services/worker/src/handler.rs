//! From a task to its result: one model call.

use crate::failures::with_failures_named;
use crate::reading::{Reading, read};
use async_trait::async_trait;
use starling_agents::{
    Agent, AgentCatalogue, AgentPurpose, EarlierAttempt, PromptBudget, SynthesisPrompt, TaskOutput,
    WorkPrompt, synthesis_messages, within, work_messages,
};
use starling_llm::{
    Capacity, ChatRequest, Format, JsonCheck, Message, Model, ModelError, ModelErrorKind, Reuse,
};
use starling_protocol::{
    Body, CallReport, Envelope, EnvelopeId, Failure, RecordRef, Role, Tag, Task, TaskKind, TaskResult,
};
use starling_runtime::{
    Clock, EnvelopeHandler, HandleError, HandlerContext,
    telemetry::{ActiveSpan, Spans},
};
use starling_service::{AgentsInForce, Asked, IntentTexts, Unread, Window, instant_of};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// The code of a failure because a task names an agent that this worker does not have.
pub const UNKNOWN_AGENT: &str = "unknown_agent";
/// The code of a failure because the model's reply is too large to pass on.
pub const OUTPUT_TOO_LARGE: &str = "output_too_large";

/// The code of a failure because the parts that a task has to read whole do not fit into a prompt.
pub const PARTS_TOO_LONG: &str = "parts_too_long";
/// The code of a failure because the model's reply is not the JSON that the agent must give.
pub const OUTPUT_MISFIT: &str = "output_misfit";

/// Tokens that a reply about parts needs at least.
const LEAST_REPLY: i64 = 256;

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
    agents: AgentsInForce,
    spans: Spans,
    clock: Clock,
    options: WorkOptions,
    window: Window,
}

/// What came of a task: the output or why there is none, and what the model call took.
type Done = (Result<Output, Failure>, CallReport);

/// A text that a task delivers.
struct Output {
    text: String,
    /// Whether it is the task's fallback, and not of a model.
    rule_based: bool,
}

impl WorkHandler {
    /// A worker that asks `model`.
    pub fn new(
        model: Arc<dyn Model>,
        agents: impl Into<AgentsInForce>,
        spans: Spans,
        clock: Clock,
        options: WorkOptions,
    ) -> Self {
        Self { model, agents: agents.into(), spans, clock, options, window: Window::default() }
    }

    async fn work(&self, envelope: &Envelope, task: &Task, cx: &HandlerContext) -> Result<Done, HandleError> {
        let catalogue = self.agents.now();
        let Some(agent) = agent_for(task, &catalogue) else {
            let message = format!("this worker has no agent {:?}; the folder agents.dir decides", task.agent);
            // Another worker may have it.
            return Ok(self.by_rule(failed(UNKNOWN_AGENT, message, true), task, &[]));
        };
        let mut span = self.spans.invoke_agent(&agent.name, &cx.traceparent);
        describe(&mut span, envelope, task);
        let reading = match read(task, &cx.content, self.options.prompt.bytes).await {
            Ok(reading) => reading,
            Err(Unread::Failed(failure)) => {
                span.fail(&failure.message);
                return Ok(self.by_rule((Err(failure), CallReport::default()), task, &[]));
            }
            Err(Unread::Later(retry)) => return Err(retry),
        };
        // How long the call may take counts from here: whoever waits for it does not know of queues.
        let own_time = task.terms.timeout_ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        let deadline = instant_of(envelope.deadline, &self.clock);
        let deadline = own_time.map_or(deadline, |own| deadline.min(Instant::now() + own));
        let purpose = agent.purpose.into();
        let ask = |budget: PromptBudget| ChatRequest {
            purpose,
            messages: self.messages(agent, task, &reading, budget),
            tools: Vec::new(),
            format: format_of(agent),
            max_tokens: budget.max_tokens(agent, task.allowance.as_ref()),
            temperature: agent.temperature,
            deadline,
            traceparent: Some(span.traceparent().to_string()),
            allowance: task.allowance,
            reuse: Reuse::for_attempt(task.attempt),
            priority: cx.priority,
            model: agent.model.clone(),
        };
        let Asked { question, reply } = if task.terms.parts.is_some() {
            let capacity = self.model.capacity(purpose, agent.model.as_ref());
            match self.whole(ask(PromptBudget::of_bytes(usize::MAX)), capacity) {
                Ok(question) => {
                    Asked { reply: self.model.chat(question.clone()).await.map_err(in_parts), question }
                }
                Err(failure) => {
                    span.fail(&failure.message);
                    let done = (Err(failure), CallReport::default());
                    return Ok(self.by_rule(done, task, &reading.results));
                }
            }
        } else {
            self.window.chat(self.model.as_ref(), agent, self.options.prompt, ask).await
        };
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
            // Also asked where nobody between here and the model has looked, or the reply was kept from an earlier time.
            Ok(reply) => {
                match agent.output_schema.as_ref().map_or(Ok(()), |schema| schema.check(&reply.text)) {
                    Ok(()) if task.kind == TaskKind::Synthesis && agent.output_schema.is_none() => {
                        (said(with_failures_named(reply.text, &reading.results)), reply.report)
                    }
                    Ok(()) => (said(reply.text), reply.report),
                    Err(wrong) => {
                        self.model.forget(&question).await;
                        let failure = misfit(&wrong);
                        (Err(failure), reply.report)
                    }
                }
            }
            Err(error) if error.kind == ModelErrorKind::BadReply && agent.output_schema.is_some() => {
                (Err(misfit(&error.to_string())), error.report)
            }
            Err(error) => {
                let mut failure = error.to_failure();
                // It was the deadline of this attempt. Whether there is time for another, the coordinator knows. Who has
                // something to say at once does not try again.
                let is_late = error.kind == ModelErrorKind::Deadline;
                failure.retryable |= is_late;
                failure.retryable &= !(is_late && own_time.is_some() && task.terms.fallback.is_some());
                (Err(failure), error.report)
            }
        };
        if let Err(failure) = &done.0 {
            span.fail(&failure.message);
        }
        Ok(self.by_rule(done, task, &reading.results))
    }

    fn by_rule(&self, done: Done, task: &Task, results: &[TaskOutput]) -> Done {
        by_rule(done, task, results, self.options.max_output_bytes)
    }

    /// A question about parts is asked as it is, or not at all: what would be left out of it, nobody would read.
    fn whole(&self, question: ChatRequest, capacity: Capacity) -> Result<ChatRequest, Failure> {
        let too_long = |what: String| {
            let message = format!(
                "the parts and what is said about them have {what}: smaller parts (--chunk-tokens) help"
            );
            Failure { code: PARTS_TOO_LONG.to_owned(), message, retryable: false }
        };
        let texts = question.messages.last().map_or(0, |message| message.text.len());
        let most = self.options.prompt.bytes;
        if texts > most {
            return Err(too_long(format!("{texts} bytes, and agents.prompt allows {most}")));
        }
        let Some(window) = capacity.window else { return Ok(question) };
        let tokens = capacity.encoding.count_messages(&question.messages);
        match u32::try_from(window - tokens) {
            Ok(room) if i64::from(room) >= LEAST_REPLY => {
                let max_tokens = question.max_tokens.map(|most| most.min(room));
                Ok(ChatRequest { max_tokens, ..question })
            }
            _ => Err(too_long(format!("{tokens} tokens, and the model's window has {window}"))),
        }
    }

    fn messages(&self, agent: &Agent, task: &Task, reading: &Reading, budget: PromptBudget) -> Vec<Message> {
        let IntentTexts { inputs, items, parameters } =
            IntentTexts::of(reading.intent.as_ref()).within(&task.terms);
        let inputs = reading.inputs.as_deref().unwrap_or(inputs);
        let results = &reading.results;
        // Parts are told whole, whatever the step may take: then it fails, and says so.
        let allowance = task.allowance.as_ref().filter(|_| task.terms.parts.is_none());
        within(allowance, agent, budget, |budget| match task.kind {
            TaskKind::Synthesis => {
                let prompt = SynthesisPrompt {
                    goal: &task.goal,
                    instruction: &task.instruction,
                    inputs,
                    items,
                    parameters,
                    results,
                };
                synthesis_messages(agent, &prompt, budget)
            }
            TaskKind::Work | TaskKind::Reduce => {
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
        let coordinator = || Tag::role(Role::Coordinator).with_lane(envelope.intent_id.as_str());
        let none = Output { text: String::new(), rule_based: false };
        let (tag, output, failure) = match output {
            // There is nothing to judge in what is said by rule.
            Ok(output) if output.rule_based => (coordinator(), output, None),
            Ok(output) => (task.next_tag.clone(), output, None),
            Err(failure) => (coordinator(), none, Some(failure)),
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
                output: output.text,
                failure,
                report,
                worker: worker.to_owned(),
                critic_allowance: task.critic_allowance,
                rule_based: output.rule_based,
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
        let done = self.by_rule(failed("dead_letter", reason.to_owned(), true), task, &[]);
        Some(self.result(envelope, task, done, ""))
    }
}

/// Says what helps if parts were too long for the model.
fn in_parts(error: ModelError) -> ModelError {
    if error.kind != ModelErrorKind::ContextTooLong {
        return error;
    }
    let message = format!(
        "{} (parts are read whole: smaller ones, by --chunk-tokens, or a model with a larger window)",
        error.message
    );
    ModelError { message, ..error }
}

/// Puts the fallback of a task in the place of a failure that is for good.
fn by_rule((output, report): Done, task: &Task, results: &[TaskOutput], max_bytes: usize) -> Done {
    let Err(failure) = &output else { return (output, report) };
    let for_good = !failure.retryable || task.last_attempt;
    let Some(fallback) = task.terms.fallback.as_ref().filter(|_| for_good) else { return (output, report) };
    tracing::info!(task_id = %task.task_id, code = failure.code, reason = failure.message, "answered by rule");
    let mut text = fallback.text.clone();
    let mut left_out = 0;
    for result in results.iter().filter(|_| fallback.with_results) {
        let Ok(output) = &result.output else { continue };
        let part = format!("\n\n## {}\n\n{}", result.title, output.trim());
        if text.len() + part.len() > max_bytes {
            left_out += 1;
        } else {
            text.push_str(&part);
        }
    }
    if left_out > 0 {
        text.push_str(&format!("\n\n({left_out} more results are too long to be given here.)"));
    }
    (Ok(Output { text, rule_based: true }), report)
}

/// What a model said.
fn said(text: String) -> Result<Output, Failure> {
    Ok(Output { text, rule_based: false })
}

fn agent_for<'c>(task: &Task, catalogue: &'c AgentCatalogue) -> Option<&'c Agent> {
    let (wanted, fallback) = match task.kind {
        TaskKind::Work => (AgentPurpose::Work, None),
        TaskKind::Synthesis => (AgentPurpose::Synthesize, Some(catalogue.synthesizer())),
        TaskKind::Reduce => (AgentPurpose::Synthesize, Some(catalogue.reducer())),
    };
    catalogue.get(&task.agent).filter(|agent| agent.purpose == wanted).or(fallback)
}

fn format_of(agent: &Agent) -> Format {
    let Some(schema) = agent.output_schema.clone() else { return Format::Text };
    Format::Json {
        name: agent.name.clone(),
        schema: schema.schema().clone(),
        check: Some(JsonCheck::new(move |json| schema.check(json))),
    }
}

/// Another attempt may bring what was asked for.
fn misfit(wrong: &str) -> Failure {
    let message = format!("the reply is not what the agent's output_schema asks for: {wrong}");
    Failure { code: OUTPUT_MISFIT.to_owned(), message, retryable: true }
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
