//! The files of an intent: what is read of them, and how long ones are cut. All that is wrong with any of them is told
//! at once, before anything is spent.

use crate::{args::IntentArgs, exit::CliError};
use starling_inputs::{ChunkSize, Cut, TextLimits, chunks, items_of, text_of};
use starling_llm::estimated_tokens;
use starling_protocol::{Content, Input, IntentLimits, RecordRef};
use starling_runtime::{Settings, settings::InputSettings};
use starling_service::outline;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// What a reference to a part takes of an intent, in bytes.
const REFERENCE: usize = 160;

/// A part of a long text, to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What is stored.
    pub content: Content,
    /// Its tokens, as they were counted when it was cut.
    pub tokens: i64,
}

/// Where the material of an intent is, and how it is to be cut where the settings do not say it.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Files that become inputs.
    pub files: Vec<PathBuf>,
    /// Files of items.
    pub item_files: Vec<PathBuf>,
    /// The column or field that the items are in.
    pub items_column: Option<String>,
    /// Most tokens of a part.
    pub chunk_tokens: Option<usize>,
    /// Tokens that are told again.
    pub overlap: Option<usize>,
}

impl Sources {
    /// Those of a command line.
    #[must_use]
    pub fn of(args: &IntentArgs) -> Self {
        let size = |tokens: Option<u32>| tokens.and_then(|tokens| usize::try_from(tokens).ok());
        Self {
            files: args.files.clone(),
            item_files: args.item_files.clone(),
            items_column: args.items_column.clone(),
            chunk_tokens: size(args.chunk_tokens),
            overlap: size(args.overlap),
        }
    }
}

/// What comes with an intent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Material {
    /// Its inputs; the texts of long ones are in `parts`.
    pub inputs: Vec<Input>,
    /// Parts of long inputs, by the positions of these.
    pub parts: BTreeMap<usize, Vec<Part>>,
    /// Its items.
    pub items: Vec<String>,
    /// What could not be read of files that are of use all the same.
    pub notes: Vec<String>,
}

impl Material {
    /// Reads all files.
    ///
    /// # Errors
    /// Names everything that is wrong with any of them: a usage fault.
    pub fn read(sources: &Sources, settings: &Settings) -> Result<Self, CliError> {
        let set = &settings.inputs;
        let size = ChunkSize {
            tokens: sources.chunk_tokens.unwrap_or(set.chunk_tokens),
            overlap: sources.overlap.unwrap_or(set.overlap_tokens),
        };
        let mut faults = Vec::new();
        if size.overlap > size.tokens / 2 {
            let ChunkSize { tokens, overlap } = size;
            faults.push(format!("an overlap of {overlap} tokens is more than half of a part of {tokens}"));
        }
        let mut material = Self::default();
        let mut room = settings.intake.max_intent / 2;
        let names = names(&sources.files, &mut faults);
        for (path, name) in sources.files.iter().zip(names) {
            match text(path, &name, set) {
                Ok(read) => {
                    let missing = read.missing.iter();
                    material.notes.extend(missing.map(|missing| format!("{}: {missing}", path.display())));
                    material.add(name, read, size, set.inline, &mut room);
                }
                Err(why) => faults.push(format!("{}: {why}", path.display())),
            }
        }
        for path in &sources.item_files {
            let name = path.to_string_lossy();
            let items = bytes(path, set.max_file).and_then(|bytes| {
                items_of(&name, &bytes, sources.items_column.as_deref()).map_err(|fault| fault.to_string())
            });
            match items {
                Ok(items) => material.items.extend(items),
                Err(why) => faults.push(format!("{}: {why}", path.display())),
            }
        }
        faults.extend(material.too_much(size, settings.intake.max_intent));
        match faults.as_slice() {
            [] => Ok(material),
            [one] => Err(CliError::Usage(one.clone())),
            many => Err(CliError::Usage(format!("{} faults:\n  {}", many.len(), many.join("\n  ")))),
        }
    }

    fn add(
        &mut self,
        name: String,
        read: starling_inputs::Text,
        size: ChunkSize,
        inline: usize,
        room: &mut usize,
    ) {
        let media_type = read.format.media_type().to_owned();
        let mut input = Input { name, media_type, content: read.text, chunks: Vec::new() };
        if input.content.len() <= inline.min(*room) {
            *room -= input.content.len();
        } else {
            let parts = cut(&std::mem::take(&mut input.content), Cut::of(&input.media_type), size);
            self.parts.insert(self.inputs.len(), parts);
        }
        self.inputs.push(input);
    }

    /// What the intake would refuse, after the parts were stored.
    fn too_much(&self, size: ChunkSize, max_intent: usize) -> Option<String> {
        let parts: usize = self.parts.values().map(Vec::len).sum();
        let inline: usize = self.inputs.iter().map(|input| input.content.len() + input.name.len()).sum();
        let items: usize = self.items.iter().map(|item| item.len() + 4).sum();
        let most =
            IntentLimits::default().max_parts.min(max_intent.saturating_sub(inline + items) / REFERENCE);
        if parts <= most {
            return None;
        }
        let tokens = size.tokens;
        Some(format!(
            "the files have {parts} parts of up to {tokens} tokens, and an intent has room for {most}: take larger parts \
             (--chunk-tokens), or fewer files"
        ))
    }
}

/// The inputs as they will be once their parts are stored, for whoever only looks ahead: their references lead nowhere yet.
#[must_use]
pub fn foreseen(inputs: &[Input], parts: &BTreeMap<usize, Vec<Part>>) -> Vec<Input> {
    let reference = |part: &Part| {
        let Content { heading, overlap, text } = &part.content;
        RecordRef {
            topic: String::new(),
            partition: 0,
            offset: -1,
            envelope_id: part.content.envelope_id(),
            bytes: i64::try_from(heading.len() + overlap.len() + text.len()).unwrap_or(i64::MAX),
            tokens: part.tokens,
            digest: String::new(),
        }
    };
    let input = |(position, input): (usize, &Input)| {
        let parts = parts.get(&position).map(Vec::as_slice).unwrap_or_default();
        Input { chunks: parts.iter().map(reference).collect(), ..input.clone() }
    };
    inputs.iter().enumerate().map(input).collect()
}

/// The same as a planner sees them: how long ones begin.
#[must_use]
pub fn outlined(inputs: &[Input], parts: &BTreeMap<usize, Vec<Part>>) -> Vec<Input> {
    let inputs = foreseen(inputs, parts).into_iter().enumerate();
    let outlined =
        |(position, input): (usize, Input)| match parts.get(&position).and_then(|parts| parts.first()) {
            Some(first) => outline(&input, &first.content.text),
            None => input,
        };
    inputs.map(outlined).collect()
}

/// Cuts a long text into parts.
#[must_use]
pub fn cut(text: &str, at: Cut, size: ChunkSize) -> Vec<Part> {
    let count = |text: &str| usize::try_from(tokens(text)).unwrap_or(usize::MAX);
    let chunks = chunks(text, at, size, &count).into_iter();
    let part = |chunk: starling_inputs::Chunk<'_>| Part {
        tokens: tokens(chunk.heading) + tokens(chunk.overlap) + tokens(chunk.text),
        content: Content {
            heading: chunk.heading.to_owned(),
            overlap: chunk.overlap.to_owned(),
            text: chunk.text.to_owned(),
        },
    };
    chunks.map(part).collect()
}

/// Which model will read it is not known here: this is the measure that all settings are in.
fn tokens(text: &str) -> i64 {
    estimated_tokens(text.chars().count())
}

/// A name for each file: its own, or the whole path where another file has the same.
fn names(files: &[PathBuf], faults: &mut Vec<String>) -> Vec<String> {
    let own = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let mut seen = BTreeSet::new();
    for path in files.iter().filter(|path| !seen.insert(*path)).collect::<BTreeSet<_>>() {
        faults.push(format!("{}: is given twice", path.display()));
    }
    let name = |path: &PathBuf| {
        let is_alone = files.iter().filter(|other| own(other) == own(path)).count() < 2;
        own(path).filter(|_| is_alone).unwrap_or_else(|| path.display().to_string())
    };
    files.iter().map(name).collect()
}

fn text(path: &Path, name: &str, set: &InputSettings) -> Result<starling_inputs::Text, String> {
    let limits = TextLimits { bytes: set.max_file, time: set.pdf_timeout };
    text_of(name, &bytes(path, set.max_file)?, limits).map_err(|fault| fault.to_string())
}

fn bytes(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() > most {
        return Err(format!("is larger than inputs.max_file, {most} bytes"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
