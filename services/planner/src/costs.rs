//! What model calls take at most, by the settings and the agents.

use starling_agents::{Agent, AgentCatalogue};
use starling_engine::coordinator::{AgentCost, CallCosts, TokenPrice};
use starling_llm::{ModelChoice, Purpose, estimated_tokens};
use starling_runtime::settings::{ModelSettings, ProviderSettings, Settings};

/// What model calls take at most. All services must go by the same settings and the same agents.
#[must_use]
pub fn call_costs(settings: &Settings, catalogue: &AgentCatalogue) -> CallCosts {
    let model = &settings.model;
    let cost = |agent: &Agent| agent_cost(agent, model);
    let mut planner = cost(catalogue.planner());
    // The planner is told of all agents that it may name, each in a line.
    let lines = catalogue.workers().map(|agent| agent.name.len() + agent.description.len() + 5).sum();
    planner.prompt_tokens = planner.prompt_tokens.saturating_add(estimated_tokens(lines));
    // The critic is told the rubric of whose result it scores.
    let mut critic = cost(catalogue.critic());
    let rubric = catalogue.workers().filter_map(|agent| agent.rubric.as_ref()).map(String::len).max();
    critic.prompt_tokens = critic.prompt_tokens.saturating_add(estimated_tokens(rubric.unwrap_or(0)));
    CallCosts {
        // One more each for a reply that is of no use.
        tries: (i64::from(model.tries) + 1).saturating_mul(model.providers().count() as i64),
        texts_tokens: estimated_tokens(settings.agents_prompt),
        planner,
        critic,
        critic_calls: settings.critic_panel,
        synthesizer: cost(catalogue.synthesizer()),
        workers: catalogue
            .workers()
            .chain([catalogue.reducer()])
            .map(|agent| (agent.name.clone(), cost(agent)))
            .collect(),
    }
}

fn agent_cost(agent: &Agent, settings: &ModelSettings) -> AgentCost {
    let model = model_of(settings, &settings.provider, agent);
    // What any of those takes that may be asked.
    let asked = settings.providers().map(|provider| {
        let price = settings.prices.get(model_of(settings, provider, agent))?;
        Some(TokenPrice { input: price.input, output: price.output })
    });
    let price = asked.reduce(|a, b| {
        let (a, b) = (a?, b?);
        Some(TokenPrice { input: a.input.max(b.input), output: a.output.max(b.output) })
    });
    // Endpoints that know no schemas are told it.
    let schema = agent.output_schema.as_ref().map_or(0, |schema| schema.schema().to_string().len());
    // The offline model, which is no LLM, costs nothing.
    let free = settings.is_offline().then(TokenPrice::default);
    AgentCost {
        prompt_tokens: estimated_tokens(agent.prompt.len() + schema),
        reply_tokens: i64::from(agent.reply_tokens()),
        model: model.to_owned(),
        price: price.flatten().or(free),
    }
}

/// The model that a provider is asked for by an agent. Only the first one is asked for a model that an agent names.
#[must_use]
pub fn model_of<'s>(
    settings: &'s ModelSettings,
    provider: &'s ProviderSettings,
    agent: &'s Agent,
) -> &'s str {
    let is_first = std::ptr::eq(provider, &settings.provider);
    let purpose = match &agent.model {
        Some(ModelChoice::Named(name)) if is_first => return name,
        Some(ModelChoice::Role(role)) => *role,
        Some(ModelChoice::Named(_)) | None => agent.purpose.into(),
    };
    let own = match purpose {
        Purpose::Plan => &provider.plan,
        Purpose::Work => &provider.work,
        Purpose::Judge => &provider.judge,
        Purpose::Synthesize => &provider.synthesize,
    };
    own.as_deref().unwrap_or(&provider.name)
}
