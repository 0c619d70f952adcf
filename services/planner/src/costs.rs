//! What model calls take at most, by the settings and the agents.

use starling_agents::{Agent, AgentCatalogue, AgentPurpose};
use starling_engine::coordinator::{AgentCost, CallCosts, TokenPrice};
use starling_llm::estimated_tokens;
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
    CallCosts {
        // One more each for a reply that is of no use.
        tries: (i64::from(model.tries) + 1).saturating_mul(model.providers().count() as i64),
        texts_tokens: estimated_tokens(settings.agents_prompt),
        planner,
        critic: cost(catalogue.critic()),
        synthesizer: cost(catalogue.synthesizer()),
        workers: catalogue
            .workers()
            .chain([catalogue.reducer()])
            .map(|agent| (agent.name.clone(), cost(agent)))
            .collect(),
    }
}

fn agent_cost(agent: &Agent, settings: &ModelSettings) -> AgentCost {
    let model = model_of(&settings.provider, agent);
    // What any of those takes that may be asked.
    let asked = settings.providers().map(|provider| {
        let price = settings.prices.get(model_of(provider, agent))?;
        Some(TokenPrice { input: price.input, output: price.output })
    });
    let price = asked.reduce(|a, b| {
        let (a, b) = (a?, b?);
        Some(TokenPrice { input: a.input.max(b.input), output: a.output.max(b.output) })
    });
    // The offline model, which is no LLM, costs nothing.
    let free = settings.is_offline().then(TokenPrice::default);
    AgentCost {
        prompt_tokens: estimated_tokens(agent.prompt.len()),
        reply_tokens: i64::from(agent.reply_tokens()),
        model: model.to_owned(),
        price: price.flatten().or(free),
    }
}

fn model_of<'s>(provider: &'s ProviderSettings, agent: &Agent) -> &'s str {
    let own = match agent.purpose {
        AgentPurpose::Plan => &provider.plan,
        AgentPurpose::Work => &provider.work,
        AgentPurpose::Judge => &provider.judge,
        AgentPurpose::Synthesize => &provider.synthesize,
    };
    own.as_deref().unwrap_or(&provider.name)
}
