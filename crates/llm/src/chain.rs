//! Several models, each of which is asked where those before it do not answer.

use crate::{
    Capacity, ChatReply, ChatRequest, FailedAttempts, Model, ModelChoice, ModelError, ModelInfo, Purpose,
    Purposes, TextStream, stream_after,
};
use async_trait::async_trait;
use starling_protocol::CallReport;
use std::{collections::HashMap, sync::Arc};

/// A model of a chain.
#[derive(Clone)]
pub struct Link {
    /// The model.
    pub model: Arc<dyn Model>,
    /// What it is asked for.
    pub purposes: Purposes,
}

/// Models in the order in which they are asked. A question goes to the next one when one fails for another reason than the
/// deadline; what was spent on the way is in the report. The first link stands for the whole where one name is needed.
///
/// Those that have a successor should not wait for an endpoint that fails for all
/// ([`crate::OpenAiOptions::stand_ins`]).
pub struct ModelChain {
    first: Link,
    rest: Vec<Link>,
}

impl ModelChain {
    /// `first` is asked first, for all its purposes.
    #[must_use]
    pub fn new(first: Link, rest: Vec<Link>) -> Self {
        Self { first, rest }
    }

    fn links(&self) -> impl Iterator<Item = &Link> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// Those that are asked a question: all but the last one, and the last one.
    fn asked(&self, request: &ChatRequest) -> (Vec<Arc<dyn Model>>, Arc<dyn Model>) {
        let serving = self.links().filter(|link| link.purposes.contains(request.purpose));
        let mut models: Vec<_> = serving.map(|link| link.model.clone()).collect();
        let last = models.pop().unwrap_or_else(|| self.first.model.clone());
        (models, last)
    }

    /// The question to one of them, which may take what is left. The name of a model means something to the first alone.
    fn question(&self, to: &Arc<dyn Model>, request: &ChatRequest, spent: &CallReport) -> ChatRequest {
        let allowance = request.allowance.as_ref().map(|all| all.after(spent));
        let is_first = Arc::ptr_eq(to, &self.first.model);
        let model = request.model.clone().filter(|model| is_first || !matches!(model, ModelChoice::Named(_)));
        ChatRequest { allowance, model, ..request.clone() }
    }
}

/// Whether the next one is asked after `error`, and a word about that.
fn passes_on(error: &ModelError) -> bool {
    let passes = error.kind.may_be_answered_elsewhere();
    if passes {
        tracing::warn!(
            endpoint = error.endpoint,
            kind = error.kind.code(),
            reason = error.message,
            "a model does not answer, the next one is asked"
        );
    }
    passes
}

#[async_trait]
impl Model for ModelChain {
    fn info(&self) -> ModelInfo {
        self.first.model.info()
    }

    /// Any of those that serve a purpose may be who answers.
    fn provenance(&self, purpose: Purpose) -> String {
        let serving = self.links().filter(|link| link.purposes.contains(purpose));
        let all: Vec<String> = serving.map(|link| link.model.provenance(purpose)).collect();
        serde_json::json!(all).to_string()
    }

    /// That of the one who is asked first. Where another one takes in less, its endpoint says so.
    fn capacity(&self, purpose: Purpose, choice: Option<&ModelChoice>) -> Capacity {
        let serving = self.links().find(|link| link.purposes.contains(purpose));
        let model = &serving.unwrap_or(&self.first).model;
        let is_first = Arc::ptr_eq(model, &self.first.model);
        let choice = choice.filter(|choice| is_first || !matches!(choice, ModelChoice::Named(_)));
        model.capacity(purpose, choice)
    }

    /// One that answers is enough.
    async fn reach(&self) -> Result<(), ModelError> {
        let mut first = None;
        for link in self.links() {
            match link.model.reach().await {
                Ok(()) => return Ok(()),
                Err(error) => first = first.or(Some(error)),
            }
        }
        first.map_or(Ok(()), Err)
    }

    fn failed_attempts(&self) -> Vec<FailedAttempts> {
        let mut places = HashMap::new();
        let mut all: Vec<FailedAttempts> = Vec::new();
        for failed in self.links().flat_map(|link| link.model.failed_attempts()) {
            let place = *places.entry((failed.model.clone(), failed.kind)).or_insert(all.len());
            match all.get_mut(place) {
                Some(known) => known.count += failed.count,
                None => all.push(failed),
            }
        }
        all
    }

    async fn models(&self) -> Result<Option<Vec<String>>, ModelError> {
        self.first.model.models().await
    }

    async fn chat(&self, request: ChatRequest) -> Result<ChatReply, ModelError> {
        let (before, last) = self.asked(&request);
        let mut spent = CallReport::default();
        for model in before {
            let question = self.question(&model, &request, &spent);
            match model.chat(question).await {
                Ok(reply) => return Ok(reply.after(&spent)),
                Err(error) if passes_on(&error) => spent = error.report.after(&spent),
                Err(error) => return Err(error.after(&spent)),
            }
        }
        match last.chat(self.question(&last, &request, &spent)).await {
            Ok(reply) => Ok(reply.after(&spent)),
            Err(error) => Err(error.after(&spent)),
        }
    }

    /// Goes on to the next one only until the first text has come, like a retry.
    async fn stream(&self, request: ChatRequest) -> Result<TextStream, ModelError> {
        let (before, last) = self.asked(&request);
        let mut spent = CallReport::default();
        for model in before {
            let question = self.question(&model, &request, &spent);
            match model.stream(question).await {
                Ok(events) => return Ok(stream_after(events, spent)),
                Err(error) if passes_on(&error) => spent = error.report.after(&spent),
                Err(error) => return Err(error.after(&spent)),
            }
        }
        match last.stream(self.question(&last, &request, &spent)).await {
            Ok(events) => Ok(stream_after(events, spent)),
            Err(error) => Err(error.after(&spent)),
        }
    }
}
