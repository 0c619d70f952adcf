//! The plan loop: from a plan request to a stream of fragments, while the model still speaks.

mod draft;
mod fragments;
mod in_flight;
mod stream;
mod task_spec;

pub use draft::{Draft, DraftError, Wanted, draft};
pub use stream::{PlanStream, PlanStreamLimits, PlanTextFault};
pub use task_spec::{InstructionLimit, task_spec};

use async_trait::async_trait;
use fragments::{Fragments, fragment_envelope};
use futures::{FutureExt as _, StreamExt as _, stream::Fuse};
use in_flight::InFlight;
use starling_agents::{
    Agent, AgentCatalogue, DEFAULT_WORKER, PLAN_SCHEMA, PlanPrompt, PromptBudget, plan_messages, plan_schema,
    within,
};
use starling_llm::{ChatRequest, Format, Model, ModelError, Purpose, Reuse, StreamEvent, TextStream};
use starling_playbooks::{Plan, Playbooks, TextPart, Wish};
use starling_protocol::{
    Body, CallReport, Envelope, Failure, Input, PlanEnd, PlanFragment, PlanRequest, PlanStrategy, RecordRef,
    RunId, TaskSpec, ids::digest,
};
use starling_runtime::{
    Clock, ContentReader, EnvelopeHandler, HandleError, HandlerContext, Random, telemetry::Spans,
};
use starling_service::{AgentsInForce, Asked, IntentTexts, Unread, Window, instant_of, outlines};
use std::sync::Arc;
use tokio::time::Instant;

/// The code of a failure because the model's plan cannot be used.
pub const INVALID_PLAN: &str = "invalid_plan";

/// The code of a failure because a playbook cannot be used for an intent.
pub const INVALID_PLAYBOOK: &str = "invalid_playbook";

/// The code of a failure because this planner cannot plan in the way that is asked for.
pub const UNKNOWN_STRATEGY: &str = "unknown_strategy";

/// Bounds of the plan loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Size of the prompt.
    pub prompt: PromptBudget,
    /// Most tokens of an instruction that the model writes. Default 200.
    pub max_instruction_tokens: i64,
    /// Bounds of the reply.
    pub reply: PlanStreamLimits,
    /// Texts in one fragment, in bytes. Default 128 KiB: the coordinator logs them in one decision.
    pub max_fragment_bytes: usize,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            prompt: PromptBudget::default(),
            max_instruction_tokens: 200,
            reply: PlanStreamLimits::default(),
            max_fragment_bytes: 128 << 10,
        }
    }
}

/// Handles plan requests.
pub struct PlanHandler {
    model: Arc<dyn Model>,
    agents: AgentsInForce,
    playbooks: Arc<Playbooks>,
    spans: Spans,
    clock: Clock,
    random: Random,
    options: PlanOptions,
    in_flight: InFlight,
    window: Window,
}

impl PlanHandler {
    /// A plan loop that asks `model`.
    pub fn new(
        model: Arc<dyn Model>,
        agents: impl Into<AgentsInForce>,
        playbooks: Arc<Playbooks>,
        spans: Spans,
        clock: Clock,
        random: Random,
        options: PlanOptions,
    ) -> Self {
        let (in_flight, window) = (InFlight::default(), Window::default());
        Self { model, agents: agents.into(), playbooks, spans, clock, random, options, in_flight, window }
    }

    async fn plan(
        &self,
        envelope: &Envelope,
        request: &PlanRequest,
        cx: &HandlerContext,
    ) -> Result<(), HandleError> {
        let run = RunId::from_random(self.random.name());
        let mut fragments = Fragments::new(
            envelope,
            request.plan_attempt,
            run.clone(),
            &cx.outbox,
            self.options.max_fragment_bytes,
        );
        let Ok(strategy) = request.strategy.parse::<PlanStrategy>() else {
            let message = format!("this planner has no strategy {:?}", request.strategy);
            let failure = Failure { code: UNKNOWN_STRATEGY.to_owned(), message, retryable: false };
            fragments.end(failed(failure), self.clock.now()).await;
            return Ok(());
        };
        if !strategy.asks_planner() {
            let end = self.without_model(&strategy, request, cx, &mut fragments).await?;
            fragments.end(end, self.clock.now()).await;
            return Ok(());
        }
        let catalogue = self.agents.now();
        let agent = catalogue.planner();
        let mut span = self.spans.invoke_agent(&agent.name, &cx.traceparent);
        span.set_with("starling.intent_id", || envelope.intent_id.as_str().to_owned());
        span.set_with("starling.run_id", || run.as_str().to_owned());
        span.set("starling.attempt", i64::from(request.plan_attempt));
        let end = match read(request, &cx.content).await {
            Ok((intent, inputs)) => {
                let texts = IntentTexts { inputs: &inputs, ..IntentTexts::of(intent.as_ref()) };
                let parent = span.traceparent();
                let ask = |budget| self.question(envelope, request, &catalogue, texts, (cx, parent), budget);
                self.ask(ask, request.max_tasks, &catalogue, &mut fragments).await
            }
            Err(Unread::Failed(failure)) => failed(failure),
            Err(Unread::Later(retry)) => return Err(retry),
        };
        span.set("starling.tasks", i64::from(fragments.ordinal()));
        if let Some(failure) = &end.failure {
            span.fail(&failure.message);
        }
        fragments.end(end, self.clock.now()).await;
        Ok(())
    }

    /// Makes a plan that takes no call; says how it ended.
    async fn without_model(
        &self,
        strategy: &PlanStrategy,
        request: &PlanRequest,
        cx: &HandlerContext,
        fragments: &mut Fragments<'_>,
    ) -> Result<PlanEnd, HandleError> {
        let intent = match &request.intent_ref {
            Some(at) => cx.content.get(at).await.map(Some),
            None => Ok(None),
        };
        let intent = match intent.map_err(Unread::from) {
            Ok(intent) => intent,
            Err(Unread::Failed(failure)) => return Ok(failed(failure)),
            Err(Unread::Later(retry)) => return Err(retry),
        };
        let texts = IntentTexts::of(intent.as_ref());
        let names: Vec<&str> = texts.inputs.iter().map(|input| input.name.as_str()).collect();
        let parts = TextPart::of(texts.inputs);
        let wish = Wish {
            goal: &request.goal,
            parameters: texts.parameters,
            items: texts.items,
            inputs: &names,
            parts: &parts,
            part_bytes: self.options.prompt.bytes,
            max_tasks: usize::try_from(request.max_tasks).unwrap_or(0),
        };
        let plan = match self.playbooks.plan(strategy, &wish) {
            None => Plan { goal: String::new(), tasks: vec![single_task()], answer: None },
            Some(Ok(plan)) => plan,
            // The intake has seen to that, with the playbooks of its own process.
            Some(Err(faults)) => {
                let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                let message = format!("{strategy}: {}", faults.join("; "));
                return Ok(failed(Failure { code: INVALID_PLAYBOOK.to_owned(), message, retryable: false }));
            }
        };
        for task in plan.tasks {
            fragments.add(task, self.clock.now()).await;
        }
        Ok(PlanEnd { answer: plan.answer, ..PlanEnd::default() })
    }

    fn question(
        &self,
        envelope: &Envelope,
        request: &PlanRequest,
        catalogue: &AgentCatalogue,
        texts: IntentTexts<'_>,
        (cx, traceparent): (&HandlerContext, &str),
        budget: PromptBudget,
    ) -> ChatRequest {
        let agent = catalogue.planner();
        let agents: Vec<&Agent> = catalogue.workers().collect();
        let schema = Arc::new(plan_schema(agents.iter().map(|agent| agent.name.as_str())));
        let prompt = PlanPrompt {
            goal: &request.goal,
            max_tasks: request.max_tasks,
            max_instruction_tokens: self.options.max_instruction_tokens,
            inputs: texts.inputs,
            items: texts.items,
            parameters: texts.parameters,
            agents: &agents,
            feedback: request.feedback.as_deref(),
        };
        ChatRequest {
            purpose: Purpose::Plan,
            messages: within(request.allowance.as_ref(), agent, budget, |budget| {
                plan_messages(agent, &prompt, budget)
            }),
            tools: Vec::new(),
            format: Format::Json { name: PLAN_SCHEMA.to_owned(), schema, check: None },
            max_tokens: budget.max_tokens(agent, request.allowance.as_ref()),
            temperature: agent.temperature,
            deadline: instant_of(envelope.deadline, &self.clock),
            traceparent: Some(traceparent.to_owned()),
            allowance: request.allowance,
            reuse: Reuse::for_attempt(request.plan_attempt),
            priority: cx.priority,
            model: agent.model.clone(),
        }
    }

    /// Asks the model and gives its tasks to `fragments` as they come; says how it ended.
    async fn ask(
        &self,
        build: impl Fn(PromptBudget) -> ChatRequest,
        max_tasks: i32,
        catalogue: &AgentCatalogue,
        fragments: &mut Fragments<'_>,
    ) -> PlanEnd {
        let begun = Instant::now();
        let Asked { question, reply } =
            self.window.stream(self.model.as_ref(), catalogue.planner(), self.options.prompt, build).await;
        let mut events = match reply {
            Ok(events) => events.fuse(),
            Err(error) => return model_end(&error),
        };
        let end = match self.read(&mut events, max_tasks, catalogue, fragments).await {
            Ok(end) => end,
            Err(failure) => {
                let report = match events.next().now_or_never() {
                    // A reply that was there already says at once what it took.
                    Some(Some(Ok(StreamEvent::Done(report)))) => report,
                    // Else it was left unread, and nobody says it: at least it was a call.
                    _ => self.one_call(begun),
                };
                PlanEnd { report, failure: Some(failure), answer: None }
            }
        };
        drop(events);
        if end.failure.is_some() {
            self.model.forget(&question).await;
        }
        end
    }

    /// What is known to have been spent on a reply that was begun and not read.
    fn one_call(&self, begun: Instant) -> CallReport {
        let info = self.model.info();
        CallReport {
            model: info.model,
            offline: info.offline,
            calls: 1,
            latency_ms: i64::try_from(begun.elapsed().as_millis()).unwrap_or(i64::MAX),
            unpriced_calls: i64::from(!info.offline),
            ..CallReport::default()
        }
    }

    async fn read(
        &self,
        events: &mut Fuse<TextStream>,
        max_tasks: i32,
        catalogue: &AgentCatalogue,
        fragments: &mut Fragments<'_>,
    ) -> Result<PlanEnd, Failure> {
        let mut text = PlanStream::new(self.options.reply);
        let limit = InstructionLimit {
            tokens: self.options.max_instruction_tokens,
            encoding: self.model.capacity(Purpose::Plan, catalogue.planner().model.as_ref()).encoding,
        };
        loop {
            let mut next = events.next().await;
            // What is there already goes into one fragment.
            loop {
                match next {
                    Some(Ok(StreamEvent::Text(piece))) => {
                        for task in text.push(&piece).map_err(|fault| invalid(fault.to_string()))? {
                            if fragments.ordinal() >= max_tasks {
                                return Err(invalid(format!("the plan has more than {max_tasks} tasks")));
                            }
                            let spec =
                                task_spec(&task, fragments.ordinal(), catalogue, limit).map_err(invalid)?;
                            fragments.add(spec, self.clock.now()).await;
                        }
                    }
                    // It was offered no tools.
                    Some(Ok(StreamEvent::Calls(_))) => {}
                    Some(Ok(StreamEvent::Done(report))) => {
                        let failure = ending(&text, fragments.ordinal()).err();
                        return Ok(PlanEnd { report, failure, answer: None });
                    }
                    // Cut after the plan's end: nothing of the plan is missing.
                    Some(Err(error)) if text.is_done() && fragments.ordinal() > 0 => {
                        return Ok(PlanEnd { report: error.report, ..PlanEnd::default() });
                    }
                    Some(Err(error)) => return Ok(model_end(&error)),
                    None => return Err(invalid("the reply was cut off".to_owned())),
                }
                match events.next().now_or_never() {
                    Some(event) => next = event,
                    None => break,
                }
            }
            fragments.flush(self.clock.now()).await;
        }
    }
}

#[async_trait]
impl EnvelopeHandler for PlanHandler {
    async fn handle(
        &self,
        envelope: Envelope,
        _at: RecordRef,
        cx: &HandlerContext,
    ) -> Result<(), HandleError> {
        let Body::PlanRequest(request) = &envelope.body else {
            return Err(HandleError::DeadLetter(format!(
                "the plan loop takes a PlanRequest, this is a {}",
                envelope.body.kind()
            )));
        };
        let Some(_entry) = self.in_flight.enter(&envelope.intent_id, request.plan_attempt) else {
            tracing::info!(intent_id = %envelope.intent_id, "a plan request that is in flight already");
            return Ok(());
        };
        tokio::select! {
            biased;
            () = cx.cancelled.cancelled() => Ok(()),
            planned = self.plan(&envelope, request, cx) => planned,
        }
    }

    fn failed(&self, envelope: &Envelope, reason: &str) -> Option<Envelope> {
        let Body::PlanRequest(request) = &envelope.body else { return None };
        let failure =
            Failure { code: "dead_letter".to_owned(), message: reason.to_owned(), retryable: false };
        let fragment = PlanFragment {
            plan_attempt: request.plan_attempt,
            // Derived, not random: the same dead letter always tells the same.
            run: RunId::from_string(digest(&["dead-letter", envelope.id.as_str()])),
            seq: 0,
            tasks: Vec::new(),
            end: Some(failed(failure)),
        };
        Some(fragment_envelope(envelope, fragment, self.clock.now()))
    }
}

/// The intent, if there is something to be read in it, and its inputs as a planner sees them.
async fn read(
    request: &PlanRequest,
    content: &ContentReader,
) -> Result<(Option<Arc<Envelope>>, Vec<Input>), Unread> {
    let Some(at) = &request.intent_ref else { return Ok((None, Vec::new())) };
    let intent = Some(content.get(at).await?);
    let inputs = outlines(IntentTexts::of(intent.as_ref()).inputs, content).await?;
    Ok((intent, inputs))
}

fn ending(text: &PlanStream, tasks: i32) -> Result<(), Failure> {
    text.finish().map_err(|fault| invalid(fault.to_string()))?;
    if tasks == 0 { Err(invalid("the plan has no tasks".to_owned())) } else { Ok(()) }
}

/// The end of a run that made no call and has no plan.
fn failed(failure: Failure) -> PlanEnd {
    PlanEnd { failure: Some(failure), ..PlanEnd::default() }
}

fn invalid(message: String) -> Failure {
    Failure { code: INVALID_PLAN.to_owned(), message, retryable: true }
}

fn model_end(error: &ModelError) -> PlanEnd {
    PlanEnd { report: error.report.clone(), failure: Some(error.to_failure()), answer: None }
}

fn single_task() -> TaskSpec {
    TaskSpec {
        ordinal: 0,
        key: "all".to_owned(),
        title: "Reach the goal".to_owned(),
        instruction: "Do what the goal says, completely.".to_owned(),
        agent: DEFAULT_WORKER.to_owned(),
        critic: true,
        ..TaskSpec::default()
    }
}
