//! Asking a model once more, after a reply that is of no use.

use super::fault::Amend;
use crate::{Message, Speaker};

/// Puts into the conversation what was wrong with the reply to it. Turns go on alternating, as some chat templates want it.
pub(super) fn amended(messages: &mut Vec<Message>, amend: &Amend) {
    let Amend::Tell { wrong, said } = amend else { return };
    let order = format!("Your last reply could not be used. {wrong}");
    match messages.last_mut().filter(|last| last.speaker == Speaker::User) {
        // There is nothing to show: some endpoints refuse a turn that is empty.
        Some(last) if said.trim().is_empty() => {
            last.text.push_str("\n\n");
            last.text.push_str(&order);
        }
        _ => {
            if !said.trim().is_empty() {
                messages.push(Message::assistant(said.as_str()));
            }
            messages.push(Message::user(order));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_alternate_and_none_is_empty() {
        let question = vec![Message::system("s"), Message::user("q")];
        for (amend, expected) in [
            (Amend::Repeat, question.clone()),
            (
                Amend::Tell { wrong: "No JSON.".into(), said: " ".into() },
                vec![Message::system("s"), Message::user("q\n\nYour last reply could not be used. No JSON.")],
            ),
            (
                Amend::Tell { wrong: "No JSON.".into(), said: "hm".into() },
                vec![
                    Message::system("s"),
                    Message::user("q"),
                    Message::assistant("hm"),
                    Message::user("Your last reply could not be used. No JSON."),
                ],
            ),
        ] {
            let mut messages = question.clone();
            amended(&mut messages, &amend);
            assert_eq!(messages, expected);
        }
    }
}
