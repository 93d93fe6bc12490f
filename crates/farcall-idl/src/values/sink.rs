//! Where the parts of a decoded value go: into a [`Value`] in memory, or on paper at once.

use std::io::{self, Write};

use serde_json::{Map, Value};

use super::error::Path;

/// Is told the parts of a value in order.
pub(super) trait Sink {
    /// What a value takes in memory, besides its text, in bytes. A sink that keeps nothing is charged for the
    /// time: of values without bytes there may be any number.
    const VALUE_BYTES: usize = 8;

    /// What a name takes in memory that comes from the description.
    fn name_bytes(_name: &str) -> usize {
        0
    }

    /// A value that is neither an array nor an object.
    fn leaf(&mut self, value: Value, at: &Path<'_>);
    /// `[` or `{`.
    fn begin(&mut self, _open: u8) {}
    /// The name of the next member of an object.
    fn key(&mut self, _name: &str) {}
    /// `]` or `}`.
    fn end(&mut self, _close: u8) {}
    /// The value at `at` is an arm of the union at a place of the table. The integer selects the arm.
    fn variant(&mut self, _place: u32, _arm: usize, _tag: i32, _at: &Path<'_>) {}
}

/// Makes a [`Value`].
#[derive(Default)]
pub(super) struct Builder {
    open: Vec<(Value, Option<String>)>,
    done: Option<Value>,
}

impl Builder {
    pub(super) fn finish(self) -> Value {
        self.done.unwrap_or_default()
    }

    fn put(&mut self, value: Value) {
        match self.open.last_mut() {
            Some((Value::Array(items), _)) => items.push(value),
            Some((Value::Object(members), key)) => {
                members.insert(key.take().unwrap_or_default(), value);
            }
            _ => self.done = Some(value),
        }
    }
}

/// A vector that grows has room for twice as much as is in it, and while it grows for that again.
const GROWTH: usize = 3;

impl Sink for Builder {
    const VALUE_BYTES: usize = GROWTH * size_of::<Value>();

    fn name_bytes(name: &str) -> usize {
        // With the entry of a map and its index.
        GROWTH * (size_of::<String>() + 2 * size_of::<usize>()) + name.len()
    }

    fn leaf(&mut self, value: Value, _: &Path<'_>) {
        self.put(value);
    }

    fn begin(&mut self, open: u8) {
        let value = if open == b'[' { Value::Array(Vec::new()) } else { Value::Object(Map::new()) };
        self.open.push((value, None));
    }

    fn key(&mut self, name: &str) {
        if let Some((_, key)) = self.open.last_mut() {
            *key = Some(name.to_owned());
        }
    }

    fn end(&mut self, _: u8) {
        if let Some((value, _)) = self.open.pop() {
            self.put(value);
        }
    }
}

/// Nothing is kept: the walk alone says whether the bytes are a value.
pub(super) struct Nothing;

impl Sink for Nothing {
    fn leaf(&mut self, _: Value, _: &Path<'_>) {}
}

/// How JSON is written.
#[derive(Clone, Copy)]
pub struct Layout {
    /// A line for each part, instead of one for all.
    pub pretty: bool,
    /// What becomes of each text, quotes and all, before it is written: it must mean the same.
    pub text: fn(String) -> String,
}

/// Writes JSON as it comes.
pub(super) struct Printer<'w> {
    out: &'w mut dyn Write,
    layout: Layout,
    depth: usize,
    /// Whether something stands before, in what is open.
    after: bool,
    /// Whether a key stands before.
    after_key: bool,
    /// What became of writing.
    pub(super) done: io::Result<()>,
}

impl<'w> Printer<'w> {
    pub(super) fn new(out: &'w mut dyn Write, layout: Layout) -> Printer<'w> {
        Printer { out, layout, depth: 0, after: false, after_key: false, done: Ok(()) }
    }

    fn write(&mut self, text: &str) {
        if self.done.is_ok() {
            self.done = self.out.write_all(text.as_bytes());
        }
    }

    /// What stands between this part and the one before.
    fn part(&mut self) {
        if std::mem::take(&mut self.after_key) {
            return;
        }
        if self.after {
            self.write(",");
        }
        if self.depth > 0 {
            self.new_line();
        }
        self.after = true;
    }

    fn new_line(&mut self) {
        if self.layout.pretty {
            self.write("\n");
            (0..self.depth).for_each(|_| self.write("  "));
        }
    }

    fn write_leaf(&mut self, value: &Value) {
        let text = value.to_string();
        self.write(&if value.is_string() { (self.layout.text)(text) } else { text });
    }
}

impl Sink for Printer<'_> {
    fn leaf(&mut self, value: Value, _: &Path<'_>) {
        self.part();
        self.write_leaf(&value);
    }

    fn begin(&mut self, open: u8) {
        self.part();
        self.write(if open == b'[' { "[" } else { "{" });
        self.depth += 1;
        self.after = false;
    }

    fn key(&mut self, name: &str) {
        self.part();
        self.write_leaf(&name.into());
        self.write(if self.layout.pretty { ": " } else { ":" });
        self.after_key = true;
    }

    fn end(&mut self, close: u8) {
        self.depth = self.depth.saturating_sub(1);
        if self.after {
            self.new_line();
        }
        self.write(if close == b']' { "]" } else { "}" });
        self.after = true;
    }
}
