//! What models write around their answers, or in place of them.

pub(super) const TOOL_CALL_TAGS: &str =
    "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"the answer\"}}\n</tool_call>";

pub(super) const TOOL_CALL_TOKENS: &str = "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0\
     <|tool_call_argument_begin|>{\"query\": \"the answer\"}<|tool_call_end|><|tool_calls_section_end|>";

pub(super) fn think_closed(answer: &str) -> String {
    format!("<think>\nHm, what do they want? Maybe this (but no).\n</think>\n\n{answer}")
}

pub(super) fn think_nested(answer: &str) -> String {
    format!("<think>First. <think>No, second: {{\"draft\": 1}}.</think> Or third?</think>\n{answer}")
}

pub(super) fn think_unopened(answer: &str) -> String {
    format!("Hm, what do they want? This, then.\n</think>\n\n{answer}")
}

pub(super) fn think_unclosed(answer: &str) -> String {
    format!("<think>Maybe this is what they want:\n{answer}")
}

pub(super) fn prose_around(answer: &str) -> String {
    format!("Sure! Here is what you asked for:\n\n{answer}\n\nLet me know if I can do more for you.")
}

pub(super) fn fences(answer: &str, json: bool) -> String {
    format!("```{}\n{answer}\n```", if json { "json" } else { "" })
}
