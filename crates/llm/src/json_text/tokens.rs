//! Special tokens of chat templates that should never reach a reader, and do.

/// What ends a turn. In a text it stands for nothing.
const ENDS: [&str; 9] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
];

/// What a call of a tool begins with.
const CALLS: [&str; 5] = ["<tool_call>", "<function_call>", "<|tool_call", "<｜tool▁call", "[TOOL_CALLS]"];

/// Longest end of a text that is held back because it may be nothing but ends of a turn, in bytes.
const MAX_HELD: usize = 128;

/// Bytes of a text's end within which an unfinished beginning of a call may be.
pub(super) const MAX_CALL: usize = 15;

/// The text without ends of a turn at its end, and without the blanks before them.
pub(super) fn without_ends(text: &str) -> &str {
    let mut rest = text.trim_end();
    while let Some(before) = ENDS.iter().find_map(|end| rest.strip_suffix(end)) {
        rest = before.trim_end();
    }
    rest
}

/// From where on the text is nothing but ends of a turn, as far as it has come; its length if it is not.
pub(super) fn undecided(text: &str) -> usize {
    let mut from = text.len().saturating_sub(MAX_HELD);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let tail = text.get(from..).unwrap_or_default();
    let begins = tail.match_indices('<').map(|(at, _)| at);
    begins
        .filter(|at| tail.get(*at..).is_some_and(only_ends))
        .map(|at| from + at)
        .next()
        .unwrap_or(text.len())
}

fn only_ends(text: &str) -> bool {
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return true;
        }
        match ENDS.iter().find_map(|end| rest.strip_prefix(end)) {
            Some(after) => rest = after,
            None => return ENDS.iter().any(|end| end.starts_with(rest)),
        }
    }
}

/// Whether a call of a tool begins somewhere in the text.
pub(super) fn has_call(text: &str) -> bool {
    CALLS.iter().any(|call| text.contains(call))
}

/// Whether the text is a call of a tool from its beginning.
pub(super) fn is_call(text: &str) -> bool {
    CALLS.iter().any(|call| text.starts_with(call))
}

/// Whether the text may become one.
pub(super) fn may_be_call(text: &str) -> bool {
    CALLS.iter().any(|call| call.starts_with(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_a_turn_go_from_the_end_and_from_nowhere_else() {
        for (text, expected) in [
            ("hello<|im_end|>", "hello"),
            ("hello \n<|eot_id|> <|im_end|>\n", "hello"),
            ("<|im_end|>", ""),
            ("the token <|im_end|> ends a turn", "the token <|im_end|> ends a turn"),
            ("<s>old</s>", "<s>old</s>"),
            ("x <|im_en", "x <|im_en"),
            ("grüß<｜end▁of▁sentence｜>", "grüß"),
        ] {
            assert_eq!(without_ends(text), expected, "{text}");
        }
    }

    #[test]
    fn only_what_may_be_an_end_of_a_turn_is_held_back() {
        for (text, from) in [
            ("hello", 5),
            ("hello<", 5),
            ("hello<|im_", 5),
            ("hello<|im_end|>\n<|e", 5),
            ("a < b", 5),
            ("hello<|im_end|>x", 16),
            ("a <|nothing", 11),
        ] {
            assert_eq!(undecided(text), from, "{text}");
        }
        let many = "<|im_end|>".repeat(100_000);
        assert!(many.len() - undecided(&many) <= MAX_HELD);
    }

    #[test]
    fn the_longest_beginning_of_a_call_is_known() {
        assert_eq!(CALLS.iter().map(|call| call.len()).max(), Some(MAX_CALL));
    }
}
