//! Finds the tasks of a plan in the text of a model while it still speaks.
//!
//! Pure: fed with pieces of text, it gives each task object as soon as its last brace has come. It takes
//! the array at the top-level key `tasks` of the first JSON object that has one, or a bare array of
//! objects; prose, code fences and `<think>` blocks before it, and anything after it, are passed over.

use serde_json::Value;

/// Bounds of what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanStreamLimits {
    /// Most bytes of the whole reply. Default 1 MiB.
    pub max_bytes: usize,
    /// Most bytes of one task. Default 64 KiB.
    pub max_task_bytes: usize,
    /// Deepest nesting within a task or a skipped value. Default 16.
    pub max_depth: usize,
}

impl Default for PlanStreamLimits {
    fn default() -> Self {
        Self { max_bytes: 1 << 20, max_task_bytes: 64 << 10, max_depth: 16 }
    }
}

/// The text is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanTextFault {
    /// There was no array of tasks.
    #[error("the reply has no JSON object with an array \"tasks\"; it begins with {0:?}")]
    NoPlan(String),
    /// The text ended within the plan.
    #[error("the reply ends in the middle of the plan, after {0} complete tasks")]
    Cut(usize),
    /// `tasks` is something else.
    #[error("\"tasks\" is not an array")]
    NotAnArray,
    /// Something in the array is no object.
    #[error("task {0} is not a JSON object")]
    NotAnObject(usize),
    /// A task is no JSON.
    #[error("task {0} is not valid JSON: {1}")]
    BadJson(usize, String),
    /// A bound was passed.
    #[error("the plan is too large: {0}")]
    TooLarge(String),
}

/// Reads one plan. After a fault it reads nothing more.
#[derive(Debug)]
pub struct PlanStream {
    limits: PlanStreamLimits,
    state: State,
    bytes: usize,
    found: usize,
    /// The beginning of the text, for the message that there was no plan.
    excerpt: String,
    prose: Prose,
    value: Scanner,
}

const EXCERPT_CHARS: usize = 120;

#[derive(Debug, PartialEq)]
enum State {
    /// In the text before the plan.
    Seeking,
    /// After `{` or `[`: it begins a plan only if the next character fits.
    Opened(char),
    /// In the top-level object, before a key, a comma or the end.
    BetweenFields,
    /// In a top-level key.
    Key { text: String, escaped: bool },
    /// After a top-level key.
    AfterKey { tasks: bool },
    /// After its colon.
    BeforeValue { tasks: bool },
    /// In the value of another key.
    Skipping,
    /// In the array of tasks, outside a task.
    BetweenTasks,
    /// In a task.
    Task(String),
    /// The array has ended.
    Done,
}

impl PlanStream {
    /// A reader that has read nothing.
    #[must_use]
    pub fn new(limits: PlanStreamLimits) -> Self {
        Self {
            limits,
            state: State::Seeking,
            bytes: 0,
            found: 0,
            excerpt: String::new(),
            prose: Prose::default(),
            value: Scanner::default(),
        }
    }

    /// Takes more text and gives the tasks that it completes.
    ///
    /// # Errors
    /// The text is no plan; tasks given before stay valid.
    pub fn push(&mut self, text: &str) -> Result<Vec<Value>, PlanTextFault> {
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > self.limits.max_bytes && self.state != State::Done {
            return Err(PlanTextFault::TooLarge(format!("more than {} bytes", self.limits.max_bytes)));
        }
        let room = EXCERPT_CHARS.saturating_sub(self.excerpt.chars().count());
        self.excerpt.extend(text.chars().take(room));
        let mut tasks = Vec::new();
        for c in text.chars() {
            self.take(c, &mut tasks)?;
        }
        Ok(tasks)
    }

    /// Whether the array of tasks has ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The text has ended.
    ///
    /// # Errors
    /// The plan has not.
    pub fn finish(&self) -> Result<(), PlanTextFault> {
        match self.state {
            State::Done => Ok(()),
            State::BetweenTasks | State::Task(_) => Err(PlanTextFault::Cut(self.found)),
            _ => Err(PlanTextFault::NoPlan(self.excerpt.clone())),
        }
    }

    fn take(&mut self, c: char, tasks: &mut Vec<Value>) -> Result<(), PlanTextFault> {
        let white = c.is_whitespace();
        match &mut self.state {
            State::Done => {}
            State::Seeking => self.seek(c),
            State::Opened(_) if white => {}
            State::Opened('[') if c == '{' => self.begin_task(),
            State::Opened('{') if c == '"' => self.state = key(),
            State::Opened(_) => {
                self.state = State::Seeking;
                self.seek(c);
            }
            State::BetweenFields => match c {
                '"' => self.state = key(),
                ',' => {}
                _ if white => {}
                // The end of an object without tasks, or no JSON at all: it was part of the prose.
                _ => self.state = State::Seeking,
            },
            State::Key { text, escaped } => match c {
                _ if *escaped => *escaped = false, // no key with an escape is `tasks`
                '\\' => {
                    *escaped = true;
                    text.push(c);
                }
                '"' => self.state = State::AfterKey { tasks: text == "tasks" },
                _ if text.len() < 16 => text.push(c),
                _ => {}
            },
            State::AfterKey { tasks } => match c {
                ':' => self.state = State::BeforeValue { tasks: *tasks },
                _ if white => {}
                _ => self.state = State::Seeking,
            },
            State::BeforeValue { .. } if white => {}
            State::BeforeValue { tasks: true } if c == '[' => self.state = State::BetweenTasks,
            State::BeforeValue { tasks: true } => return Err(PlanTextFault::NotAnArray),
            State::BeforeValue { tasks: false } => {
                self.value = Scanner::default();
                self.state = State::Skipping;
                self.skip(c)?;
            }
            State::Skipping => self.skip(c)?,
            State::BetweenTasks => match c {
                '{' => self.begin_task(),
                ']' => self.state = State::Done,
                ',' => {}
                _ if white => {}
                _ => return Err(PlanTextFault::NotAnObject(self.found + 1)),
            },
            State::Task(text) => {
                text.push(c);
                if text.len() > self.limits.max_task_bytes {
                    return Err(PlanTextFault::TooLarge(format!(
                        "task {} has more than {} bytes",
                        self.found + 1,
                        self.limits.max_task_bytes
                    )));
                }
                if self.value.take(c, self.limits.max_depth)? {
                    self.found += 1;
                    let task = serde_json::from_str(text)
                        .map_err(|error| PlanTextFault::BadJson(self.found, error.to_string()))?;
                    tasks.push(task);
                    self.state = State::BetweenTasks;
                }
            }
        }
        Ok(())
    }

    fn seek(&mut self, c: char) {
        if self.prose.may_begin(c) {
            self.state = State::Opened(c);
        }
    }

    fn begin_task(&mut self) {
        self.value = Scanner { depth: 1, ..Scanner::default() };
        self.state = State::Task("{".to_owned());
    }

    fn skip(&mut self, c: char) -> Result<(), PlanTextFault> {
        if self.value.depth == 0 && !self.value.in_string {
            match c {
                ',' => {
                    self.state = State::BetweenFields;
                    return Ok(());
                }
                '}' | ']' => {
                    self.state = State::Seeking;
                    return Ok(());
                }
                _ => {}
            }
        }
        self.value.take(c, self.limits.max_depth).map(|_| ())
    }
}

fn key() -> State {
    State::Key { text: String::new(), escaped: false }
}

/// Follows a JSON value just closely enough to know where it ends.
#[derive(Debug, Default)]
struct Scanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Scanner {
    /// Takes a character; true if it ends an object or array that has no other around it.
    fn take(&mut self, c: char, max_depth: usize) -> Result<bool, PlanTextFault> {
        if self.in_string {
            match c {
                _ if self.escaped => self.escaped = false,
                '\\' => self.escaped = true,
                '"' => self.in_string = false,
                _ => {}
            }
            return Ok(false);
        }
        match c {
            '"' => self.in_string = true,
            '{' | '[' => {
                self.depth += 1;
                if self.depth > max_depth {
                    return Err(PlanTextFault::TooLarge(format!("nested deeper than {max_depth}")));
                }
            }
            '}' | ']' => {
                self.depth = self.depth.saturating_sub(1);
                return Ok(self.depth == 0);
            }
            _ => {}
        }
        Ok(false)
    }
}

/// The text before the plan: a draft within `<think>` is not the plan.
#[derive(Debug, Default)]
struct Prose {
    thinking: bool,
    tail: String,
}

impl Prose {
    const BEGIN: &str = "<think>";
    const END: &str = "</think>";

    /// Takes a character; whether it may begin the plan.
    fn may_begin(&mut self, c: char) -> bool {
        self.tail.push(c);
        if self.tail.ends_with(Self::BEGIN) {
            self.thinking = true;
            self.tail.clear();
        } else if self.tail.ends_with(Self::END) {
            self.thinking = false;
            self.tail.clear();
        } else if self.tail.chars().count() > Self::END.len() {
            self.tail.remove(0);
        }
        !self.thinking && matches!(c, '{' | '[')
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn read(text: &str) -> Result<Vec<Value>, PlanTextFault> {
        let mut stream = PlanStream::new(PlanStreamLimits::default());
        let tasks = stream.push(text)?;
        stream.finish()?;
        Ok(tasks)
    }

    fn keys(tasks: &[Value]) -> Vec<&str> {
        tasks.iter().map(|task| task["key"].as_str().unwrap()).collect()
    }

    const PLAN: &str = "Sure {not json} [1]!\n```json\n{\"note\": {\"a\": [\"}]\\\"\"]}, \"n\": 1, \"tasks\": [\n\
        {\"key\": \"ä\\\\\", \"x\": {\"y\": \"}\\\"]\"}}, {\"key\": \"b\", \"d\": [\"ä\"]}\n]}\n```\nDone. {\"tasks\": 1}";

    #[test]
    fn whatever_the_pieces_are_the_tasks_are_the_same() {
        let whole = read(PLAN).unwrap();
        assert_eq!(keys(&whole), ["ä\\", "b"]);
        for (at, _) in PLAN.char_indices() {
            let mut stream = PlanStream::new(PlanStreamLimits::default());
            let mut tasks = stream.push(&PLAN[..at]).unwrap();
            tasks.extend(stream.push(&PLAN[at..]).unwrap());
            stream.finish().unwrap();
            assert_eq!(tasks, whole, "split at {at}");
        }
        let mut stream = PlanStream::new(PlanStreamLimits::default());
        let single: Vec<Value> = PLAN.chars().flat_map(|c| stream.push(&c.to_string()).unwrap()).collect();
        assert_eq!(single, whole);
    }

    #[test]
    fn a_task_comes_with_its_last_brace() {
        let mut stream = PlanStream::new(PlanStreamLimits::default());
        assert!(stream.push("{\"tasks\":[{\"key\":\"a\"").unwrap().is_empty());
        assert_eq!(keys(&stream.push("}").unwrap()), ["a"]);
        assert_eq!(stream.finish(), Err(PlanTextFault::Cut(1)));
        assert_eq!(keys(&stream.push(",{\"key\":\"b\"},{\"key\":\"c\"}]").unwrap()), ["b", "c"]);
        assert!(stream.is_done());
        stream.finish().unwrap();
    }

    #[test]
    fn bare_arrays_and_objects_before_the_plan_are_understood() {
        assert_eq!(keys(&read("[{\"key\":\"a\"},]").unwrap()), ["a"]);
        assert_eq!(keys(&read("{\"ok\":true} {\"tasks\":[{\"key\":\"a\"}]}").unwrap()), ["a"]);
        assert_eq!(
            keys(&read("<think>{\"tasks\":[{\"key\":\"draft\"}]}</think>[{\"key\":\"a\"}]").unwrap()),
            ["a"]
        );
        assert_eq!(read("{\"tasks\":[]}").unwrap(), Vec::<Value>::new());
    }

    #[test]
    fn faults_are_named() {
        assert!(matches!(read(""), Err(PlanTextFault::NoPlan(_))));
        assert!(matches!(read("I cannot do that."), Err(PlanTextFault::NoPlan(_))));
        assert!(matches!(read("{\"other\":[{\"key\":\"a\"}]}"), Err(PlanTextFault::NoPlan(_))));
        assert_eq!(read("{\"tasks\":\"none\"}"), Err(PlanTextFault::NotAnArray));
        assert_eq!(read("{\"tasks\":[{}, 7]}"), Err(PlanTextFault::NotAnObject(2)));
        assert!(matches!(read("{\"tasks\":[{\"key\" \"a\"}]}"), Err(PlanTextFault::BadJson(1, _))));
        assert_eq!(read("{\"tasks\":[{\"key\":"), Err(PlanTextFault::Cut(0)));
    }

    #[test]
    fn bounds_hold() {
        let deep = format!("{{\"tasks\":[{{\"a\":{}", "[".repeat(1000));
        assert!(matches!(read(&deep), Err(PlanTextFault::TooLarge(_))));
        let skipped = format!("{{\"a\":{}", "[".repeat(1000));
        assert!(matches!(read(&skipped), Err(PlanTextFault::TooLarge(_))));
        let long = format!("{{\"tasks\":[{{\"a\":\"{}", "x".repeat(70 << 10));
        assert!(matches!(read(&long), Err(PlanTextFault::TooLarge(_))));
        assert!(matches!(read(&"x".repeat(2 << 20)), Err(PlanTextFault::TooLarge(_))));
    }
}
